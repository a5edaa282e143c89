package kernelload

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/api/wire"
)

// Ceiling runs a load against a reflector. The two are connected by a veth pair between two network
// namespaces, which Ceiling makes and removes. It measures the cost of the generator and of the
// kernel's path to and from a switch, without a switch. It uses only the profile, the number of
// outstanding queries, the mix, the duration and the CPUs of cfg.
func Ceiling(ctx context.Context, cfg Config, xdp bool) (*Report, error) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("this thread's network namespace: %w", err)
	}
	defer home.Close()
	space, err := netns.New() // this thread is now in the new namespace
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("making a network namespace (it needs root): %w", err)
	}
	defer func() {
		space.Close()
		if netns.Set(home) == nil { // if it fails, this thread stays locked and ends with its goroutine
			runtime.UnlockOSThread()
		}
	}()
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "load"},
		PeerName: "reflector"}); err != nil {
		return nil, fmt.Errorf("making a veth pair: %w", err)
	}
	for _, name := range []string{"load", "reflector"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
	}
	detach, err := Reflect("reflector", xdp, "load")
	if err != nil {
		return nil, err
	}
	defer detach()
	cfg.Iface, cfg.Source, cfg.Target = "load", netip.AddrFrom4([4]byte{10, 0, 0, 1}),
		netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 2}), wire.Port)
	cfg.Gateway, cfg.Reflected, cfg.Keys, cfg.Weights = [6]byte{2, 0, 0, 0, 0, 2}, true,
		[]wire.Key{1 << 24}, nil
	return Run(ctx, cfg)
}

package paperchain

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/kernelload"
	"github.com/netcraq/netcraq/switch/ebpf"
)

// TestLoad runs the in-kernel load against a chain of one switch, on the interpreter. It runs with
// unchanged answers, and with answers whose value, key or operation was changed.
func TestLoad(t *testing.T) {
	if err := ebpf.Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
	for name, c := range map[string]struct {
		spoil func(*Packet)
		right func(r *kernelload.Report) bool
	}{
		"right": {func(*Packet) {}, func(r *kernelload.Report) bool {
			return r.Wrong == 0 && r.Read.Answered > 20 && r.Write.Answered > 20
		}},
		"another value": {func(p *Packet) { p.Value[15] ^= 1 }, func(r *kernelload.Report) bool {
			return r.Wrong > 0 && r.Wrong <= r.Read.Answered
		}},
		"another key": {func(p *Packet) { p.Key++ }, func(r *kernelload.Report) bool {
			return r.Read.Answered+r.Write.Answered == 0 && r.Stray > 0 && r.Resent > 0
		}},
		"another op": {func(p *Packet) { p.Op = Write }, func(r *kernelload.Report) bool {
			return r.Read.Answered+r.Write.Answered == 0 && r.Stray > 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if r := loaded(t, c.spoil); !c.right(r) {
				t.Errorf("%d reads and %d writes answered, %d wrong, %d stray, %d sent again", r.Read.Answered,
					r.Write.Answered, r.Wrong, r.Stray, r.Resent)
			}
		})
	}
}

// loaded runs the load for a moment. spoil changes the answers.
func loaded(t *testing.T, spoil func(*Packet)) *kernelload.Report {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	check(t, err)
	defer home.Close()
	space, err := netns.New()
	check(t, err)
	defer space.Close()
	defer func() { check(t, netns.Set(home)) }()
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "load"}, PeerName: "sw"}))
	for _, name := range []string{"load", "sw"} {
		l, err := netlink.LinkByName(name)
		check(t, err)
		check(t, netlink.LinkSetUp(l))
	}
	sw, err := netlink.LinkByName("sw")
	check(t, err)
	n := newNetwork(t, 1, newInterpreted)
	const all = unix.ETH_P_ALL << 8 // ETH_P_ALL in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
	check(t, err)
	defer unix.Close(fd)
	check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: sw.Attrs().Index}))
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- forward(n.devices[0], fd, spoil, stop) }()
	address := n.topo.Switches[0].Address
	cfg := kernelload.Config{Iface: "load", Source: n.topo.Hosts[0].IP, Gateway: [6]byte{2, 0, 0, 0, 0, 9},
		Target: netip.AddrPortFrom(address, Port), Profile: wire.Profile128, Keys: []wire.Key{1, 2, 3},
		Outstanding: 4, FirstPort: 40000, Duration: 300 * time.Millisecond, Resend: 50 * time.Millisecond, Seed: 1,
		Protocol: Load{Node: address, Head: address}, WritePercent: 40}
	for _, k := range cfg.Keys {
		p := Packet{Op: Write, Key: uint32(k)}
		copy(p.Value[:], kernelload.Value(wire.Profile128, k, 0))
		n.ask(0, p)
	}
	r, err := kernelload.Run(t.Context(), cfg)
	check(t, err)
	close(stop)
	check(t, <-done)
	return r
}

// forward makes a switch process the frames that arrive at a socket, until stop is closed.
func forward(d device, fd int, spoil func(*Packet), stop <-chan struct{}) error {
	buffer := make([]byte, 2048)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) {
			time.Sleep(20 * time.Microsecond)
			continue
		}
		if err != nil {
			return err
		}
		if ll, _ := from.(*unix.SockaddrLinklayer); ll == nil || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		for _, out := range d.process(toHost, slices.Clone(buffer[:n])) {
			f, payload, err := wire.ParseFrame(out.Frame)
			var p Packet
			if err != nil || p.Unmarshal(payload) != nil {
				continue // this is a frame of the kernel itself
			}
			spoil(&p)
			frame, err := f.AppendTo(nil, p.Marshal())
			if err != nil {
				return err
			}
			if _, err := unix.Write(fd, frame); err != nil {
				return err
			}
		}
	}
}

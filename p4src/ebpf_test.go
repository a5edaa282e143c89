package p4src

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/target"
)

// hooks are the hooks at which the eBPF engine can be attached.
var hooks = []ebpf.Hook{ebpf.HookTC, ebpf.HookXDP}

// TestScenariosInKernel runs the scenarios on the eBPF engine, at both hooks. It uses veth pairs in
// a separate network namespace.
func TestScenariosInKernel(t *testing.T) {
	if err := ebpf.Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			eachScenario(t, func(t *testing.T, file string) {
				s := &scenario{open: func(t *testing.T, profile int) device {
					return &mirrored{newKernel(t, profile, hook), newInterpreter(t, profile, nil)}
				}}
				s.run(t, file)
			})
		})
	}
}

// kernel is a switch in this process. The kernel processes its packets with eBPF programs.
type kernel struct {
	*interpreter // converts the names and widths in table entries
	device       target.Device
	sockets      map[uint32]int // the AF_PACKET socket on the other end of each port's veth pair

	mu      sync.Mutex
	packets []output // packet-ins since the last call of send
}

func newKernel(t *testing.T, profile int, hook ebpf.Hook) *kernel {
	t.Helper()
	k := &kernel{interpreter: newInterpreter(t, profile, nil), sockets: map[uint32]int{}}
	// This thread stays in the namespace until the function returns. Afterwards the switch and the
	// sockets keep the namespace alive.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	check(t, err)
	defer home.Close()
	space, err := netns.New()
	check(t, err)
	defer func() { check(t, netns.Set(home)) }()
	t.Cleanup(func() { space.Close() })
	for _, file := range []string{"all", "default"} {
		// IPv6 is disabled to reduce the number of frames that the kernel itself sends
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+file+"/disable_ipv6", []byte("1"), 0)
	}
	k.device, err = ebpf.New(ebpf.Options{CPUPort: controllerPort, Hook: hook, Log: slog.New(slog.DiscardHandler)})
	check(t, err)
	t.Cleanup(func() { k.device.Close() })
	k.device.OnPacketIn(func(frame []byte) {
		k.mu.Lock()
		k.packets = append(k.packets, output{controllerPort, frame})
		k.mu.Unlock()
	})
	check(t, k.device.Commit(k.program))
	loopback, err := netlink.LinkByName("lo")
	check(t, err)
	check(t, netlink.LinkSetUp(loopback))
	for _, number := range targetPorts {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("s%d", number), MTU: 9000},
			PeerName: fmt.Sprintf("h%d", number)}
		check(t, netlink.LinkAdd(link))
		peer, err := netlink.LinkByName(link.PeerName)
		check(t, err)
		for _, l := range []netlink.Link{link, peer} {
			check(t, netlink.LinkSetMTU(l, 9000))
			check(t, netlink.LinkSetUp(l))
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
			int(htons(unix.ETH_P_ALL)))
		check(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: peer.Attrs().Index}))
		k.sockets[number] = fd
		check(t, k.device.AddPort(target.Port{Number: number, Iface: link.Name}))
	}
	return k
}

func (k *kernel) set(e p4rt.Entry) error {
	table, entry, err := k.entry(e)
	if err != nil {
		return err
	}
	p := k.device.Pipeline()
	if e.Default {
		return p.SetDefault(table, entry)
	}
	if err := p.InsertEntry(table, entry); !errors.Is(err, target.ErrExists) {
		return err
	}
	return p.ModifyEntry(table, entry)
}

func (k *kernel) remove(e p4rt.Entry) error {
	e.Action, e.Params = "", nil
	table, entry, err := k.entry(e)
	if err != nil {
		return err
	}
	return k.device.Pipeline().DeleteEntry(table, entry)
}

func (k *kernel) group(g p4rt.Group) error {
	var replicas []target.Replica
	for _, r := range g.Replicas {
		replicas = append(replicas, target.Replica{Port: r.Port, Instance: uint16(r.Instance)})
	}
	return k.device.Pipeline().SetMulticastGroup(g.ID, replicas)
}

func (k *kernel) rate(port uint32, packets int64) error {
	return k.device.Pipeline().WriteMeter(hostRate, int(port), packetsAtOnce(packets))
}

func (k *kernel) events() ([]uint64, error) {
	var out []uint64
	for i := range 64 {
		c, err := k.device.Pipeline().ReadCounter("NetcraqIngress.pipeline.events", i)
		if err != nil {
			return nil, err
		}
		out = append(out, c.Packets)
	}
	return out, nil
}

// send sends a frame, and returns the frames that leave the switch. The kernel processes a frame
// before the sender's system call returns, but outgoing frames may reach their sockets later, in a
// software interrupt.
func (k *kernel) send(port uint32, frame []byte) ([]output, error) { return k.sendFor(port, frame, 0) }

// sendFor implements the interface waiting.
func (k *kernel) sendFor(port uint32, frame []byte, expected int) ([]output, error) {
	k.mu.Lock()
	k.packets = nil
	k.mu.Unlock()
	before, err := k.events()
	if err != nil {
		return nil, err
	}
	if port == controllerPort {
		if err := k.device.PacketOut(frame); err != nil {
			return nil, err
		}
	} else if _, err := unix.Write(k.sockets[port], frame); err != nil {
		return nil, fmt.Errorf("sending by port %d: %w", port, err)
	}
	// On a busy machine the switch may process the frame late. The event counter shows when the
	// switch has processed it.
	for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); time.Sleep(
		50 * time.Microsecond) {
		after, err := k.events()
		if err != nil {
			return nil, err
		}
		if !slices.Equal(before, after) {
			break
		}
	}
	var out []output
	buffer := make([]byte, 65536)
	over := func(last time.Time) bool {
		k.mu.Lock()
		came := len(out) + len(k.packets)
		k.mu.Unlock()
		if came < expected {
			return time.Since(last) > late
		}
		return time.Since(last) > 4*time.Millisecond && !ebpf.Pending(k.device)
	}
	for last := time.Now(); !over(last); time.Sleep(200 * time.Microsecond) {
		for number, fd := range k.sockets {
			n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("receiving at port %d: %w", number, err)
			}
			if ll, _ := from.(*unix.SockaddrLinklayer); ll == nil || ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			out = append(out, output{number, append([]byte{}, buffer[:n]...)})
			last = time.Now()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return append(out, k.packets...), nil
}

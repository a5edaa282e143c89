package paperchain

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// eachEngine runs a test on the interpreter, and on the eBPF engine at both hooks. In the runs on
// the eBPF engine, the interpreter gets the same frames, and must send the same frames.
func eachEngine(t *testing.T, f func(t *testing.T, open func(*testing.T, *bmv2json.Program) device)) {
	t.Run("interp", func(t *testing.T) { f(t, newInterpreted) })
	for _, hook := range []ebpf.Hook{ebpf.HookTC, ebpf.HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			if err := ebpf.Probe(); err != nil {
				t.Skipf("eBPF is not available: %v", err)
			}
			f(t, func(t *testing.T, program *bmv2json.Program) device { return newMirrored(t, program, hook) })
		})
	}
}

// mirrored is a switch in the kernel together with a switch on the interpreter that gets the same
// input.
type mirrored struct {
	target.Pipeline // the pipeline of the switch in the kernel
	t               *testing.T
	device          target.Device
	other           *interpreted
	sockets         map[uint32]int // for each port, an AF_PACKET socket at the other end of its veth pair
}

const ports = 3

func newMirrored(t *testing.T, program *bmv2json.Program, hook ebpf.Hook) device {
	t.Helper()
	m := &mirrored{t: t, other: newInterpreted(t, program).(*interpreted), sockets: map[uint32]int{}}
	// This thread keeps the namespace until this function ends. The namespace lives as long as the
	// switch and the sockets.
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
		// This keeps the kernel from sending frames of its own.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+file+"/disable_ipv6", []byte("1"), 0)
	}
	m.device, err = ebpf.New(ebpf.Options{CPUPort: 510, Hook: hook, Log: slog.New(slog.DiscardHandler)})
	check(t, err)
	t.Cleanup(func() { m.device.Close() })
	check(t, m.device.Commit(program))
	m.Pipeline = m.device.Pipeline()
	for number := range uint32(ports + 1) {
		if number == 0 {
			continue
		}
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("s%d", number)},
			PeerName: fmt.Sprintf("h%d", number)}
		check(t, netlink.LinkAdd(link))
		peer, err := netlink.LinkByName(link.PeerName)
		check(t, err)
		check(t, errors.Join(netlink.LinkSetUp(link), netlink.LinkSetUp(peer)))
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // ETH_P_ALL in network byte order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all&0xffff)
		check(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: peer.Attrs().Index}))
		m.sockets[number] = fd
		check(t, m.device.AddPort(target.Port{Number: number, Iface: link.Name}))
	}
	return m
}

func (m *mirrored) pipeline() target.Pipeline { return m }

// Every P4Runtime write goes to both switches.

func (m *mirrored) InsertEntry(table string, e *target.TableEntry) error {
	return errors.Join(m.Pipeline.InsertEntry(table, e), m.other.p.InsertEntry(table, e))
}

func (m *mirrored) SetDefault(table string, e *target.TableEntry) error {
	return errors.Join(m.Pipeline.SetDefault(table, e), m.other.p.SetDefault(table, e))
}

func (m *mirrored) SetMulticastGroup(id uint32, replicas []target.Replica) error {
	return errors.Join(m.Pipeline.SetMulticastGroup(id, replicas), m.other.p.SetMulticastGroup(id, replicas))
}

func (m *mirrored) WriteRegister(name string, index int, v []byte) error {
	return errors.Join(m.Pipeline.WriteRegister(name, index, v), m.other.p.WriteRegister(name, index, v))
}

func (m *mirrored) ReadRegister(name string, index int) ([]byte, error) {
	v, err := m.Pipeline.ReadRegister(name, index)
	other, otherErr := m.other.p.ReadRegister(name, index)
	if !bytes.Equal(v, other) {
		return nil, fmt.Errorf("%s[%d] is %x in the kernel, and %x on the interpreter", name, index, v, other)
	}
	return v, errors.Join(err, otherErr)
}

// process waits until as many frames came out of the kernel as the interpreter sends. It then waits
// a moment longer to detect extra frames.
func (m *mirrored) process(port uint32, frame []byte) []interp.Out {
	m.t.Helper()
	want := m.other.process(port, frame)
	if _, err := unix.Write(m.sockets[port], frame); err != nil {
		m.t.Fatalf("sending by port %d: %v", port, err)
	}
	const late, grace = 2 * time.Second, 2 * time.Millisecond
	var got []interp.Out
	buffer := make([]byte, 2048)
	for start, last := time.Now(), time.Now(); ; time.Sleep(100 * time.Microsecond) {
		for number, fd := range m.sockets {
			n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				continue
			}
			check(m.t, err)
			if ll, _ := from.(*unix.SockaddrLinklayer); ll != nil && ll.Pkttype != unix.PACKET_OUTGOING {
				got = append(got, interp.Out{Port: number, Frame: bytes.Clone(buffer[:n])})
				last = time.Now()
			}
		}
		if len(got) < len(want) && time.Since(start) < late {
			continue
		}
		if time.Since(last) > grace && !ebpf.Pending(m.device) {
			break
		}
	}
	byPort := func(a, b interp.Out) int { return cmp.Or(cmp.Compare(a.Port, b.Port), bytes.Compare(a.Frame, b.Frame)) }
	slices.SortFunc(got, byPort)
	slices.SortFunc(want, byPort)
	if !slices.EqualFunc(got, want, func(a, b interp.Out) bool { return byPort(a, b) == 0 }) {
		m.t.Fatalf("frame %x by port %d:\nthe kernel sends     %x\nthe interpreter sends %x", frame, port, got, want)
	}
	return got
}

package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

// cables are veth pairs s1-h1, s2-h2, and so on in a network namespace of their own. One end of a
// pair is a port of the switch. The test has a packet socket at the other end.
type cables struct {
	space   netns.NsHandle
	sockets map[uint32]int
}

// newCables creates a veth pair for each of the ports. The far ends of hidden ports are in a
// namespace that no other process can find: it has no name, and no process is in it. The test
// continues in the switch's namespace.
func newCables(t *testing.T, ports []uint32, hidden ...uint32) *cables {
	t.Helper()
	needKernel(t)
	runtime.LockOSThread()
	home, err := netns.Get()
	check(t, err)
	var hide netns.NsHandle
	if len(hidden) > 0 {
		hide, err = netns.New()
		check(t, err)
		noIPv6()
	}
	c := &cables{sockets: map[uint32]int{}}
	c.space, err = netns.New()
	check(t, err)
	t.Cleanup(func() {
		for _, fd := range c.sockets {
			unix.Close(fd)
		}
		if hide > 0 {
			hide.Close()
		}
		c.space.Close()
		if err := netns.Set(home); err == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
	})
	offload.Dir = t.TempDir()
	noIPv6()
	for _, n := range ports {
		c.plug(t, n)
		if !slices.Contains(hidden, n) {
			c.listen(t, n)
			continue
		}
		l, err := netlink.LinkByName(fmt.Sprintf("h%d", n))
		check(t, err)
		check(t, netlink.LinkSetNsFd(l, int(hide)))
		check(t, netns.Set(hide))
		check(t, netlink.LinkSetUp(l))
		c.listen(t, n)
		check(t, netns.Set(c.space))
	}
	return c
}

// noIPv6 disables IPv6 on interfaces that are created later, so that the kernel sends no frames of
// its own.
func noIPv6() { _ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0) }

// plug creates the veth pair of one port.
func (c *cables) plug(t *testing.T, n uint32) {
	t.Helper()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("s%d", n), MTU: 9000},
		PeerName: fmt.Sprintf("h%d", n), PeerMTU: 9000}
	check(t, netlink.LinkAdd(pair))
	for _, name := range []string{pair.Name, pair.PeerName} {
		l, err := netlink.LinkByName(name)
		check(t, err)
		check(t, netlink.LinkSetUp(l))
	}
}

// listen opens a packet socket at the far end of a veth pair. The calling thread must be in the far
// end's namespace.
func (c *cables) listen(t *testing.T, n uint32) {
	t.Helper()
	l, err := netlink.LinkByName(fmt.Sprintf("h%d", n))
	check(t, err)
	const all = unix.ETH_P_ALL << 8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
	check(t, err)
	check(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	check(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Attrs().Index}))
	if old, ok := c.sockets[n]; ok {
		unix.Close(old)
	}
	c.sockets[n] = fd
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take waits until the expected number of frames has left the ports, and then a moment longer. It
// returns all frames, sorted. It puts 802.1Q tags that the kernel removed back into the frames.
func (c *cables) take(t *testing.T, expect int) []stf.Packet {
	t.Helper()
	out := c.takeInOrder(t, expect)
	sort.Slice(out, func(i, j int) bool {
		return out[i].Port < out[j].Port || out[i].Port == out[j].Port &&
			bytes.Compare(out[i].Frame, out[j].Frame) < 0
	})
	return out
}

// takeInOrder does what take does, but it sorts frames only by port and keeps each port's order of
// arrival.
func (c *cables) takeInOrder(t *testing.T, expect int) []stf.Packet {
	t.Helper()
	return c.takeWithin(t, expect, 10*time.Second)
}

// takeWithin does what takeInOrder does within a time limit, for tests that repeat a frame until
// one arrives.
func (c *cables) takeWithin(t *testing.T, expect int, patience time.Duration) []stf.Packet {
	t.Helper()
	var out []stf.Packet
	buffer, control := make([]byte, 65536), make([]byte, 256)
	quiet, end := time.Now().Add(3*time.Millisecond), time.Now().Add(patience)
	for ; ; runtime.Gosched() {
		for n, fd := range c.sockets {
			size, ctl, _, _, err := unix.Recvmsg(fd, buffer, control, 0)
			if errors.Is(err, unix.EAGAIN) {
				continue
			}
			check(t, err)
			quiet = time.Now().Add(3 * time.Millisecond)
			out = append(out, stf.Packet{Port: n,
				Frame: withTag(t, bytes.Clone(buffer[:size]), control[:ctl])})
		}
		if now := time.Now(); now.After(quiet) && len(out) >= expect || now.After(end) {
			break
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Port < out[j].Port })
	return out
}

// withTag puts a removed 802.1Q tag back into a frame. The tag is in struct tpacket_auxdata
// (packet(7)).
func withTag(t *testing.T, frame, control []byte) []byte {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	check(t, err)
	for _, m := range messages {
		if m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 ||
			binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tag := binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(m.Data[18:]))
		tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
		return slices.Insert(frame, 12, tag...)
	}
	return frame
}

// setHooksEntries inserts the entries of hooks.p4, by the last byte of the destination: 1 to 9
// forward to that port, 10 floods, 20 + port shortens the frame, 30 + port lengthens it, and 40 +
// port lengthens it a lot.
func setHooksEntries(t *testing.T, p target.Pipeline, ports []uint32) {
	t.Helper()
	insert := func(dst byte, action string, param uint32) {
		t.Helper()
		check(t, p.InsertEntry("HooksIngress.what",
			&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{2, 0, 0, 0, 0, dst}}},
				Action: &target.ActionCall{Action: "HooksIngress." + action,
					Params: [][]byte{{byte(param >> 8), byte(param)}}}}))
	}
	for _, n := range ports {
		insert(byte(n), "forward", n)
		insert(byte(20+n), "shorten", n)
		insert(byte(30+n), "lengthen", n)
		insert(byte(40+n), "lengthen_much", n)
	}
	insert(10, "flood", 7)
	check(t, p.SetMulticastGroup(7, floodReplicas))
}

var floodReplicas = []target.Replica{{Port: 1, Instance: 11}, {Port: 2, Instance: 12},
	{Port: 2, Instance: 13}, {Port: 3, Instance: 14}}

// hooksFrame returns a frame of a given size to one of the destinations of hooks.p4, with up to two
// tags.
func hooksFrame(dst byte, size int, tags ...uint16) []byte {
	f := []byte{2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 1, 0}
	for _, tag := range tags {
		f = append(f, 0x81, 0, byte(tag>>8), byte(tag))
	}
	f = append(f, 0x12, 0x34)
	for i := len(f); i < size; i++ {
		f = append(f, byte(i*7+i>>8))
	}
	return f
}

// hooksWant returns the frames that hooks.p4 must send for an incoming frame. count is the number
// of that frame.
func hooksWant(frame []byte, count uint32) []stf.Packet {
	f, dst := bytes.Clone(frame), frame[5]
	switch {
	case dst < 10:
		return []stf.Packet{{Port: uint32(dst), Frame: f}}
	case dst == 10:
		var out []stf.Packet
		for _, r := range floodReplicas {
			f := bytes.Clone(frame)
			binary.BigEndian.PutUint16(f[10:], r.Instance)
			out = append(out, stf.Packet{Port: r.Port, Frame: f})
		}
		return out
	case dst < 30:
		binary.BigEndian.PutUint16(f[12:], binary.BigEndian.Uint16(f[18:]))
		return []stf.Packet{{Port: uint32(dst - 20), Frame: slices.Delete(f, 14, 20)}}
	case dst < 40:
		short := binary.BigEndian.AppendUint32(nil, count)
		short = append(short, f[12:14]...)
		binary.BigEndian.PutUint16(f[12:], 0x88B5)
		return []stf.Packet{{Port: uint32(dst - 30), Frame: slices.Insert(f, 14, short...)}}
	default:
		long := make([]byte, 512)
		long[255], long[509] = 1, 2
		copy(long[510:], f[12:14])
		binary.BigEndian.PutUint16(f[12:], 0x88B6)
		return []stf.Packet{{Port: uint32(dst - 40), Frame: slices.Insert(f, 14, long...)}}
	}
}

// TestHooks sends frames through every combination of kinds of ports. Each frame must leave as
// expected, and the program's register must count it once.
func TestHooks(t *testing.T) {
	ports := []uint32{1, 2, 3, 4}
	for _, c := range []struct {
		name   string
		opts   Options
		hidden []uint32
		xdp    int
	}{
		{"tc", Options{Hook: HookTC}, nil, 0},
		{"auto", Options{}, nil, 0},
		{"xdp", Options{Hook: HookXDP}, nil, 4},
		{"mixed", Options{Hook: HookXDP}, []uint32{2, 4}, 2},
		{"clsact", Options{Hook: HookTC, clsact: true}, nil, 0},
		{"xdp-clsact", Options{Hook: HookXDP, clsact: true}, []uint32{3}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			cables := newCables(t, ports, c.hidden...)
			var log bytes.Buffer
			c.opts.CPUPort = 510
			c.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
			d, err := newDevice(c.opts)
			check(t, err)
			defer d.Close()
			check(t, d.Commit(readProgram(t, "testdata/hooks.json")))
			for _, n := range ports {
				check(t, d.AddPort(target.Port{Number: n, Iface: fmt.Sprintf("s%d", n)}))
			}
			setHooksEntries(t, d.Pipeline(), ports)
			atXDP := 0
			for _, q := range d.ports {
				if q.At == HookXDP {
					atXDP++
				}
			}
			if atXDP != c.xdp {
				t.Fatalf("%d ports are at XDP, not %d: %s", atXDP, c.xdp, log.String())
			}
			if told := strings.Count(log.String(), "level=WARN"); told != len(c.hidden) {
				t.Errorf("%d of %d ports whose peer is out of reach were told of: %s", told,
					len(c.hidden), log.String())
			}
			count := uint32(0)
			try := func(in uint32, frame []byte) {
				t.Helper()
				count++
				want := hooksWant(frame, count)
				if in == c.opts.CPUPort {
					check(t, d.PacketOut(frame))
				} else {
					_, err := unix.Write(cables.sockets[in], frame)
					check(t, err)
				}
				got := cables.take(t, len(want))
				if show(got) != show(want) {
					t.Fatalf("by port %d: %x\ncame %s\n not %s", in, frame[:min(len(frame), 64)],
						show(got), show(want))
				}
			}
			for _, in := range ports {
				for _, size := range []int{60, 700, 8000} {
					for _, out := range ports {
						try(in, hooksFrame(byte(out), size))
						try(in, hooksFrame(byte(out), size, 5))
						try(in, hooksFrame(byte(out), size, 5, 6))
						try(in, hooksFrame(byte(30+out), size))
						try(in, hooksFrame(byte(40+out), size))
						short := hooksFrame(byte(20+out), size)
						binary.BigEndian.PutUint16(short[12:], 0x88B5)
						try(in, short)
					}
					try(in, hooksFrame(10, size))
					try(in, hooksFrame(10, size, 9))
				}
			}
			for _, size := range []int{14, 15, 63, 64, 65, 1500, 3700, 4000, 8192, 9014} {
				try(c.opts.CPUPort, hooksFrame(2, size))
				try(c.opts.CPUPort, hooksFrame(10, size))
			}
			for _, size := range []int{0, 13, 16001} {
				if err := d.PacketOut(make([]byte, size)); !errors.Is(err, target.ErrInvalid) {
					t.Errorf("a packet-out of %d bytes: %v", size, err)
				}
			}
			cells, err := d.Pipeline().ReadRegisters("HooksIngress.seen", 0, 1)
			check(t, err)
			if n := binary.BigEndian.Uint32(cells[0]); n != count {
				t.Errorf("%d frames were counted %d times", count, n)
			}
			if lost := d.PortMap.Lost(); lost > 0 {
				t.Errorf("%d frames were lost between XDP and tc", lost)
			}
			if passed := d.PortMap.Passed(); (passed > 0) != (c.xdp > 0) {
				t.Errorf("XDP has handed %d frames to tc", passed)
			}
		})
	}
}

// TestShorterThanItsTransport removes headers, so that a frame ends before the transport header's
// offset, which the kernel recorded when a packet socket sent the frame. tc cannot truncate a frame
// that far, so it pads the frame with zeros. XDP does not pad it.
func TestShorterThanItsTransport(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			cables := newCables(t, []uint32{1, 2})
			startHooks(t, opts, 1, 2)
			for in, fd := range cables.sockets {
				l, err := netlink.LinkByName(fmt.Sprintf("h%d", in))
				check(t, err)
				// The kernel's code that locates the transport header assumes that an IPv4 packet
				// follows the addresses.
				to := &unix.SockaddrLinklayer{Protocol: unix.ETH_P_IP >> 8, Halen: 6,
					Ifindex: l.Attrs().Index}
				for _, size := range []int{34, 37, 40, 41, 90} {
					frame := hooksFrame(22, size)
					frame[14], frame[23] = 0x45, 17
					binary.BigEndian.PutUint16(frame[16:], uint16(size-14))
					binary.BigEndian.PutUint16(frame[12:], 0x88B5)
					want := hooksWant(frame, 0)
					if opts.Hook == HookTC {
						for len(want[0].Frame) < 34 {
							want[0].Frame = append(want[0].Frame, 0)
						}
					}
					check(t, unix.Sendto(fd, frame, 0, to))
					if got := cables.take(t, 1); show(got) != show(want) {
						t.Errorf("of %d bytes by port %d came\n    %s\nnot %s", size, in, show(got),
							show(want))
					}
				}
			}
		})
	}
}

package udptest

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Space is a network namespace that is removed at the end of the test.
type Space struct {
	t      testing.TB
	handle netns.NsHandle
	Link   *netlink.Handle
}

// Check fails and ends the test if err is not nil.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NewSpace creates a network namespace whose loopback interface is up.
func NewSpace(t testing.TB) *Space {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	s := &Space{t: t}
	made := make(chan error, 1)
	go func() {
		// The goroutine never unlocks the thread, so the thread ends with it.
		runtime.LockOSThread()
		var err error
		s.handle, err = netns.New()
		made <- err
	}()
	Check(t, <-made)
	var err error
	s.Link, err = netlink.NewHandleAt(s.handle, unix.NETLINK_ROUTE)
	Check(t, err)
	t.Cleanup(func() { s.Link.Close(); s.handle.Close() })
	lo, err := s.Link.LinkByName("lo")
	Check(t, err)
	Check(t, s.Link.LinkSetUp(lo))
	return s
}

// Do runs f on a thread in the namespace. Sockets that f opens belong to the namespace. If f
// returns an error, the test ends.
func (s *Space) Do(f func() error) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(s.handle)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	Check(s.t, <-done)
}

// Set writes sysctl settings of the namespace. Their names are paths under /proc/sys/net.
func (s *Space) Set(settings map[string]string) {
	s.t.Helper()
	s.Do(func() error {
		for path, value := range settings {
			if err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value),
				0); err != nil {
				return err
			}
		}
		return nil
	})
}

// Cable connects two namespaces with a veth pair. Each end gets a name and addresses. Both ends are
// up.
func Cable(t testing.TB, a *Space, aName string, aAddrs []string, b *Space, bName string,
	bAddrs []string) {
	t.Helper()
	Check(t, a.Link.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: aName},
		PeerName: bName, PeerNamespace: netlink.NsFd(int(b.handle))}))
	for _, end := range []struct {
		s     *Space
		name  string
		addrs []string
	}{{a, aName, aAddrs}, {b, bName, bAddrs}} {
		l, err := end.s.Link.LinkByName(end.name)
		Check(t, err)
		for _, addr := range end.addrs {
			parsed, err := netlink.ParseAddr(addr)
			Check(t, err)
			parsed.Flags = unix.IFA_F_NODAD
			Check(t, end.s.Link.AddrAdd(l, parsed))
		}
		Check(t, end.s.Link.LinkSetUp(l))
	}
}

// MAC returns an interface's Ethernet address.
func (s *Space) MAC(iface string) net.HardwareAddr {
	s.t.Helper()
	l, err := s.Link.LinkByName(iface)
	Check(s.t, err)
	return l.Attrs().HardwareAddr
}

// Index returns an interface's index.
func (s *Space) Index(iface string) int {
	s.t.Helper()
	l, err := s.Link.LinkByName(iface)
	Check(s.t, err)
	return l.Attrs().Index
}

// Sender opens a packet socket at an interface. It returns a function that sends frames unchanged
// through the interface.
func (s *Space) Sender(iface string) func(frames ...[]byte) {
	s.t.Helper()
	fd := s.socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	Check(s.t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: s.Index(iface)}))
	return func(frames ...[]byte) {
		s.t.Helper()
		for _, f := range frames {
			// EINVAL means that the frame is too short
			if _, err := unix.Write(fd, f); err != nil && err != unix.EINVAL {
				s.t.Fatal(err)
			}
		}
	}
}

func (s *Space) socket(family, kind, protocol int) (fd int) {
	s.t.Helper()
	s.Do(func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC,
			protocol)
		return err
	})
	s.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// Recorder records the packets that a namespace receives.
type Recorder struct {
	mu  sync.Mutex
	got [][]byte
}

// UDP records all UDP packets that the namespace's own IPv4 stack accepts. They are reassembled and
// unwrapped, and include their IPv4 headers.
func (s *Space) UDP() *Recorder {
	s.t.Helper()
	return s.record(s.socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP))
}

// Frames records all frames that arrive at an interface.
func (s *Space) Frames(iface string) *Recorder {
	s.t.Helper()
	fd := s.socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	Check(s.t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	Check(s.t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: s.Index(iface)}))
	return s.record(fd)
}

func (s *Space) record(fd int) *Recorder {
	Check(s.t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	Check(s.t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Usec: 10000}))
	r := &Recorder{}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 1<<16)
		for {
			n, _, err := unix.Recvfrom(fd, buffer, 0)
			if err == nil {
				r.mu.Lock()
				r.got = append(r.got, slices.Clone(buffer[:n]))
				r.mu.Unlock()
				continue
			}
			select {
			case <-end:
				return
			default:
			}
		}
	}()
	s.t.Cleanup(func() { close(end); <-ended })
	return r
}

// Take returns the packets that were recorded since the last call.
func (r *Recorder) Take() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got = nil
	return got
}

// Settle waits until everything that was sent before has arrived or is lost. It calls probe
// repeatedly until found recognizes probe's packet, and then waits some more time. It returns the
// other recorded packets.
func (r *Recorder) Settle(t testing.TB, probe func(), found func([]byte) bool) (got [][]byte) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		probe()
		time.Sleep(20 * time.Millisecond)
		arrived := r.Take()
		got = append(got, arrived...)
		if slices.ContainsFunc(arrived, found) {
			time.Sleep(50 * time.Millisecond)
			got = append(got, r.Take()...)
			return slices.DeleteFunc(got, found)
		}
		if time.Now().After(end) {
			t.Fatal("a packet that nobody should stop does not arrive within 10 s")
		}
	}
}

// Here returns the network namespace of the calling thread. The thread must stay in this namespace
// during the test.
func Here(t testing.TB) *Space {
	t.Helper()
	s := &Space{t: t}
	var err error
	s.handle, err = netns.Get()
	Check(t, err)
	s.Link, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	Check(t, err)
	t.Cleanup(func() { s.Link.Close(); s.handle.Close() })
	return s
}

// RingSender does what Sender does, but sends through a kernel ring (PACKET_TX_RING). Only the
// frames' Ethernet header is then in their linear part, and the rest of the frame is in pages.
// Frames have at most 4,000 bytes.
func (s *Space) RingSender(iface string) func(frames ...[]byte) {
	s.t.Helper()
	const slot, slots, header = 4096, 16, 32 // struct tpacket2_hdr, followed by the frame
	fd := s.socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	Check(s.t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2))
	Check(s.t, unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_TX_RING,
		&unix.TpacketReq{Block_size: slot * slots, Block_nr: 1, Frame_size: slot, Frame_nr: slots}))
	ring, err := unix.Mmap(fd, 0, slot*slots, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	Check(s.t, err)
	s.t.Cleanup(func() { _ = unix.Munmap(ring) })
	Check(s.t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: s.Index(iface)}))
	at := 0
	return func(frames ...[]byte) {
		s.t.Helper()
		for _, f := range frames {
			r := ring[at*slot:]
			status := (*uint32)(unsafe.Pointer(&r[0]))
			for end := time.Now().Add(5 * time.Second); atomic.LoadUint32(
				status) != unix.TP_STATUS_AVAILABLE; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					s.t.Fatalf("the ring is full: %#x", atomic.LoadUint32(status))
				}
			}
			copy(r[header:slot], f)
			binary.NativeEndian.PutUint32(r[4:], uint32(len(f)))
			atomic.StoreUint32(status, unix.TP_STATUS_SEND_REQUEST)
			if err := unix.Send(fd, nil, 0); err != nil {
				s.t.Fatal(err)
			}
			at = (at + 1) % slots
		}
	}
}

// Offload describes the work that a frame leaves to the kernel or the network card. It is struct
// virtio_net_hdr (VIRTIO 1.3, 5.1.6), which precedes a frame with PACKET_VNET_HDR. Lengths and
// offsets are in bytes.
type Offload struct {
	Flags uint8 // NeedsChecksum or 0
	// SplitTCP4 or another Split constant; 0 if the frame is one packet
	Split                          uint8
	Headers, Segment, Start, Place uint16
}

// The kinds of work that an Offload can describe.
const (
	// compute the checksum of the bytes from Start on and write it at Start + Place
	NeedsChecksum = 1
	SplitTCP4     = 1
	SplitUDP      = 3 // split into IP fragments
	SplitTCP6     = 4
	SplitUDPL4    = 5 // split into UDP datagrams
)

// Becoming prepares a frame for which the kernel computes a checksum of the given value. The
// checksum covers the bytes from start on, and is at start + place. Becoming chooses the two bytes
// at free, which must be an even number of bytes after start.
func Becoming(frame []byte, start, place, free int, value uint16) ([]byte, Offload) {
	frame[free], frame[free+1] = 0, 0
	sum := uint32(^value)
	rest := frame[start:]
	if len(rest)%2 != 0 {
		rest = append(slices.Clone(rest), 0)
	}
	for i := 0; i < len(rest); i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(rest[i:])) // subtract each other word
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(frame[free:], uint16(sum))
	return frame, Offload{Flags: NeedsChecksum, Start: uint16(start), Place: uint16(place - start)}
}

// OffloadSender opens a packet socket at an interface. It returns a function that sends a frame
// with unfinished work. This function returns the kernel's error.
func (s *Space) OffloadSender(iface string) func(o Offload, frame []byte) error {
	s.t.Helper()
	fd := s.socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	Check(s.t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1))
	Check(s.t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: s.Index(iface)}))
	return func(o Offload, frame []byte) error {
		b := []byte{o.Flags, o.Split}
		for _, v := range []uint16{o.Headers, o.Segment, o.Start, o.Place} {
			b = binary.NativeEndian.AppendUint16(b, v)
		}
		_, err := unix.Write(fd, append(b, frame...))
		return err
	}
}

// FinishesFrames makes an interface complete each frame before it sends the frame. Like a driver
// without offloads, it then writes checksums and splits frames.
func (s *Space) FinishesFrames(iface string) {
	s.t.Helper()
	s.Do(func() error {
		out, err := exec.Command("ethtool", "-K", iface, "tx", "off", "tso", "off", "gso", "off").CombinedOutput()
		if err != nil {
			return fmt.Errorf("ethtool -K %s: %w: %s", iface, err, out)
		}
		return nil
	})
}

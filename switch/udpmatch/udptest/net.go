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

// Space is a network namespace that is removed with the test.
type Space struct {
	t      testing.TB
	handle netns.NsHandle
	Link   *netlink.Handle
}

// Check ends the test at an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NewSpace makes a network namespace whose loopback interface is up.
func NewSpace(t testing.TB) *Space {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	s := &Space{t: t}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
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

// Do runs f on a thread in the namespace: sockets that it opens belong to the namespace. An error
// ends the test.
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

// Set writes settings of the namespace, by their paths under /proc/sys/net.
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

// Cable connects two namespaces with a veth pair, each end with a name and addresses, and both up.
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

// Index returns an interface's number.
func (s *Space) Index(iface string) int {
	s.t.Helper()
	l, err := s.Link.LinkByName(iface)
	Check(s.t, err)
	return l.Attrs().Index
}

// Sender opens a packet socket at an interface, and returns a function that sends frames unchanged
// by it.
func (s *Space) Sender(iface string) func(frames ...[]byte) {
	s.t.Helper()
	fd := s.socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	Check(s.t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: s.Index(iface)}))
	return func(frames ...[]byte) {
		s.t.Helper()
		for _, f := range frames {
			// the frame is too short
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

// UDP records all UDP packets that the namespace's own IPv4 stack accepts, reassembled and
// unwrapped, with their IPv4 headers.
func (s *Space) UDP() *Recorder {
	s.t.Helper()
	return s.record(s.socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP))
}

// Frames records all frames that come in by an interface.
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

// Take returns the packets recorded since the last call.
func (r *Recorder) Take() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got = nil
	return got
}

// Settle waits until everything that was sent before has arrived or never will. It calls probe
// repeatedly until found recognizes probe's packet, and waits some time more. It returns the other
// recorded packets.
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

// Here returns the calling thread's network namespace. The thread must stay in it during the test.
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

// RingSender is Sender with a kernel ring (PACKET_TX_RING): only the frames' Ethernet header is in
// their linear part, and the rest is in pages. Frames have at most 4,000 bytes.
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

// Offload is the work that a frame leaves to the kernel or the network card: struct virtio_net_hdr
// (VIRTIO 1.3, 5.1.6), which precedes a frame with PACKET_VNET_HDR. Lengths and offsets are in
// bytes.
type Offload struct {
	Flags                          uint8 // NeedsChecksum
	Split                          uint8 // SplitTCP4, ...; 0: the frame is one packet
	Headers, Segment, Start, Place uint16
}

// The kinds of work in an Offload.
const (
	NeedsChecksum = 1 // the checksum of the bytes from Start on, at Start + Place
	SplitTCP4     = 1
	SplitUDP      = 3 // into fragments
	SplitTCP6     = 4
	SplitUDPL4    = 5 // into datagrams
)

// Becoming prepares a frame whose completed checksum, over the bytes from start on, has the given
// value at start + place. It chooses the two bytes at free, which must be an even number of bytes
// after start.
func Becoming(frame []byte, start, place, free int, value uint16) ([]byte, Offload) {
	frame[free], frame[free+1] = 0, 0
	sum := uint32(^value)
	rest := frame[start:]
	if len(rest)%2 != 0 {
		rest = append(slices.Clone(rest), 0)
	}
	for i := 0; i < len(rest); i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(rest[i:])) // minus each other word
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(frame[free:], uint16(sum))
	return frame, Offload{Flags: NeedsChecksum, Start: uint16(start), Place: uint16(place - start)}
}

// OffloadSender opens a packet socket at an interface and returns a function that sends a frame
// with unfinished work. The function returns the kernel's error.
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

// FinishesFrames makes an interface complete each frame before sending it, like a driver without
// offloads: it writes checksums and splits frames.
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

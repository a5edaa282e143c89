package ports

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Layout of the kernel's struct tpacket2_hdr (linux/if_packet.h). At offset 32, struct sockaddr_ll
// follows.
const (
	offStatus   = 0
	offLen      = 4
	offSnaplen  = 8
	offMac      = 12
	offVlanTCI  = 24
	offVlanTPID = 26
	offPktType  = 32 + 10 // sockaddr_ll.sll_pkttype

	statusVlanValid     = 1 << 4 // TP_STATUS_VLAN_VALID
	statusVlanTPIDValid = 1 << 6 // TP_STATUS_VLAN_TPID_VALID

	packetOutgoing = 4 // PACKET_OUTGOING
	packetLoopback = 5 // PACKET_LOOPBACK

	// size of struct virtio_net_hdr, which PACKET_VNET_HDR puts right before the frame
	vnetHeaderLen = 10
	vnetNeedsCsum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
)

// slotOverhead is an upper bound of the bytes in a ring slot before the frame: both headers, the
// virtio header, and alignment.
const slotOverhead = 128

// ringBytes is the size of one port's ring. It has 1,024 slots at the usual MTU.
const ringBytes = 2 << 20

// l2Overhead is the size of the link headers that the MTU does not include: Ethernet and two 802.1Q
// tags.
const l2Overhead = 14 + 8

// socket is a pair of packet sockets that are bound to one interface, one for each direction. It
// has the receive ring.
type socket struct {
	fd int // the receiving socket
	// The sending socket. It has no PACKET_VNET_HDR, which would require a virtio header before
	// each frame.
	txFD     int
	index    int // index of the interface
	maxFrame int // the largest frame that the interface's MTU allows
	ring     rxRing
}

// openSocket opens a socket pair. mark, if not 0, is the packet mark of its frames. It needs
// CAP_NET_RAW.
func openSocket(link *net.Interface, mark uint32) (*socket, error) {
	// The protocol is 0 until the socket is bound. Otherwise the ring would collect frames of every
	// interface before the bind.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.EPERM) {
			return nil,
				fmt.Errorf("opening a packet socket needs root or CAP_NET_RAW (run with sudo): %w",
					err)
		}
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	s := &socket{fd: fd, txFD: -1, index: link.Index, maxFrame: link.MTU + l2Overhead}
	if err := s.configure(link, mark); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) configure(link *net.Interface, mark uint32) error {
	set := func(opt, value int, name string) error {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, opt, value); err != nil {
			return fmt.Errorf("packet socket option %s: %w", name, err)
		}
		return nil
	}
	if err := set(unix.PACKET_VERSION, unix.TPACKET_V2, "PACKET_VERSION"); err != nil {
		return err
	}
	if err := set(unix.PACKET_VNET_HDR, 1, "PACKET_VNET_HDR"); err != nil {
		return err
	}
	// Linux has this option since 4.20. The ring also recognizes outgoing frames without it.
	_ = set(unix.PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING")
	if err := s.ring.open(s.fd, s.maxFrame); err != nil {
		return err
	}
	// Several switches may run on one machine, with real links between them. So sockets must not
	// share anything (no PACKET_FANOUT).
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL),
		Ifindex: link.Index}); err != nil && !errors.Is(err, unix.ENETDOWN) {
		return fmt.Errorf("binding the packet socket: %w", err)
	}
	mreq := unix.PacketMreq{Ifindex: int32(link.Index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
		&mreq); err != nil {
		return fmt.Errorf("promiscuous mode: %w", err)
	}
	// With protocol 0, this socket never receives anything.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening a packet socket: %w", err)
	}
	s.txFD = fd
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	if mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
			return fmt.Errorf("marking the frames that are sent: %w", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil &&
		!errors.Is(err, unix.ENETDOWN) {
		return fmt.Errorf("binding the packet socket: %w", err)
	}
	return nil
}

// overruns returns how many frames the kernel has dropped since the last call because the ring was
// full.
func (s *socket) overruns() uint64 {
	st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(st.Drops)
}

func (s *socket) close() {
	s.ring.close()
	_ = unix.Close(s.fd)
	if s.txFD >= 0 {
		_ = unix.Close(s.txFD)
	}
}

func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// rxRing is a TPACKET_V2 receive ring. The kernel fills its slots, and the packet thread empties
// them in the same order.
type rxRing struct {
	mem   []byte
	size  int // size of a slot in bytes, a power of two
	count int
	next  int
}

func (r *rxRing) open(fd, maxFrame int) error {
	r.size = 1 << bits.Len(uint(maxFrame+slotOverhead-1))
	r.count = max(ringBytes/r.size, 64)
	block := max(r.size, 1<<16)
	req := unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(r.size * r.count / block),
		Frame_size: uint32(r.size), Frame_nr: uint32(r.count),
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING,
		&req); err != nil {
		return fmt.Errorf("a receive ring of %d slots of %d bytes: %w", r.count, r.size, err)
	}
	mem, err := unix.Mmap(fd, 0, r.size*r.count, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the receive ring: %w", err)
	}
	r.mem = mem
	return nil
}

func (r *rxRing) close() {
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
		r.mem = nil
	}
}

// slot is the space for one frame in the ring.
type slot struct{ base unsafe.Pointer }

func (r *rxRing) status() *uint32 {
	return (*uint32)(unsafe.Pointer(
		&r.mem[r.next*r.size+offStatus]))
}

// peek returns the next filled slot. If there is none, the slot's base is nil.
func (r *rxRing) peek() slot {
	if atomic.LoadUint32(r.status())&unix.TP_STATUS_USER == 0 {
		return slot{}
	}
	return slot{unsafe.Pointer(&r.mem[r.next*r.size])}
}

// release returns the slot of the last peek to the kernel.
func (r *rxRing) release() {
	atomic.StoreUint32(r.status(), unix.TP_STATUS_KERNEL)
	r.next++
	if r.next == r.count {
		r.next = 0
	}
}

type verdict int

const (
	frameGood verdict = iota
	frameOversize
	frameForged // the frame requests a checksum at an offset that has none
	frameOwn
)

func (s slot) wireLen() int { return int(u32(s.base, offLen)) }

// frame returns the frame as it was on the wire, with its 802.1Q tag and its transport checksum.
func (s slot) frame(maxFrame int) ([]byte, verdict) {
	if t := *(*uint8)(unsafe.Add(s.base, offPktType)); t == packetOutgoing || t == packetLoopback {
		return nil, frameOwn
	}
	length := int(u32(s.base, offLen))
	if length > maxFrame || int(u32(s.base, offSnaplen)) != length {
		return nil, frameOversize
	}
	mac := uintptr(u16(s.base, offMac))
	vnet := unsafe.Add(s.base, mac-vnetHeaderLen)
	if *(*uint8)(vnet)&vnetNeedsCsum != 0 {
		f, start, offset := unsafe.Slice((*byte)(unsafe.Add(s.base, mac)), length), int(u16(vnet, 6)), int(u16(vnet, 8))
		if !unfinished(f, start, offset) {
			return nil, frameForged
		}
		completeChecksum(f, start, offset)
	}
	status := u32(s.base, offStatus)
	if status&statusVlanValid == 0 || length < 12 {
		return unsafe.Slice((*byte)(unsafe.Add(s.base, mac)), length), frameGood
	}
	tpid := uint16(unix.ETH_P_8021Q)
	if status&statusVlanTPIDValid != 0 {
		tpid = u16(s.base, offVlanTPID)
	}
	// The addresses move four bytes forward, over the virtio header, which is not needed any more.
	f := unsafe.Slice((*byte)(unsafe.Add(s.base, mac-4)), length+4)
	copy(f[:12], f[4:16])
	binary.BigEndian.PutUint16(f[12:], tpid)
	binary.BigEndian.PutUint16(f[14:], u16(s.base, offVlanTCI))
	return f, frameGood
}

package notify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/keys"
)

const (
	// receiveBuffer is the requested size of the kernel's buffer for datagrams that are not read
	// yet; the kernel gives net.core.rmem_max at most. What does not fit is lost, and counted.
	receiveBuffer = 4 << 20
	// batch is how many one system call may read.
	batch = 64
)

// socket is the UDP socket that notifications come to.
type socket struct {
	conn *net.UDPConn
	pc   *ipv4.PacketConn
	in   []ipv4.Message
	// overflown is how many the kernel has had no room for, as it said last.
	overflown uint32
	toldLost  time.Time // when keys were last read because of it
}

// openSocket opens one at a port; 0: any.
func openSocket(local netip.Addr, port uint16) (*socket, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, port)))
	if err != nil {
		return nil, fmt.Errorf("opening the socket for notifications: %w", err)
	}
	_ = conn.SetReadBuffer(receiveBuffer)
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1) })
	}
	s := &socket{conn: conn, pc: ipv4.NewPacketConn(conn)}
	for range batch {
		// One byte more than the longest, so that one that is too long does not look right.
		s.in = append(s.in, ipv4.Message{OOB: make([]byte, unix.CmsgSpace(4)),
			Buffers: [][]byte{make([]byte, wire.Profile8192.PacketBytes()+1)}})
	}
	return s, nil
}

func (s *socket) close() { s.conn.Close() }

func (s *socket) local() netip.AddrPort { return unmap(s.conn.LocalAddr().(*net.UDPAddr).AddrPort()) }

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// receive processes a socket's datagrams until it is closed. No datagram makes it wait, or write to
// the log.
func (r *Receiver) receive(s *socket) {
	for {
		n, err := s.pc.ReadBatch(s.in, 0)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(time.Millisecond) // a socket's errors are transient; they must not make a busy loop
			continue
		}
		for _, m := range s.in[:n] {
			if from, ok := m.Addr.(*net.UDPAddr); ok {
				r.take(unmap(from.AddrPort()), m.Buffers[0][:m.N])
			}
			s.overflow(r, m.OOB[:m.NN])
		}
	}
}

// Outcomes of a datagram.
const (
	told       = "told"
	badSource  = "source"  // it is from no chain's service address, or of another chain's key
	badLength  = "length"  // ... or its length, or its value's, is not that of the chain's packets
	badOp      = "op"      // it is no NOTIFY
	badContent = "content" // its content is not a NOTIFY's
	badKey     = "key"     // nobody follows the key
	overflown  = "lost"    // the kernel had no room for it
)

var results = []string{told, badSource, badLength, badOp, badContent, badKey, overflown}

// take takes a datagram.
func (r *Receiver) take(from netip.AddrPort, b []byte) {
	result := r.judge(from, b)
	r.count.results[result].Inc()
	if (result == badSource || result == badLength) && !r.doubted.Load() {
		r.doubted.Store(true) // maybe chains are others by now: run looks when it asks next
	}
}

func (r *Receiver) judge(from netip.AddrPort, b []byte) (result string) {
	source, ok := r.chains.Load().byAddr[from]
	if !ok {
		return badSource
	}
	var p wire.Packet
	switch err := p.Unmarshal(b, source.profile); {
	case errors.Is(err, wire.ErrOp):
		return badOp
	case err != nil:
		return badLength
	case p.Op != wire.Notify:
		return badOp
	case p.Key.Chain() != source.chain:
		return badSource
	case p.Version == 0 || p.Status != wire.OK || p.Session != 0 || p.Request != 0:
		return badContent
	}
	n := keys.News{Key: p.Key, Version: p.Version, Found: !p.Tombstone}
	if n.Found {
		n.Value = slices.Clone(p.Value)
	}
	if !r.tell(n) {
		return badKey
	}
	return told
}

// overflow reads the kernel's count of datagrams that it had no room for. Reads find what those
// said, and a flood must not cause too many of them.
func (s *socket) overflow(r *Receiver, oob []byte) {
	if len(oob) == 0 {
		return
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SO_RXQ_OVFL || len(m.Data) < 4 {
			continue
		}
		n := binary.NativeEndian.Uint32(m.Data)
		if n == s.overflown {
			return
		}
		r.count.results[overflown].Add(float64(n - s.overflown))
		s.overflown = n
		if time.Since(s.toldLost) >= r.pace.lost {
			s.toldLost = time.Now()
			r.hint(r.helpedKeys())
		}
	}
}

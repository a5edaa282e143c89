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
	// receiveBuffer is the requested size, in bytes, of the kernel's buffer for datagrams that were
	// not read yet. The kernel grants at most net.core.rmem_max. Datagrams that do not fit are
	// lost, and counted.
	receiveBuffer = 4 << 20
	// batch is the maximum number of datagrams that one system call reads.
	batch = 64
)

// socket is the UDP socket that receives notifications.
type socket struct {
	conn *net.UDPConn
	pc   *ipv4.PacketConn
	in   []ipv4.Message
	// overflown is the number of dropped datagrams that the kernel reported last.
	overflown uint32
	toldLost  time.Time // time when keys were last read because of lost datagrams
}

// openSocket opens a socket at a port. Port 0 means any free port.
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
		// The buffer is one byte longer than the longest valid datagram, so that a longer datagram
		// is not mistaken for a valid one.
		s.in = append(s.in, ipv4.Message{OOB: make([]byte, unix.CmsgSpace(4)),
			Buffers: [][]byte{make([]byte, wire.Profile8192.PacketBytes()+1)}})
	}
	return s, nil
}

func (s *socket) close() { s.conn.Close() }

func (s *socket) local() netip.AddrPort { return unmap(s.conn.LocalAddr().(*net.UDPAddr).AddrPort()) }

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// receive processes the datagrams of a socket until the socket is closed. A datagram can never make
// it block or write to the log.
func (r *Receiver) receive(s *socket) {
	for {
		n, err := s.pc.ReadBatch(s.in, 0)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// errors of a socket are transient; the pause avoids a busy loop
			time.Sleep(time.Millisecond)
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

// These are the outcomes of a datagram, for metrics.
const (
	told       = "told"
	badSource  = "source"  // it does not come from a chain's service address, or the key belongs to another chain
	badLength  = "length"  // the length of the datagram or of its value does not match the chain's packets
	badOp      = "op"      // the op is not NOTIFY
	badContent = "content" // another field of the packet is not valid for a NOTIFY
	badKey     = "key"     // the key has no followers
	overflown  = "lost"    // the kernel dropped the datagram, because its buffer was full
)

var results = []string{told, badSource, badLength, badOp, badContent, badKey, overflown}

// take processes a datagram.
func (r *Receiver) take(from netip.AddrPort, b []byte) {
	result := r.judge(from, b)
	r.count.results[result].Inc()
	if (result == badSource || result == badLength) && !r.doubted.Load() {
		// The addresses of the chains may have changed, so run requests the chains again with its
		// next request.
		r.doubted.Store(true)
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

// overflow reads how many datagrams the kernel has dropped because its buffer was full. It then
// triggers reads that find the lost changes. It limits the rate of such reads during a flood.
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

package client

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
)

// batch is the number of packets that one system call may send or receive.
const batch = 64

// socket is an unconnected UDP socket that sends and receives in batches (sendmmsg, recvmmsg). It
// is unconnected because a switch answers from the chain's service address even if a request was
// sent to its own address.
type socket struct {
	conn *net.UDPConn
	pc   *ipv4.PacketConn

	in       []ipv4.Message
	received []received
	prompt   prompt

	out       []ipv4.Message
	addresses map[netip.AddrPort]*net.UDPAddr // caches the converted addresses

	sendError atomic.Pointer[sendError]
}

type received struct {
	from    netip.AddrPort
	payload []byte
}

type sendError struct {
	err error
	at  time.Time
}

func openSocket(local netip.AddrPort, profile wire.Profile) (*socket, error) {
	var laddr *net.UDPAddr
	if local.IsValid() {
		laddr = net.UDPAddrFromAddrPort(local)
	}
	conn, err := net.ListenUDP("udp4", laddr)
	if err != nil {
		return nil, fmt.Errorf("opening the client's UDP socket: %w", err)
	}
	// Large buffers help with bursts of replies. The operating system may allow less.
	_ = conn.SetReadBuffer(4 << 20)
	_ = conn.SetWriteBuffer(4 << 20)
	s := &socket{conn: conn, pc: ipv4.NewPacketConn(conn), addresses: make(map[netip.AddrPort]*net.UDPAddr)}
	for range batch {
		// The buffer has one byte more than a packet, so that a longer datagram is not mistaken for
		// a packet.
		s.in = append(s.in, ipv4.Message{Buffers: [][]byte{make([]byte, profile.PacketBytes()+1)}})
		s.out = append(s.out, ipv4.Message{Buffers: make([][]byte, 1)})
	}
	if err := s.prompt.open(conn, profile.PacketBytes()+1); err != nil {
		conn.Close()
		return nil, fmt.Errorf("opening the client's UDP socket: %w", err)
	}
	return s, nil
}

func (s *socket) close() error { return s.conn.Close() }

func (s *socket) local() netip.AddrPort { return unmap(s.conn.LocalAddr().(*net.UDPAddr).AddrPort()) }

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// send sends packets, and returns the calls whose packets the system has refused. A refused packet
// counts as lost: the machine will send it again. Only one goroutine may call send at a time.
func (s *socket) send(sends []calls.Send) (refused []calls.CallID) {
	if len(sends) == 1 {
		if _, err := s.conn.WriteToUDPAddrPort(sends[0].Packet, sends[0].To); err != nil {
			s.failed(err)
			refused = append(refused, sends[0].Call)
		}
		return refused
	}
	for len(sends) > 0 {
		n := min(len(sends), batch)
		for i := range n {
			s.out[i].Buffers[0] = sends[i].Packet
			s.out[i].Addr = s.address(sends[i].To)
		}
		sent, err := s.pc.WriteBatch(s.out[:n], 0)
		if err != nil {
			s.failed(err)
			if errors.Is(err, net.ErrClosed) {
				return refused
			}
			sent = max(sent, 0)
			if sent < n {
				refused = append(refused, sends[sent].Call) // the system refused this packet
			}
			sent++
		}
		sends = sends[min(sent, n):]
	}
	return refused
}

func (s *socket) address(a netip.AddrPort) *net.UDPAddr {
	u := s.addresses[a]
	if u == nil {
		u = net.UDPAddrFromAddrPort(a)
		s.addresses[a] = u
	}
	return u
}

func (s *socket) failed(err error) { s.sendError.Store(&sendError{err, time.Now()}) }

// failure returns the error of the last packet that could not be sent, if that was within the last
// second. Otherwise it returns nil.
func (s *socket) failure() error {
	if f := s.sendError.Load(); f != nil && time.Since(f.at) < time.Second {
		return f.err
	}
	return nil
}

// receive waits for packets. They are valid until the next call. ok is false when the socket is
// closed.
func (s *socket) receive() (packets []received, ok bool) {
	for {
		n, err := s.pc.ReadBatch(s.in, 0)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, false
		case err != nil:
			// Errors of an unconnected socket are temporary. The sleep avoids a busy loop.
			time.Sleep(time.Millisecond)
			continue
		}
		s.received = s.received[:0]
		for _, m := range s.in[:n] {
			s.received = append(s.received, received{unmap(m.Addr.(*net.UDPAddr).AddrPort()), m.Buffers[0][:m.N]})
		}
		return s.received, true
	}
}

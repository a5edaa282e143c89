package devnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/netcraq/netcraq/api/wire"
)

// maxLoopbacks is the maximum number of networks that use Loopback on this machine at once.
const maxLoopbacks = 64

// maxDatagram is a size in bytes that no request exceeds.
const maxDatagram = 4096

// Loopback is the network's host for the programs of this machine. It owns the block of addresses
// 127.78.B.0/24, and listens at the protocol's UDP port of each address that the network answers
// to. A datagram that a program sends there enters the network as a frame from the program's own
// address, 127.0.0.1. A frame that the network sends to 127.0.0.1 leaves as a datagram from the
// address that answered. So the shipped clients reach these switches in the same way as the
// switches of a real network.
type Loopback struct {
	block   byte
	sockets map[netip.Addr]*net.UDPConn
	ended   sync.WaitGroup
}

// ListenLoopback reserves a free block of addresses, and listens at the addresses with the given
// last bytes.
func ListenLoopback(last ...byte) (*Loopback, error) {
	for block := range maxLoopbacks {
		l := &Loopback{block: byte(67 + block), sockets: map[netip.Addr]*net.UDPConn{}}
		err := l.listen(last)
		if err == nil {
			return l, nil
		}
		l.Close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("all of 127.78.67.0/24 to 127.78.%d.0/24 are in use at UDP port %d", 66+maxLoopbacks, wire.Port)
}

func (l *Loopback) listen(last []byte) error {
	for _, b := range last {
		a := l.Addr(b)
		s, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, wire.Port)))
		if err != nil {
			return err
		}
		l.sockets[a] = s
	}
	return nil
}

// Addr returns the address of the block with the given last byte.
func (l *Loopback) Addr(last byte) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 78, l.block, last})
}

// Host returns the address from which this machine's programs send.
func (l *Loopback) Host() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

// Serve passes datagrams to a network until Close. The datagrams enter the network by a port, with
// a MAC address.
func (l *Loopback) Serve(n *Network, at Port, mac net.HardwareAddr) {
	for a, s := range l.sockets {
		l.ended.Go(func() { l.serve(n, at, [6]byte(mac), a, s) })
	}
}

func (l *Loopback) serve(n *Network, at Port, mac [6]byte, a netip.Addr, s *net.UDPConn) {
	buf := make([]byte, maxDatagram)
	for {
		size, from, err := s.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// a client that has ended can cause this error, because an earlier answer could not be
		// delivered
		if err != nil {
			continue
		}
		f := wire.Frame{Src: from, Dst: netip.AddrPortFrom(a, wire.Port), EthernetSrc: mac}
		if frame, err := f.AppendTo(nil, buf[:size]); err == nil {
			n.Inject(at, frame)
		}
	}
}

// Send sends a frame that has left the network to the program to which it is addressed. It drops
// frames that are not datagrams, and frames whose source is not an address of this Loopback.
func (l *Loopback) Send(frame []byte) {
	f, payload, err := wire.ParseFrame(frame)
	if err != nil {
		return
	}
	if s := l.sockets[f.Src.Addr()]; s != nil {
		// an error is normal if the program has ended
		_, _ = s.WriteToUDPAddrPort(slices.Clone(payload), f.Dst)
	}
}

// Close closes the sockets.
func (l *Loopback) Close() {
	for _, s := range l.sockets {
		s.Close()
	}
	l.ended.Wait()
}

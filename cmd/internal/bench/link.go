package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
)

// link is a worker's socket.
type link interface {
	// send sends packets. The kernel may drop packets if its buffer is full, just as the network
	// may.
	send(sends []calls.Send) error
	// receive waits about as long as wait for packets, and calls take for each packet.
	receive(wait time.Duration, take func(from netip.AddrPort, payload []byte)) error
	close()
}

const (
	batch = 64
	// coarse is the maximum delay of a worker's retransmission. Setting an exact deadline before
	// each receive would cost more than the query.
	coarse = 5 * time.Millisecond
	buffer = 4 << 20 // socket buffer size in bytes; the system may allow less
)

// batchLink sends and receives up to batch packets in one system call.
type batchLink struct {
	conn      *net.UDPConn
	pc        *ipv4.PacketConn
	in, out   []ipv4.Message
	addresses map[netip.AddrPort]*net.UDPAddr
	deadline  time.Time
}

func newBatchLink(profile wire.Profile) (*batchLink, error) {
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, fmt.Errorf("opening a UDP socket: %w", err)
	}
	_ = conn.SetReadBuffer(buffer)
	_ = conn.SetWriteBuffer(buffer)
	l := &batchLink{conn: conn, pc: ipv4.NewPacketConn(conn), addresses: make(map[netip.AddrPort]*net.UDPAddr)}
	for range batch {
		l.in = append(l.in, ipv4.Message{Buffers: [][]byte{make([]byte, profile.PacketBytes()+1)}})
		l.out = append(l.out, ipv4.Message{Buffers: make([][]byte, 1)})
	}
	return l, nil
}

func (l *batchLink) close() { _ = l.conn.Close() }

func (l *batchLink) send(sends []calls.Send) error {
	for len(sends) > 0 {
		n := min(len(sends), batch)
		for i := range n {
			to := l.addresses[sends[i].To]
			if to == nil {
				to = net.UDPAddrFromAddrPort(sends[i].To)
				l.addresses[sends[i].To] = to
			}
			l.out[i].Buffers[0], l.out[i].Addr = sends[i].Packet, to
		}
		sent, err := l.pc.WriteBatch(l.out[:n], 0)
		if err != nil {
			if !errors.Is(err, unix.ENOBUFS) {
				return fmt.Errorf("sending to %v: %w", sends[max(sent, 0)].To, err)
			}
			sent = max(sent, 0) + 1
		}
		sends = sends[sent:]
	}
	return nil
}

func (l *batchLink) receive(wait time.Duration, take func(netip.AddrPort, []byte)) error {
	now := time.Now()
	if at := now.Add(max(wait, 0) + coarse/2); !l.deadline.After(now) || at.Before(l.deadline.Add(-coarse)) {
		if err := l.conn.SetReadDeadline(at); err != nil {
			return fmt.Errorf("setting the deadline of a receive: %w", err)
		}
		l.deadline = at
	}
	n, err := l.pc.ReadBatch(l.in, 0)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.deadline = time.Time{}
			return nil
		}
		return fmt.Errorf("receiving: %w", err)
	}
	for _, m := range l.in[:n] {
		from := m.Addr.(*net.UDPAddr).AddrPort()
		take(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), m.Buffers[0][:m.N])
	}
	return nil
}

// blockingLink is a socket without Go's network poller: a thread sends one packet and blocks until
// the next one arrives.
type blockingLink struct {
	fd  int
	buf []byte
}

func newBlockingLink(profile wire.Profile) (*blockingLink, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a UDP socket: %w", err)
	}
	timeout := unix.NsecToTimeval(int64(coarse))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("setting a UDP socket's receive timeout: %w", err)
	}
	return &blockingLink{fd: fd, buf: make([]byte, profile.PacketBytes()+1)}, nil
}

func (l *blockingLink) close() { _ = unix.Close(l.fd) }

func (l *blockingLink) send(sends []calls.Send) error {
	for _, s := range sends {
		to := unix.SockaddrInet4{Port: int(s.To.Port()), Addr: s.To.Addr().As4()}
		if err := unix.Sendto(l.fd, s.Packet, 0, &to); err != nil && err != unix.EINTR && err != unix.ENOBUFS {
			return fmt.Errorf("sending to %v: %w", s.To, err)
		}
	}
	return nil
}

func (l *blockingLink) receive(_ time.Duration, take func(netip.AddrPort, []byte)) error {
	n, from, err := unix.Recvfrom(l.fd, l.buf, 0)
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receiving: %w", err)
	}
	if a, ok := from.(*unix.SockaddrInet4); ok {
		take(netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), l.buf[:n])
	}
	return nil
}

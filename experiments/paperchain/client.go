package paperchain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// resend is how long a client waits for an answer before it sends its request again. The paper's
// clients wait for the same time (section V).
const resend = 50 * time.Millisecond

// AskNode sends a request to a node until the answer comes, or ctx ends. It returns the answer and
// the node that gave it. Packets have no request number, so each request has a UDP port of its own.
// If a WRITE is sent again, it is executed again.
func AskNode(ctx context.Context, node netip.Addr, p Packet) (*Packet, netip.Addr, error) {
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, netip.Addr{}, fmt.Errorf("cannot open a UDP socket: %w", err)
	}
	defer conn.Close()
	want := ReadReply
	if p.Op == Write {
		want = Acknowledge
	}
	buffer := make([]byte, 2048)
	for {
		if _, err := conn.WriteToUDPAddrPort(p.Marshal(), netip.AddrPortFrom(node, Port)); err != nil {
			return nil, netip.Addr{}, fmt.Errorf("cannot send to %v: %w", node, err)
		}
		for end := time.Now().Add(resend); ; {
			conn.SetReadDeadline(end)
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if ctx.Err() != nil {
				return nil, netip.Addr{}, fmt.Errorf("%v does not answer: %w", node, context.Cause(ctx))
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, netip.Addr{}, fmt.Errorf("cannot receive the answer of %v: %w", node, err)
			}
			r := new(Packet)
			if r.Unmarshal(buffer[:n]) == nil && r.Op == want && r.Key == p.Key {
				return r, from.Addr().Unmap(), nil
			}
		}
	}
}

// SendWithTTL sends a packet that is dropped after ttl switches, and does not wait for an answer.
func SendWithTTL(node netip.Addr, p Packet, ttl int) error {
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(node, Port)))
	if err != nil {
		return fmt.Errorf("cannot open a UDP socket: %w", err)
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot set the time to live: %w", err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_TTL, ttl)
	})
	if err := errors.Join(err, set); err != nil {
		return fmt.Errorf("cannot set the time to live: %w", err)
	}
	if _, err := conn.Write(p.Marshal()); err != nil {
		return fmt.Errorf("cannot send to %v: %w", node, err)
	}
	return nil
}

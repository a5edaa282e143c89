package netchain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Client sends requests to a chain through a socket, one at a time. If a request is not answered
// for some time, Client sends it again. NetChain does not recognize retries, so it executes a
// repeated WRITE again.
type Client struct {
	Chain   []netip.Addr // addresses of the chain's switches, head first
	SeqBits int
	Resend  time.Duration // time after which an unanswered request is sent again; 0 means 50 ms

	conn *net.UDPConn
	tag  uint32 // tag of the last request
}

// Close releases the socket.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// Ask sends a request until its answer arrives, or ctx ends.
func (c *Client) Ask(ctx context.Context, p Packet) (*Packet, error) {
	if c.conn == nil {
		conn, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return nil, fmt.Errorf("a UDP socket: %w", err)
		}
		c.conn = conn
	}
	to := p.Request(c.Chain)
	c.tag++
	p.Tag = c.tag
	b, err := p.Marshal(c.SeqBits)
	if err != nil {
		return nil, err
	}
	wait := c.Resend
	if wait == 0 {
		wait = 50 * time.Millisecond
	}
	buffer := make([]byte, 2048)
	for {
		if _, err := c.conn.WriteToUDPAddrPort(b, netip.AddrPortFrom(to, Port)); err != nil {
			return nil, fmt.Errorf("asking %v: %w", to, err)
		}
		for end := time.Now().Add(wait); ; {
			c.conn.SetReadDeadline(end)
			n, _, err := c.conn.ReadFromUDPAddrPort(buffer)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%v does not answer: %w", to, context.Cause(ctx))
			}
			if err != nil {
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					break
				}
				return nil, fmt.Errorf("waiting for %v: %w", to, err)
			}
			r := new(Packet)
			if r.Unmarshal(buffer[:n], c.SeqBits) == nil && tagOf(buffer[:n], len(p.Rest)) == p.Tag &&
				r.Op == p.Op+1 && r.Key == p.Key {
				return r, nil
			}
		}
	}
}

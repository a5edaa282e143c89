package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/wire"
)

// The controller's own packets. They go through a switch's pipeline as a client's do (submit_to_ingress), from the controller's address; the reply
// comes back as a packet-in, wherever it is made, because every switch routes that address to the controller. The UDP source port names the request.

// leasePort is the source port of LEASEs, whose replies are known by their op.
const leasePort = 20036

// Waits before a request is sent again: the first, and the longest.
const (
	firstResend = 30 * time.Millisecond
	lastResend  = 500 * time.Millisecond
)

// requests matches replies to those who wait for them. It is safe for concurrent use.
type requests struct {
	mu      sync.Mutex
	port    uint16
	waiting map[uint16]chan *wire.Packet
}

func newRequests() *requests {
	// Not where an earlier controller started, whose late replies may still come.
	return &requests{port: uint16(rand.N(1 << 16)), waiting: map[uint16]chan *wire.Packet{}}
}

// open reserves a port.
func (r *requests) open() (uint16, chan *wire.Packet, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 1 << 16 {
		r.port++
		if r.port < 1024 || r.port == wire.Port || r.port == leasePort || r.waiting[r.port] != nil {
			continue
		}
		ch := make(chan *wire.Packet, 4)
		r.waiting[r.port] = ch
		return r.port, ch, nil
	}
	return 0, nil, fmt.Errorf("too many requests to switches at once")
}

func (r *requests) close(port uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, port)
}

// deliver hands a reply to whoever waits for it.
func (r *requests) deliver(port uint16, p *wire.Packet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.waiting[port] <- p: // a nil channel takes nothing
	default:
	}
}

// frame wraps a packet for packet-out at a switch.
func (c *Controller) frame(at *topology.Switch, dst netip.Addr, srcPort uint16, p *wire.Packet) ([]byte, error) {
	payload, err := p.Marshal(c.prog.profile)
	if err != nil {
		return nil, err
	}
	f := wire.Frame{
		Src: netip.AddrPortFrom(c.net().topo.Controller.Address, srcPort),
		Dst: netip.AddrPortFrom(dst, wire.Port),
	}
	copy(f.EthernetDst[:], at.MAC)
	return f.AppendTo(make([]byte, 0, wire.FrameOverhead+len(payload)), payload)
}

// exchange sends a packet into a switch until a reply comes that accept takes (nil: any to this key), or ctx ends.
func (c *Controller) exchange(ctx context.Context, via *device, p *wire.Packet, accept func(*wire.Packet) bool) (*wire.Packet, error) {
	port, replies, err := c.requests.open()
	if err != nil {
		return nil, err
	}
	defer c.requests.close(port)
	frame, err := c.frame(via.sw, via.sw.Address, port, p)
	if err != nil {
		return nil, err
	}
	var sendErr error
	began := c.now()
	for wait := min(max(firstResend, 3*via.roundTrip()), lastResend); ; wait = min(2*wait, lastResend) {
		sendErr = via.send(frame)
		timer := time.NewTimer(wait)
		for resend := false; !resend; {
			select {
			case <-ctx.Done():
				timer.Stop()
				if sendErr != nil {
					return nil, sendErr
				}
				return nil, fmt.Errorf("%s does not answer a %v for the key %v: %w", via.sw.Name, p.Op, p.Key, context.Cause(ctx))
			case r := <-replies:
				if r.Key == p.Key && (accept == nil || accept(r)) {
					timer.Stop()
					via.took(c.now() - began)
					return r, nil
				}
			case <-timer.C:
				resend = true
			}
		}
	}
}

// roundTrip is how long an exchange with a switch takes, as far as is known. Who sends again or gives up sooner than that makes a slow switch slower: dozens of exchanges are
// under way at a time, and BMv2 drops what it cannot take.
func (d *device) roundTrip() time.Duration { return time.Duration(d.trip.Load()) }

// took notes how long an exchange took, from the first time it was sent. One that waited for a chain to be mended says little, so it counts for little.
func (d *device) took(t time.Duration) {
	t = min(t, lastResend)
	if was := d.trip.Load(); was != 0 {
		t = (7*time.Duration(was) + t) / 8
	}
	d.trip.Store(int64(t))
}

// fetch reads one slot or session of one switch.
func (c *Controller) fetch(ctx context.Context, at *device, key wire.Key, flags wire.Flags, session uint16) (*wire.Packet, error) {
	p := &wire.Packet{Op: wire.Fetch, Flags: flags, Key: key, Session: session, Request: 1}
	return c.exchange(ctx, at, p, func(r *wire.Packet) bool { return r.Op == wire.FetchReply })
}

// fetchIn is fetch from a switch that has an epoch of a chain. One that has another, because it was restarted or somebody else changes it, is an error: its slots say nothing.
func (c *Controller) fetchIn(ctx context.Context, epoch uint16, at *device, key wire.Key, flags wire.Flags, session uint16) (*wire.Packet, error) {
	r, err := c.fetch(ctx, at, key, flags, session)
	if err == nil && r.Epoch != epoch {
		return nil, fmt.Errorf("%s has epoch %d, not %d", at.sw.Name, r.Epoch, epoch)
	}
	return r, err
}

// packetIn takes a packet that a switch sent to the controller. It runs on the stream's goroutine.
func (c *Controller) packetIn(from *device, frame []byte) {
	now := c.now()
	from.heard.Store(int64(now))
	f, payload, err := wire.ParseFrame(frame)
	if err != nil || f.Src.Port() != wire.Port {
		c.log.Debug("a packet that is no reply came to the controller", "switch", from.sw.Name, "error", err)
		return
	}
	p := new(wire.Packet)
	if err := p.Unmarshal(payload, c.prog.profile); err != nil {
		c.log.Debug("a malformed reply came to the controller", "switch", from.sw.Name, "error", err)
		return
	}
	if p.Op != wire.LeaseReply {
		c.requests.deliver(f.Dst.Port(), p)
		return
	}
	c.post(func() {
		if ch := c.net().byID[p.Key.Chain()]; ch != nil && c.isCurrent(from) {
			// The time when it came, not when it is looked at: the lease is counted from it.
			c.touch(ch).LeaseReply(now, from.sw.Name, uint64(p.Version), time.Duration(p.Request)*time.Microsecond, p.Status == wire.OK)
		}
	})
}

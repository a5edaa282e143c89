package controller

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// The controller's own packets. They go through a switch's pipeline as a client's do
// (submit_to_ingress), from the controller's address; the reply comes back as a packet-in, wherever
// it is made, because every switch routes that address to the controller. The UDP source port names
// the request.

// leasePort is the source port of LEASEs, whose replies are known by their op.
const leasePort = 20036

// requests matches replies to those who wait for them. It is safe for concurrent use.
type requests struct {
	mu      sync.Mutex
	port    uint16
	waiting map[uint16]waiting
}

// waiting is a request that has no answer yet.
type waiting struct {
	asked   *device
	replies chan *wire.Packet
}

func newRequests() *requests {
	// Not where an earlier controller started, whose late replies may still come.
	return &requests{port: uint16(rand.N(1 << 16)), waiting: map[uint16]waiting{}}
}

// open reserves a port for requests to a switch.
func (r *requests) open(asked *device) (uint16, chan *wire.Packet, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 1 << 16 {
		r.port++
		if r.port < 1024 || r.port == wire.Port || r.port == leasePort || r.waiting[r.port].replies != nil {
			continue
		}
		ch := make(chan *wire.Packet, 4)
		r.waiting[r.port] = waiting{asked, ch}
		return r.port, ch, nil
	}
	return 0, nil, fmt.Errorf("too many requests to switches at once")
}

func (r *requests) close(port uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, port)
}

// deliver hands a reply to whoever waits for it. What a switch holds only that switch says. member
// reports whether the reply comes from a switch of its chain, which answers requests that are
// passed on.
func (r *requests) deliver(from *device, port uint16, p *wire.Packet, member bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.waiting[port]
	if w.asked != from && (!member || p.Op == wire.FetchReply || p.Op == wire.SyncReply) {
		return
	}
	select {
	case w.replies <- p: // a nil channel takes nothing
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
		ch := c.net().byID[p.Key.Chain()]
		c.requests.deliver(from, f.Dst.Port(), p, ch != nil && ch.answers(from.sw.Name))
		return
	}
	if uint32(p.Key)&(1<<24-1) != c.leaseTag {
		return // the LEASE was another controller's
	}
	c.post(func() {
		if ch := c.net().byID[p.Key.Chain()]; ch != nil && c.isCurrent(from) && !from.emptying {
			// The time when it came, not when it is looked at: the lease is counted from it.
			c.touch(ch).LeaseReply(now, from.sw.Name, chain.LeaseAnswer{Number: p.Session, Clock: uint64(p.Version),
				Left: time.Duration(p.Request) * time.Microsecond, Epoch: p.Epoch, Granted: p.Status == wire.OK})
		}
	})
}

package switches

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/netcraq/netcraq/api/wire"
)

// This file sends and receives the controller's own packets. They go through a switch's pipeline
// like a client's packets (submit_to_ingress), from the controller's address. The reply comes back
// as a packet-in from whichever switch makes it, because every switch routes that address to the
// controller. The UDP source port identifies the request.

// leasePort is the source port of LEASEs. The operation of a reply shows that the reply answers a
// LEASE.
const leasePort = 20036

// Requests matches replies to waiting requests. It is safe for concurrent use.
type Requests struct {
	mu      sync.Mutex
	port    uint16
	waiting map[uint16]waiting
}

// waiting is a request that has no answer yet.
type waiting struct {
	asked   *Device
	replies chan *wire.Packet
}

// NewRequests returns an empty table of requests.
func NewRequests() *Requests {
	// The first port is random, because late replies to an earlier controller's requests may still
	// come.
	return &Requests{port: uint16(rand.N(1 << 16)), waiting: map[uint16]waiting{}}
}

// open reserves a port for requests to a switch.
func (r *Requests) open(asked *Device) (uint16, chan *wire.Packet, error) {
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

func (r *Requests) close(port uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, port)
}

// deliver passes a reply to the request that waits for it. It accepts a reply about a switch's own
// content only from that switch. member says whether the reply comes from a member of the key's
// chain. Members may answer requests that another switch forwarded.
func (r *Requests) deliver(from *Device, port uint16, p *wire.Packet, member bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.waiting[port]
	if w.asked != from && (!member || p.Op == wire.FetchReply || p.Op == wire.SyncReply) {
		return
	}
	select {
	case w.replies <- p: // a nil channel is never ready
	default:
	}
}

// frame wraps a packet that is addressed to a switch in a packet-out for that switch.
func (d *Device) frame(srcPort uint16, p *wire.Packet) ([]byte, error) {
	payload, err := p.Marshal(d.prog.Profile)
	if err != nil {
		return nil, err
	}
	f := wire.Frame{
		Src: netip.AddrPortFrom(d.owner.Plan().Topology.Controller.Address, srcPort),
		Dst: netip.AddrPortFrom(d.Spec.Address, wire.Port),
	}
	copy(f.EthernetDst[:], d.Spec.MAC)
	return f.AppendTo(make([]byte, 0, wire.FrameOverhead+len(payload)), payload)
}

// packetIn handles a packet that a switch sent to the controller. It runs on the stream's
// goroutine.
func (d *Device) packetIn(frame []byte) {
	now := d.owner.Now()
	d.heard.Store(int64(now))
	f, payload, err := wire.ParseFrame(frame)
	if err != nil || f.Src.Port() != wire.Port {
		d.log.Debug("a packet that is no reply came to the controller", "switch", d.Spec.Name, "error", err)
		return
	}
	p := new(wire.Packet)
	if err := p.Unmarshal(payload, d.prog.Profile); err != nil {
		d.log.Debug("a malformed reply came to the controller", "switch", d.Spec.Name, "error", err)
		return
	}
	if p.Op != wire.LeaseReply {
		d.requests.deliver(d, f.Dst.Port(), p, d.owner.Answers(p.Key.Chain(), d.Spec.Name))
		return
	}
	// Use the time of arrival and not the time of processing, because the lease counts from the
	// arrival.
	d.owner.Post(func() { d.owner.LeaseReply(d, now, p) })
}

package netchain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// fabric is the controller's access to switches. In tests it is a simulated network.
type fabric interface {
	// reload waits until a switch is reachable, and then loads the program again. This empties the
	// switch's tables and registers.
	reload(ctx context.Context, sw string) error
	// write changes a switch's tables.
	write(ctx context.Context, sw string, updates []*v1.Update) error
	// tell sends packets without waiting for answers.
	tell(ctx context.Context, out []outgoing) error
	// exchange sends READs and waits for all answers. It sends a READ again if necessary.
	exchange(ctx context.Context, out []outgoing) ([]*Packet, error)
	// settle waits until every packet in flight in the network has arrived or is lost.
	settle(ctx context.Context) error
}

// outgoing is a packet that the controller injects at a switch, as if it had arrived there.
type outgoing struct {
	via    string
	to     netip.Addr
	packet *Packet
}

// controllerPort is the controller's UDP port. It differs from NetChain's port.
const controllerPort = Port + 1

// frame returns the packet as a frame that arrives at the switch.
func (o *outgoing) frame(seqBits int) ([]byte, error) {
	payload, err := o.packet.Marshal(seqBits)
	if err != nil {
		return nil, err
	}
	f := wire.Frame{Src: netip.AddrPortFrom(topology.DefaultController, controllerPort),
		Dst: netip.AddrPortFrom(o.to, Port)}
	return f.AppendTo(nil, payload)
}

// These are timeouts for a real network.
const (
	// settleTime is longer than any packet stays in a switch, a cable or a queue. NetChain has to
	// make such an assumption.
	settleTime = 10 * time.Millisecond
	// answerTime is the time after which a missing answer counts as lost.
	answerTime = 100 * time.Millisecond
	exchanges  = 10 // maximum number of attempts of an exchange
	window     = 256
)

// p4Fabric accesses switches over P4Runtime.
type p4Fabric struct {
	topo    *topology.Topology
	seqBits int
	pipe    *p4rt.Pipeline
	clients map[string]*p4rt.Client

	mu      sync.Mutex
	tag     uint32
	answers map[uint32]chan<- *Packet // channels that receive answers, by tag
}

// newP4Fabric prepares the connections, and connect opens them. The function `changed` is called
// when a switch becomes writable or stops being writable.
func newP4Fabric(t *topology.Topology, seqBits int, info *p4rt.Info, pipe *p4rt.Pipeline, log *slog.Logger,
	changed func(sw string, connected bool)) (*p4Fabric, error) {
	f := &p4Fabric{topo: t, seqBits: seqBits, pipe: pipe, clients: map[string]*p4rt.Client{},
		answers: map[uint32]chan<- *Packet{}}
	for _, s := range t.Switches {
		o := p4rt.Options{Name: s.Name, Target: s.P4Runtime, DeviceID: s.DeviceID,
			ElectionID: p4rt.ElectionID{Low: uint64(time.Now().Unix())}, Info: info, Log: log,
			MinBackoff: 20 * time.Millisecond, MaxBackoff: 500 * time.Millisecond}
		cl, err := p4rt.New(o, p4rt.Handler{PacketIn: f.packetIn, StateChanged: func(state p4rt.State) {
			changed(s.Name, state.Phase == p4rt.Primary)
		}})
		if err != nil {
			return nil, err
		}
		f.clients[s.Name] = cl
	}
	return f, nil
}

// connect keeps the connections to all switches open until ctx ends.
func (f *p4Fabric) connect(ctx context.Context) {
	for _, cl := range f.clients {
		go cl.Run(ctx)
	}
}

func (f *p4Fabric) reload(ctx context.Context, sw string) error {
	cl := f.clients[sw]
	for cl.State().Phase != p4rt.Primary {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s at %s: %w", sw, cl.Target(), context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := cl.Reload(ctx, f.pipe); err != nil {
		return fmt.Errorf("loading the program into %s: %w", sw, err)
	}
	return nil
}

func (f *p4Fabric) write(ctx context.Context, sw string, updates []*v1.Update) error {
	if len(updates) == 0 {
		return nil
	}
	if cl := f.clients[sw]; cl.State().Phase != p4rt.Primary {
		return fmt.Errorf("writing to %s: there is no connection", sw)
	}
	return f.clients[sw].Write(ctx, updates...)
}

func (f *p4Fabric) tell(_ context.Context, out []outgoing) error {
	for _, o := range out {
		b, err := o.frame(f.seqBits)
		if err != nil {
			return err
		}
		if err := f.clients[o.via].SendPacket(&v1.PacketOut{Payload: b}); err != nil {
			return err
		}
	}
	return nil
}

func (f *p4Fabric) exchange(ctx context.Context, out []outgoing) ([]*Packet, error) {
	var all []*Packet
	for from := 0; from < len(out); from += window {
		some, err := f.exchangeSome(ctx, out[from:min(from+window, len(out))])
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (f *p4Fabric) exchangeSome(ctx context.Context, out []outgoing) ([]*Packet, error) {
	came := make([]chan *Packet, len(out))
	f.mu.Lock()
	for i := range out {
		came[i] = make(chan *Packet, 1)
		f.tag++
		out[i].packet.Tag = f.tag
		f.answers[f.tag] = came[i]
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, o := range out {
			delete(f.answers, o.packet.Tag)
		}
	}()
	found := make([]*Packet, len(out))
	for range exchanges {
		var ask []outgoing
		for i, o := range out {
			if found[i] == nil {
				ask = append(ask, o)
			}
		}
		if err := f.tell(ctx, ask); err != nil {
			return nil, err
		}
		missing := false
		timer := time.NewTimer(answerTime)
		for i := range out {
			for found[i] == nil && !missing {
				select {
				case found[i] = <-came[i]:
				case <-timer.C:
					missing = true
				case <-ctx.Done():
					return nil, fmt.Errorf("waiting for what %s holds: %w", out[i].via, context.Cause(ctx))
				}
			}
		}
		timer.Stop()
		if !missing {
			return found, nil
		}
	}
	return nil, errors.New("a switch does not answer the controller's packets: was it loaded with another program?")
}

// packetIn receives a packet that a switch sends to the controller.
func (f *p4Fabric) packetIn(in p4rt.PacketIn) {
	_, payload, err := wire.ParseFrame(in.Payload)
	if err != nil {
		return
	}
	p := new(Packet)
	if p.Unmarshal(payload, f.seqBits) != nil {
		return
	}
	f.mu.Lock()
	to := f.answers[tagOf(payload, len(p.Rest))]
	f.mu.Unlock()
	if to != nil {
		select {
		case to <- p:
		default: // ignore a second answer to a repeated request
		}
	}
}

func (f *p4Fabric) settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(settleTime):
		return nil
	}
}

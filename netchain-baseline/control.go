package netchain

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

func wireOrder(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// Controller brings NetChain up on the switches of a topology (the file that netcraq-controller takes; of its chains the first), and goes around switches that are gone. One virtual group has
// all keys: the chain's number is their top byte.
type Controller struct {
	topo    *topology.Topology
	chain   *topology.Chain
	seqBits int
	keys    int
	info    *p4rt.Info
	pipe    *p4rt.Pipeline
	clients map[string]*p4rt.Client
	log     *slog.Logger

	mu      sync.Mutex
	gone    map[string]bool
	session uint32
}

// NewController reads nothing but the topology, and touches no switch. keys is how many keys there are, numbered from 0.
func NewController(t *topology.Topology, seqBits, keys int, log *slog.Logger) (*Controller, error) {
	text, p4info, err := Compiled(seqBits)
	if err != nil {
		return nil, err
	}
	var m configv1.P4Info
	if err := prototext.Unmarshal(p4info, &m); err != nil {
		return nil, fmt.Errorf("NetChain's P4Info: %w", err)
	}
	info, err := p4rt.NewInfo(&m)
	if err != nil {
		return nil, err
	}
	pipe, err := p4rt.NewPipeline(info, text)
	if err != nil {
		return nil, err
	}
	switch {
	case len(t.Chains) == 0:
		return nil, fmt.Errorf("the topology has no chain")
	case len(t.Chains[0].Members) > MaxChain-1:
		return nil, fmt.Errorf("chain %s has %d members: NetChain's packets have room for %d", t.Chains[0].Name, len(t.Chains[0].Members), MaxChain-1)
	case keys < 1 || keys > 65536:
		return nil, fmt.Errorf("%d keys: the switches have slots for 1 to 65536", keys)
	}
	return &Controller{topo: t, chain: t.Chains[0], seqBits: seqBits, keys: keys, info: info, pipe: pipe, clients: map[string]*p4rt.Client{}, log: log, gone: map[string]bool{}}, nil
}

// Members are the chain's addresses, head first.
func Members(t *topology.Topology) (out []netip.Addr) {
	for _, m := range t.Chains[0].Members {
		out = append(out, t.Switch(m).Address)
	}
	return out
}

// Key is the i-th key.
func Key(t *topology.Topology, i int) uint32 { return uint32(t.Chains[0].ID)<<24 | uint32(i) }

// entries are what a switch holds: its address, the shortest ways to hosts and switches, the keys.
func (c *Controller) entries(s *topology.Switch) (out []p4rt.Entry) {
	graph := c.topo.Graph(nil)
	forward := func(to netip.Addr, mac net.HardwareAddr, port uint32) p4rt.Entry {
		return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(to, 32)}, Action: "forward", Params: p4rt.Params{"dst_mac": mac, "port": port}}
	}
	toward := func(to netip.Addr, at string) {
		if hop, ok := graph.NextHop(s.Name, at); ok {
			out = append(out, forward(to, hop.Peer.MAC, hop.Number))
		}
	}
	out = append(out, p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(s.Address)}, Action: "take"})
	for _, other := range c.topo.Switches {
		if other != s {
			toward(other.Address, other.Name)
		}
	}
	for _, h := range c.topo.Hosts {
		if h.Switch == s {
			out = append(out, forward(h.IP, h.MAC, h.Port))
		} else {
			toward(h.IP, h.Switch.Name)
		}
	}
	if slices.Contains(c.chain.Members, s.Name) {
		for i := range c.keys {
			out = append(out, p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY": p4rt.Exact(Key(c.topo, i))}, Action: "set_slot", Params: p4rt.Params{"slot": i}})
		}
	}
	return out
}

// Start connects to the switches, loads the program anew and fills the tables; it returns when all switches have everything. The connections last as long as ctx.
func (c *Controller) Start(ctx context.Context) error {
	for _, s := range c.topo.Switches {
		cl, err := p4rt.New(p4rt.Options{Name: s.Name, Target: s.P4Runtime, DeviceID: s.DeviceID, ElectionID: p4rt.ElectionID{Low: uint64(time.Now().Unix())}, Info: c.info, Log: c.log}, p4rt.Handler{})
		if err != nil {
			return err
		}
		c.clients[s.Name] = cl
		go cl.Run(ctx)
	}
	for _, s := range c.topo.Switches {
		cl := c.clients[s.Name]
		for cl.State().Phase != p4rt.Primary {
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s at %s: %w", s.Name, s.P4Runtime, context.Cause(ctx))
			case <-time.After(5 * time.Millisecond):
			}
		}
		if err := cl.Reload(ctx, c.pipe); err != nil {
			return fmt.Errorf("loading the program into %s: %w", s.Name, err)
		}
		if err := c.write(ctx, s.Name, v1.Update_INSERT, c.entries(s)); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) write(ctx context.Context, sw string, kind v1.Update_Type, entries []p4rt.Entry) error {
	var updates []*v1.Update
	for _, e := range entries {
		te, err := c.info.Encode(e)
		if err != nil {
			return err
		}
		updates = append(updates, &v1.Update{Type: kind, Entity: p4rt.EntryEntity(te)})
	}
	if err := c.clients[sw].Write(ctx, updates...); err != nil {
		return fmt.Errorf("writing to %s: %w", sw, err)
	}
	return nil
}

// Fail goes on without a switch (NetChain, algorithm 2): the others skip it, and answer for it where it was the last. The first of the chain that is left begins a session, so that no number
// is given twice. Clients need to know nothing.
func (c *Controller) Fail(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := c.topo.Switch(name)
	if gone == nil || !slices.Contains(c.chain.Members, name) {
		return fmt.Errorf("%q is no member of the chain: %v", name, c.chain.Members)
	}
	c.gone[name] = true
	left := slices.DeleteFunc(slices.Clone(c.chain.Members), func(m string) bool { return c.gone[m] })
	if len(left) == 0 {
		delete(c.gone, name)
		return fmt.Errorf("%s is the last switch of the chain", name)
	}
	if head := left[0]; c.seqBits > 16 {
		kind := v1.Update_INSERT
		if c.session++; c.session > 1 {
			kind = v1.Update_MODIFY
		}
		e := p4rt.Entry{Table: "head_session", Match: p4rt.Match{"group": p4rt.Exact(c.chain.ID)}, Action: "begin_session", Params: p4rt.Params{"session": c.session}}
		for _, m := range left { // whoever is head next counts on in it
			if err := c.write(ctx, m, kind, []p4rt.Entry{e}); err != nil && m == head {
				return err
			}
		}
	}
	for _, s := range c.topo.Switches {
		if c.gone[s.Name] {
			continue
		}
		var entries []p4rt.Entry
		for _, at := range []string{"detour", "detour_next"} {
			dst := p4rt.Exact(gone.Address)
			entries = append(entries,
				p4rt.Entry{Table: at + ".detours", Priority: 1, Match: p4rt.Match{"ipv4_dst": dst}, Action: at + ".skip"},
				p4rt.Entry{Table: at + ".detours", Priority: 2, Match: p4rt.Match{"ipv4_dst": dst, "SC": p4rt.Ternary(0, 0xffff)}, Action: at + ".answer_for_the_last"})
		}
		if err := c.write(ctx, s.Name, v1.Update_INSERT, entries); err != nil {
			return err
		}
	}
	return nil
}

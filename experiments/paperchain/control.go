package paperchain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/p4src/paper"
)

// Node holds everything that the control plane writes into one switch. The control plane writes
// once, when the switch starts (the paper's section III-A).
type Node struct {
	Entries []p4rt.Entry
	Groups  []p4rt.Group
}

// Plan returns each switch's Node, by switch name. It uses the first chain. Every switch must be a
// member of this chain. There may be only one path between two switches, because an ACKNOWLEDGE is
// forwarded along links away from the tail and towards the client.
func Plan(t *topology.Topology) (map[string]Node, error) {
	if len(t.Chains) == 0 {
		return nil, errors.New("the topology has no chain: declare one")
	}
	members, links := t.Chains[0].Members, 0
	for _, s := range t.Switches {
		if !slices.Contains(members, s.Name) {
			return nil, fmt.Errorf("switch %s is not a member of chain %s: the paper's program takes chains of all switches",
				s.Name, t.Chains[0].Name)
		}
		for _, p := range s.Ports {
			if p.Peer != nil {
				links++ // each link is counted at both of its ends
			}
		}
	}
	if links/2 != len(t.Switches)-1 {
		return nil, fmt.Errorf("%d links between %d switches: the paper's program takes networks with one way between two switches, such as a line",
			links/2, len(t.Switches))
	}
	graph := t.Graph(nil)
	tail := t.Switch(members[len(members)-1])
	tree := graph.Tree(tail.Name, members)
	plan := map[string]Node{}
	for i, name := range members {
		s, next := t.Switch(name), t.Switch(members[min(i+1, len(members)-1)])
		n := Node{Entries: []p4rt.Entry{{Table: "get_my_role", Default: true, Action: "set_role",
			Params: p4rt.Params{"is_head": bit(i == 0), "is_tail": bit(s == tail), "my_addr": s.Address,
				"next_addr": next.Address, "tail_addr": tail.Address}}}}
		for _, other := range t.Switches {
			if hop, ok := graph.NextHop(name, other.Name); ok && other != s {
				n.Entries = append(n.Entries, route(other.Address, hop.Peer.MAC, hop.Number))
			}
		}
		for _, h := range t.Hosts {
			if h.Switch == s {
				n.Entries = append(n.Entries, route(h.IP, h.MAC, h.Port))
			} else if hop, ok := graph.NextHop(name, h.Switch.Name); ok {
				n.Entries = append(n.Entries, route(h.IP, hop.Peer.MAC, hop.Number))
			}
		}
		up, _ := graph.NextHop(name, tail.Name) // there is no such port at the tail itself
		for _, p := range s.Ports {
			n.Groups = append(n.Groups, acknowledgements(p, tree[name], p.Number == up.Number)...)
		}
		plan[name] = n
	}
	return plan, nil
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func route(to netip.Addr, mac net.HardwareAddr, port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(to, 32)}, Action: "forward",
		Params: p4rt.Params{"dst_mac": mac, "port": port}}
}

// acknowledgements returns the multicast group for ACKNOWLEDGEs whose client is behind a port. The
// group has the ports to nodes farther from the tail. It also has the client's port, unless the
// ACKNOWLEDGE came from there.
func acknowledgements(client topology.Port, farther []uint32, cameFromThere bool) []p4rt.Group {
	ports := slices.Clone(farther)
	if !cameFromThere && !slices.Contains(ports, client.Number) {
		ports = append(ports, client.Number)
	}
	if len(ports) == 0 {
		return nil
	}
	g := p4rt.Group{ID: 1 + client.Number}
	for _, port := range ports {
		g.Replicas = append(g.Replicas, p4rt.Replica{Port: port})
	}
	return []p4rt.Group{g}
}

// Start connects to the switches, loads the program and writes the plan. It returns when all
// switches have all entries. The connections last until ctx ends.
func Start(ctx context.Context, t *topology.Topology, log *slog.Logger) error {
	plan, err := Plan(t)
	if err != nil {
		return err
	}
	json, p4info, err := paper.Compiled()
	if err != nil {
		return err
	}
	var message configv1.P4Info
	if err := prototext.Unmarshal(p4info, &message); err != nil {
		return fmt.Errorf("the P4Info of the paper's program: %w", err)
	}
	info, err := p4rt.NewInfo(&message)
	if err != nil {
		return err
	}
	pipe, err := p4rt.NewPipeline(info, json)
	if err != nil {
		return err
	}
	for _, s := range t.Switches {
		cl, err := p4rt.New(p4rt.Options{Name: s.Name, Target: s.P4Runtime, DeviceID: s.DeviceID, Info: info, Log: log,
			ElectionID: p4rt.ElectionID{Low: uint64(time.Now().Unix())}, MinBackoff: 20 * time.Millisecond,
			MaxBackoff: 500 * time.Millisecond}, p4rt.Handler{})
		if err != nil {
			return err
		}
		go cl.Run(ctx)
		for cl.State().Phase != p4rt.Primary {
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s at %s: %w", s.Name, cl.Target(), context.Cause(ctx))
			case <-time.After(5 * time.Millisecond):
			}
		}
		updates, err := plan[s.Name].updates(info)
		if err != nil {
			return err
		}
		if err := cl.Reload(ctx, pipe); err != nil {
			return fmt.Errorf("loading the program into %s: %w", s.Name, err)
		}
		if err := cl.Write(ctx, updates...); err != nil {
			return fmt.Errorf("writing the tables of %s: %w", s.Name, err)
		}
	}
	return nil
}

// updates returns the P4Runtime updates for a switch with a newly loaded program.
func (n Node) updates(info *p4rt.Info) (out []*v1.Update, err error) {
	var entries []*v1.TableEntry
	for _, e := range n.Entries {
		te, err := info.Encode(e)
		if err != nil {
			return nil, err
		}
		entries = append(entries, te)
	}
	out = p4rt.DiffEntries(nil, entries)
	for _, g := range n.Groups {
		e, err := p4rt.EncodeGroup(g)
		if err != nil {
			return nil, err
		}
		out = append(out, p4rt.Insert(e))
	}
	return out, nil
}

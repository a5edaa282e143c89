package controller

import (
	"fmt"
	"strings"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// program is what the controller must know of the compiled P4 program; all of it stands in the
// P4Info.
type program struct {
	pipeline *p4rt.Pipeline
	profile  wire.Profile // the width of values
	slots    int          // cells of the register versions
	sessions int          // cells of the register session_request
	routes   int          // entries of ipv4_lpm
	local    int          // entries of local_address
}

// readProgram checks that the P4Info is that of a NetCRAQ program, and takes its sizes from it.
func readProgram(pl *p4rt.Pipeline) (*program, error) {
	p := &program{pipeline: pl}
	info := pl.Info
	bits := 0
	for _, name := range info.Registers() {
		// The wide profiles are several words: objects_store, objects_store_1, ...
		if name == "objects_store" || strings.HasPrefix(name, "objects_store_") {
			_, width, err := info.RegisterSize(name)
			if err != nil {
				return nil, err
			}
			bits += width
		}
	}
	if p.profile = wire.Profile(bits); !p.profile.Valid() {
		return nil, fmt.Errorf("this is not a NetCRAQ program: its objects_store registers hold %d bits", bits)
	}
	var err error
	if p.slots, _, err = info.RegisterSize("versions"); err != nil {
		return nil, err
	}
	if p.sessions, _, err = info.RegisterSize("session_request"); err != nil {
		return nil, err
	}
	if p.routes, err = info.TableSize("ipv4_lpm"); err != nil {
		return nil, err
	}
	if p.local, err = info.TableSize("local_address"); err != nil {
		return nil, err
	}
	// The tables and actions that plan.go fills, by a probe of each.
	for _, e := range []p4rt.Entry{
		fabricPort(1), hostPort(1, 1, topology.DefaultController, false),
		hostPort(1, 1, topology.DefaultController, true), leaseEntry(1, 1), grantEntry(1, 1, true, true),
		localAddress(topology.DefaultController), toController(topology.DefaultController),
		forward(only(topology.DefaultController), make([]byte, 6), 1), slotEntry(ops.Entry{ID: 1, Slot: 1, Realm: 1}),
		chainEntry(0, chainPart{head: topology.DefaultController, tail: topology.DefaultController,
			service: topology.DefaultController}), peerEntry(0, 1, peerPart{}),
		watchedChain(1, 1, 1, 1), watchedKey(1),
		watcherEntry(&topology.Host{Port: 1, MAC: make([]byte, 6), IP: topology.DefaultController}, 1, 1),
	} {
		if _, err := info.Encode(e); err != nil {
			return nil, fmt.Errorf("this is not a NetCRAQ program, or not of this version: %w", err)
		}
	}
	return p, nil
}

// fit checks that a topology fits the program, and says where the chains' slots are; those that
// have slots keep them.
func (p *program) fit(t *topology.Topology, keep []keyspace.Space) ([]keyspace.Space, error) {
	if want := t.Program.ValueBits; want != 0 && want != int(p.profile) {
		return nil, fmt.Errorf("the topology asks for the profile %d, but the program %s holds values of %v bits", want, t.Program.JSON, p.profile)
	}
	// A switch has routes to its own hosts, to those of others that no prefix has, to prefixes,
	// switches and chains, and to the controller.
	routes, covered := len(t.Switches)+len(t.Chains)+1, map[*topology.Switch]int{}
	for _, sw := range t.Switches {
		routes += len(sw.Prefixes)
	}
	for _, h := range t.Hosts {
		if h.Switch.Covers(h.IP) {
			covered[h.Switch]++
		} else {
			routes++
		}
	}
	for _, sw := range t.Switches {
		if n := routes + covered[sw]; n > p.routes {
			return nil, fmt.Errorf("the network has %d addresses and prefixes for %s, but the program's table ipv4_lpm holds %d routes: compile it with a larger one, or give switches prefixes",
				n, sw.Name, p.routes)
		}
	}
	if n := len(t.Chains) + 1; n > p.local {
		return nil, fmt.Errorf("%d chains: the program's table local_address holds %d addresses: compile it with a larger one", len(t.Chains), p.local)
	}
	last := p.sessions - 1
	if t.Sessions.Controller >= last {
		return nil, fmt.Errorf("sessions.controller is %d, but the program has only the sessions 1 to %d", t.Sessions.Controller, last)
	}
	if t.Sessions.Last > last {
		return nil, fmt.Errorf("sessions.last is %d, but the program has only the sessions 1 to %d", t.Sessions.Last, last)
	}
	if _, err := allocateGroups(t); err != nil {
		return nil, err
	}
	return p.spaces(t, keep)
}

// lastSession is the highest session id for clients.
func (p *program) lastSession(t *topology.Topology) uint16 {
	if t.Sessions.Last != 0 {
		return uint16(t.Sessions.Last)
	}
	return uint16(min(p.sessions-1, 0xFFFF))
}

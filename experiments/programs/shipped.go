package programs

import (
	"bytes"
	"net/netip"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/switch/ebpf"
)

// These are values in the shipped program's tables.
const (
	principal  = 1 // number of the client's principal, and also of its key's realm
	session    = 3
	shippedKey = wire.Key(1)<<24 | 1
	replyGroup = 16 // multicast group of the reply, and also its egress port
)

var service = netip.AddrFrom4([4]byte{10, 0, 254, 1})

// shipped returns the cases of the shipped program, or of a variant of it. A variant may lack
// tables, actions' parameters and registers.
func shipped(name string, program Program, leased bool) ([]Case, error) {
	topo, err := line()
	if err != nil {
		return nil, err
	}
	b := &builder{system: name, program: program}
	b.setup = func(sw int) ([]p4rt.Entry, []p4rt.Group) {
		out := append(routes(topo, sw), shippedEntries(sw, leased)...)
		return out, []p4rt.Group{{ID: replyGroup + headPort, Replicas: []p4rt.Replica{{Port: headPort, Instance: 2}}}}
	}
	lease := func() Case {
		if !leased {
			return Case{}
		}
		cell := ebpf.Cell{Register: "NetcraqIngress.pipeline.chain.lease_expiry", Index: int(shippedKey >> 24)}
		return Case{Registers: map[ebpf.Cell][]byte{cell: bytes.Repeat([]byte{0x7f}, 8)}}
	}
	at := func(sw int) netip.AddrPort { return netip.AddrPortFrom(address(sw), wire.Port) }
	all := netip.AddrPortFrom(service, wire.Port)
	send := func(port uint32, from, to netip.AddrPort, p wire.Packet) Frame {
		p.Key = shippedKey
		payload, err := p.Marshal(wire.Profile128)
		return b.frame(port, from, to, payload, err)
	}
	const requestAt, versionAt = wire.FrameOverhead + 8, wire.FrameOverhead + 16 + 4
	first := wire.Version(1)<<48 | 1
	request := wire.Packet{Op: wire.Write, Session: session, Value: make([]byte, 16)}
	stamped := wire.Packet{Op: wire.Write, Flags: wire.Stamped, Epoch: 1, Session: session, Version: first,
		Value: make([]byte, 16)}
	done := wire.Packet{Op: wire.WriteReply, Epoch: 1, Session: session, Version: first, Value: make([]byte, 16)}
	// Each write has a new request number.
	counting := func(counts ...int) Case {
		c := lease()
		c.Changes = ebpf.Changes{Counts: counts}
		return c
	}
	dirty := lease()
	once := request
	once.Request = 1
	dirty.Before = []Frame{send(hostPort, client, all, once)}
	toTail := wire.Packet{Op: wire.Read, Flags: wire.DirtyForwarded}
	b.add(CleanRead, 1, send(hostPort, client, all, wire.Packet{Op: wire.Read}), lease())
	b.add(DirtyRead, 1, send(hostPort, client, all, wire.Packet{Op: wire.Read}), dirty)
	b.add(DirtyAnswer, 4, send(headPort, client, at(4), toTail), lease())
	b.add(PassingRead, 2, send(headPort, client, at(4), toTail), lease())
	reply := wire.Packet{Op: wire.ReadReply, Epoch: 1, Version: first}
	b.add(PassingReply, 2, send(tailPort, all, client, reply), lease())
	b.add(WriteHead, 1, send(hostPort, client, all, request), counting(requestAt))
	b.add(WriteReplica, 2, send(headPort, client, at(2), stamped), counting(requestAt, versionAt))
	b.add(WriteTail, 4, send(headPort, client, at(4), stamped), counting(requestAt, versionAt))
	b.add(WriteReply, 2, send(tailPort, all, client, done), counting(requestAt, versionAt))
	return b.cases, b.err
}

// shippedEntries returns the controller's entries for a switch of the line, except routes.
func shippedEntries(sw int, leased bool) []p4rt.Entry {
	bit := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	const replica, head, tail = 1, 2, 3
	role := map[int]int{1: head, 2: replica, 3: replica, 4: tail}[sw]
	chain := int(shippedKey >> 24)
	peer := func(port int, predecessor, isTail bool) p4rt.Entry {
		return entry("chain_peer", p4rt.Match{"chain": p4rt.Exact(chain), "ingress_port": p4rt.Exact(port)}, "peer",
			p4rt.Params{"predecessor": bit(predecessor), "tail": bit(isTail), "member": 1})
	}
	port := func(number int, action string, params p4rt.Params) p4rt.Entry {
		return entry("port_trust", p4rt.Match{"ingress_port": p4rt.Exact(number)}, action, params)
	}
	local := func(a netip.Addr) p4rt.Entry {
		return entry("local_address", p4rt.Match{"ipv4_dst": p4rt.Exact(a)}, "set_local", nil)
	}
	return []p4rt.Entry{
		port(hostPort, "host_port", p4rt.Params{"principal": principal, "address": client.Addr()}),
		port(headPort, "fabric_port", nil), port(tailPort, "fabric_port", nil),
		local(service), local(address(sw)),
		{Table: "chain_peer", Default: true, Action: "peer", Params: p4rt.Params{"predecessor": 0, "tail": 0, "member": 0}},
		peer(headPort, true, false), peer(tailPort, false, true),
		entry("session_lease", p4rt.Match{"session": p4rt.Exact(session)}, "leased_to", p4rt.Params{"port": hostPort}),
		entry("chain_config", p4rt.Match{"chain": p4rt.Exact(chain)}, "set_chain", p4rt.Params{"role": role, "frozen": 0,
			"lease_required": bit(leased), "epoch": 1, "head_addr": address(1), "next_addr": address(min(sw+1, 4)),
			"tail_addr": address(4), "service_addr": service, "ack_group": replyGroup, "reply_group": replyGroup}),
		entry("key_index", p4rt.Match{"KEY_ID": p4rt.Exact(uint32(shippedKey))}, "set_slot",
			p4rt.Params{"slot": 5, "realm": principal}),
	}
}

package tableplan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/api/wire"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// These functions make the entries of docs/protocol.md, "Tables that the controller fills".

func fabricPort(port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(port)}, Action: "fabric_port"}
}

// hostPort makes a port accept a principal's requests. With open, the port may use any client's
// session, leased or not.
func hostPort(port uint32, principal uint16, address netip.Addr, open bool) p4rt.Entry {
	action := "host_port"
	if open {
		action = "open_host_port"
	}
	return p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(port)}, Action: action,
		Params: p4rt.Params{"principal": principal, "address": address}}
}

// LeaseEntry returns the entry that lets the host at a port of a switch use a session at that
// switch.
func LeaseEntry(session uint16, port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "session_lease", Match: p4rt.Match{"session": p4rt.Exact(session)}, Action: "leased_to", Params: p4rt.Params{"port": port}}
}

func grantEntry(principal, realm uint16, read, write bool) p4rt.Entry {
	return p4rt.Entry{Table: "access", Match: p4rt.Match{"principal": p4rt.Exact(principal), "realm": p4rt.Exact(realm)}, Action: "grant",
		Params: p4rt.Params{"read": read, "write": write}}
}

func localAddress(a netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(a)}, Action: "set_local"}
}

func forward(to netip.Prefix, mac []byte, port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(to.Addr(), to.Bits())}, Action: "forward",
		Params: p4rt.Params{"dst_mac": mac, "port": port}}
}

// only returns the prefix that contains one address.
func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func toController(a netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(a, 32)}, Action: "to_controller"}
}

// chainPart is the content of a chain_config entry.
type chainPart struct {
	role                      chain.Role
	frozen, leaseRequired     bool
	epoch                     uint16
	head, next, tail, service netip.Addr // the zero Addr stands for 0.0.0.0
	ackGroup, replyGroup      uint16
}

func chainEntry(id uint8, c chainPart) p4rt.Entry {
	addr := func(a netip.Addr) any {
		if !a.IsValid() {
			return uint32(0)
		}
		return a
	}
	return p4rt.Entry{Table: "chain_config", Match: p4rt.Match{"chain": p4rt.Exact(id)}, Action: "set_chain", Params: p4rt.Params{
		"role": uint8(c.role), "frozen": c.frozen, "lease_required": c.leaseRequired, "epoch": c.epoch,
		"head_addr": addr(c.head), "next_addr": addr(c.next), "tail_addr": addr(c.tail), "service_addr": addr(c.service),
		"ack_group": c.ackGroup, "reply_group": c.replyGroup,
	}}
}

// Peer says which messages of a chain a port may receive.
type Peer struct{ predecessor, tail, member bool }

// Or returns a Peer that admits the messages that either of two peers admits.
func (a Peer) Or(b Peer) Peer {
	return Peer{a.predecessor || b.predecessor, a.tail || b.tail, a.member || b.member}
}

func peerEntry(id uint8, port uint32, p Peer) p4rt.Entry {
	return p4rt.Entry{Table: "chain_peer", Match: p4rt.Match{"chain": p4rt.Exact(id), "ingress_port": p4rt.Exact(port)},
		Action: "peer", Params: p4rt.Params{"predecessor": p.predecessor, "tail": p.tail, "member": p.member}}
}

// PeerEntries returns the chain_peer entries of a chain, ordered by port.
func PeerEntries(id uint8, parts map[uint32]Peer) (out []p4rt.Entry) {
	for _, port := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, peerEntry(id, port, parts[port]))
	}
	return out
}

// PeerDefault returns the default entry of chain_peer. It admits everything or nothing at ports
// without an entry.
func PeerDefault(open bool) p4rt.Entry {
	return p4rt.Entry{Table: "chain_peer", Default: true, Action: "peer",
		Params: p4rt.Params{"predecessor": open, "tail": open, "member": open}}
}

// ReadPeerEntry decodes a chain_peer entry.
func ReadPeerEntry(e p4rt.Entry) (port uint32, p Peer) {
	is := func(param string) bool { return e.Param(param).Uint64() == 1 }
	return uint32(e.Exact("ingress_port").Uint64()), Peer{is("predecessor"), is("tail"), is("member")}
}

// ReadChainEntry returns the assignment of a chain_config entry. If no switch has an address of the
// entry, the address becomes a name that no switch has.
func ReadChainEntry(t *topology.Topology, e p4rt.Entry) chain.Assignment {
	name := func(param string) string {
		v := e.Param(param)
		if v.Bits() == 0 {
			return ""
		}
		if s := t.SwitchByAddress(v.Addr()); s != nil {
			return s.Name
		}
		return "?" + v.Addr().String()
	}
	return chain.Assignment{
		Role:          chain.Role(e.Param("role").Uint64()),
		Frozen:        e.Param("frozen").Uint64() != 0,
		LeaseRequired: e.Param("lease_required").Uint64() != 0,
		Epoch:         uint16(e.Param("epoch").Uint64()),
		Head:          name("head_addr"),
		Next:          name("next_addr"),
		Tail:          name("tail_addr"),
	}
}

// OneOfEach returns an entry of each table and action that a plan uses. A plan can fill any
// program that accepts all of them.
func OneOfEach() []p4rt.Entry {
	return []p4rt.Entry{
		fabricPort(1), hostPort(1, 1, topology.DefaultController, false),
		hostPort(1, 1, topology.DefaultController, true), LeaseEntry(1, 1), grantEntry(1, 1, true, true),
		localAddress(topology.DefaultController), toController(topology.DefaultController),
		forward(only(topology.DefaultController), make([]byte, 6), 1), SlotEntry(ops.Entry{ID: 1, Slot: 1, Realm: 1}),
		chainEntry(0, chainPart{head: topology.DefaultController, tail: topology.DefaultController,
			service: topology.DefaultController}), peerEntry(0, 1, Peer{}),
		watchedChain(1, 1, 1, 1), watchedKey(1),
		watcherEntry(&topology.Host{Port: 1, MAC: make([]byte, 6), IP: topology.DefaultController}, 1, 1),
	}
}

// SlotEntry returns the key_index entry for an ops.Entry.
func SlotEntry(e ops.Entry) p4rt.Entry {
	if e.Hidden {
		e.Realm = hiddenKey
	}
	return p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY_ID": p4rt.Exact(uint32(e.ID))},
		Action: "set_slot", Params: p4rt.Params{"slot": e.Slot, "realm": e.Realm}}
}

// ReadSlotEntry decodes a key_index entry. If the entry has no action, it decodes only the KEY_ID.
func ReadSlotEntry(e p4rt.Entry) ops.Entry {
	k := ops.Entry{ID: wire.Key(e.Exact("KEY_ID").Uint64())}
	if e.Action != "" {
		k.Slot, k.Realm = int(e.Param("slot").Uint64()), uint16(e.Param("realm").Uint64())
		k.Hidden = k.Realm == hiddenKey
	}
	return k
}

func watchedChain(id uint8, epoch, ack, reply uint16) p4rt.Entry {
	return p4rt.Entry{Table: "watched_chain", Match: p4rt.Match{"chain": p4rt.Exact(id)}, Action: "watch_groups",
		Params: p4rt.Params{"epoch": epoch, "watch_ack_group": ack, "watch_reply_group": reply}}
}

func watchedKey(id wire.Key) p4rt.Entry {
	return p4rt.Entry{Table: "watched_key", Match: p4rt.Match{"KEY_ID": p4rt.Exact(uint32(id))}, Action: "watched"}
}

func watcherEntry(h *topology.Host, port uint16, id wire.Key) p4rt.Entry {
	match := p4rt.Match{"egress_port": p4rt.Exact(h.Port), "KEY_ID": p4rt.Exact(uint32(id))}
	return p4rt.Entry{Table: "watcher", Match: match,
		Action: "notify", Params: p4rt.Params{"dst_mac": h.MAC, "address": h.IP, "udp_port": port}}
}

package bmthrift

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/target"
)

// Limits of multicast. A port map is a string with one character per possible port.
const (
	maxPorts = 512 // port numbers have 9 bits, as in BMv2
	maxLAGs  = 256
	maxNodes = 1 << 16
	maxRID   = 1<<16 - 1
)

// node is BMv2's multicast node: a replication id with ports and link aggregation groups.
type node struct {
	rid   uint16
	ports []uint32
	lags  []uint32
	group uint32 // 0 if the node belongs to no group
}

// multicast holds the multicast state of BMv2's API that P4Runtime does not have: nodes, link
// aggregation groups and mirroring sessions.
type multicast struct {
	nodes map[int32]*node
	// handles of each group's nodes, in the order in which they were added
	groups map[uint32][]int32
	lags   map[uint32][]uint32
	// mirrors holds the mirroring sessions that copy to a multicast group.
	mirrors map[uint32]mirror
}

type mirror struct {
	group uint32
	port  *int32
}

func newMulticast() *multicast {
	return &multicast{nodes: map[int32]*node{}, groups: map[uint32][]int32{},
		lags: map[uint32][]uint32{}, mirrors: map[uint32]mirror{}}
}

// Errors of calls for multicast.
var (
	errGroupID = fmt.Errorf("a multicast group is 1 to %d", maxRID)
	errGroup   = errors.New("there is no such multicast group")
	errNode    = errors.New("there is no such node")
	errFull    = fmt.Errorf("there are %d nodes already", maxNodes)
)

// replicas returns the packet copies that a multicast group makes. A link aggregation group
// contributes only one port, because BMv2 picks the port by a hash that is 255 for every packet.
func (m *multicast) replicas(group uint32) []target.Replica {
	out := []target.Replica{}
	for _, h := range m.groups[group] {
		n := m.nodes[h]
		for _, p := range n.ports {
			out = append(out, target.Replica{Port: p, Instance: n.rid})
		}
		for _, l := range n.lags {
			if ports := m.lags[l]; len(ports) > 0 {
				out = append(out, target.Replica{Port: ports[255%len(ports)], Instance: n.rid})
			}
		}
	}
	return out
}

// sync updates the nodes after other protocols have changed multicast groups.
func (m *multicast) sync(p target.Pipeline) {
	now := p.MulticastGroups()
	for id := range m.groups {
		if _, ok := now[id]; !ok {
			m.drop(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if _, ok := m.groups[id]; ok && slices.Equal(m.replicas(id), now[id]) {
			continue
		}
		m.drop(id)
		m.groups[id] = []int32{}
		at := map[uint16]*node{}
		for _, r := range now[id] {
			n := at[r.Instance]
			if n == nil || slices.Contains(n.ports, r.Port) {
				n = &node{rid: r.Instance, group: id}
				at[r.Instance] = n
				h := m.freeHandle()
				m.nodes[h] = n
				m.groups[id] = append(m.groups[id], h)
			}
			n.ports = append(n.ports, r.Port)
		}
	}
}

// drop deletes a group and its nodes.
func (m *multicast) drop(id uint32) {
	for _, h := range m.groups[id] {
		delete(m.nodes, h)
	}
	delete(m.groups, id)
}

func (m *multicast) freeHandle() int32 {
	for h := int32(0); ; h++ {
		if m.nodes[h] == nil {
			return h
		}
	}
}

// apply sets the groups' replicas in the engine according to the nodes.
func (m *multicast) apply(p target.Pipeline, groups ...uint32) error {
	for _, id := range groups {
		if id == 0 {
			continue
		}
		if err := p.SetMulticastGroup(id, m.replicas(id)); err != nil {
			return err
		}
	}
	m.follow(p)
	return nil
}

// follow updates the mirroring sessions that copy to a multicast group after the group's members
// have changed.
func (m *multicast) follow(p target.Pipeline) {
	groups := p.MulticastGroups()
	sessions := p.CloneSessions()
	for id, mi := range m.mirrors {
		s := sessionOf(mi, groups)
		if have, ok := sessions[id]; !ok || !slices.Equal(have.Replicas, s.Replicas) {
			// This cannot fail, because the engine accepted this id before.
			_ = p.SetCloneSession(id, s)
		}
	}
}

// portMap parses a string of 0 and 1. The last character is for port 0.
func portMap(s string, most int) ([]uint32, error) {
	if len(s) > most {
		return nil, fmt.Errorf("a map is of at most %d bits, not %d", most, len(s))
	}
	out := []uint32{}
	for i := range len(s) {
		switch s[len(s)-1-i] {
		case '1':
			out = append(out, uint32(i))
		case '0':
		default:
			return nil, errors.New("a map is a string of 0 and 1")
		}
	}
	return out, nil
}

// change calls f to change multicast state. Both multicast services use it, because they share all
// calls except those for link aggregation groups.
func (h *handler) change(cxt int32, f func(p target.Pipeline, m *multicast) error) error {
	return multicastFailure(h.write(cxt, func(p target.Pipeline) error {
		h.mc.sync(p)
		return f(p, h.mc)
	}))
}

// createGroup creates a multicast group. The group's handle is its id.
func (h *handler) createGroup(cxt, id int32) (int32, error) {
	return id, h.change(cxt, func(p target.Pipeline, m *multicast) error {
		if id < 1 || id > maxRID {
			return errGroupID
		}
		if _, ok := m.groups[uint32(id)]; !ok { // BMv2 also accepts the id of an existing group.
			m.groups[uint32(id)] = []int32{}
		}
		return m.apply(p, uint32(id))
	})
}

func (h *handler) destroyGroup(cxt, id int32) error {
	return h.change(cxt, func(p target.Pipeline, m *multicast) error {
		nodes, ok := m.groups[uint32(id)]
		if !ok {
			return errGroup
		}
		if err := p.SetMulticastGroup(uint32(id), nil); err != nil {
			return err
		}
		for _, n := range nodes {
			m.nodes[n].group = 0
		}
		delete(m.groups, uint32(id))
		m.follow(p)
		return nil
	})
}

func (h *handler) createNode(cxt, rid int32, ports string) (int32, error) {
	return h.createNodeLAG(cxt, rid, ports, "")
}

func (h *handler) createNodeLAG(cxt, rid int32, ports, lags string) (handle int32, err error) {
	err = h.change(cxt, func(_ target.Pipeline, m *multicast) error {
		if rid < 0 || rid > maxRID {
			return fmt.Errorf("a replication id is 0 to %d", maxRID)
		}
		if len(m.nodes) >= maxNodes {
			return errFull
		}
		n := &node{rid: uint16(rid)}
		if err := n.set(ports, lags); err != nil {
			return err
		}
		handle = m.freeHandle()
		m.nodes[handle] = n
		return nil
	})
	return handle, err
}

func (n *node) set(ports, lags string) (err error) {
	p, err := portMap(ports, maxPorts)
	if err != nil {
		return err
	}
	l, err := portMap(lags, maxLAGs)
	if err != nil {
		return err
	}
	n.ports, n.lags = p, l
	return nil
}

func (h *handler) updateNode(cxt, handle int32, ports string) error {
	return h.updateNodeLAG(cxt, handle, ports, "")
}

func (h *handler) updateNodeLAG(cxt, handle int32, ports, lags string) error {
	return h.change(cxt, func(p target.Pipeline, m *multicast) error {
		n := m.nodes[handle]
		if n == nil {
			return errNode
		}
		if err := n.set(ports, lags); err != nil {
			return err
		}
		return m.apply(p, n.group)
	})
}

func (h *handler) associate(cxt, group, handle int32) error {
	return h.change(cxt, func(p target.Pipeline, m *multicast) error {
		n := m.nodes[handle]
		if n == nil {
			return errNode
		}
		id := uint32(group)
		if _, ok := m.groups[id]; !ok {
			return errGroup
		}
		if n.group != 0 {
			return fmt.Errorf("the node belongs to group %d", n.group)
		}
		n.group = id
		m.groups[id] = append(m.groups[id], handle)
		return m.apply(p, id)
	})
}

// dissociated takes a node out of its group.
func (m *multicast) dissociated(p target.Pipeline, handle int32) error {
	n := m.nodes[handle]
	id := n.group
	if id == 0 {
		return nil
	}
	n.group = 0
	m.groups[id] = slices.DeleteFunc(m.groups[id], func(h int32) bool { return h == handle })
	return m.apply(p, id)
}

func (h *handler) dissociate(cxt, group, handle int32) error {
	return h.change(cxt, func(p target.Pipeline, m *multicast) error {
		n := m.nodes[handle]
		if n == nil {
			return errNode
		}
		if n.group == 0 || n.group != uint32(group) {
			return errGroup
		}
		return m.dissociated(p, handle)
	})
}

func (h *handler) destroyNode(cxt, handle int32) error {
	return h.change(cxt, func(p target.Pipeline, m *multicast) error {
		if m.nodes[handle] == nil {
			return errNode
		}
		if err := m.dissociated(p, handle); err != nil {
			return err
		}
		delete(m.nodes, handle)
		return nil
	})
}

func (h *handler) setLAG(cxt int32, lag int16, ports string) error {
	return h.change(cxt, func(p target.Pipeline, m *multicast) error {
		if lag < 0 || int(lag) >= maxLAGs {
			return fmt.Errorf("a link aggregation group is 0 to %d", maxLAGs-1)
		}
		members, err := portMap(ports, maxPorts)
		if err != nil {
			return err
		}
		m.lags[uint32(lag)] = members
		var changed []uint32
		for id, nodes := range m.groups {
			if slices.ContainsFunc(nodes, func(n int32) bool {
				return slices.Contains(m.nodes[n].lags, uint32(lag))
			}) {
				changed = append(changed, id)
			}
		}
		return m.apply(p, changed...)
	})
}

// The JSON in which BMv2 lists multicast state. Groups name nodes, and nodes name the entries that
// hold their ports. This server lists one such entry per node, with the node's handle.
type (
	groupEntry struct {
		ID    uint32  `json:"id"`
		Nodes []int32 `json:"l1_handles"`
	}
	nodeEntry struct {
		Handle int32  `json:"handle"`
		RID    uint16 `json:"rid"`
		Ports  int32  `json:"l2_handle"`
	}
	portsEntry struct {
		Handle int32    `json:"handle"`
		Ports  []uint32 `json:"ports"`
		LAGs   []uint32 `json:"lags"`
	}
	lagEntry struct {
		ID    uint32   `json:"id"`
		Ports []uint32 `json:"ports"`
	}
	multicastEntries struct {
		Groups []groupEntry `json:"mgrps"`
		Nodes  []nodeEntry  `json:"l1_handles"`
		Ports  []portsEntry `json:"l2_handles"`
		LAGs   []lagEntry   `json:"lags"`
	}
)

func (h *handler) listMulticast(cxt int32) (text string, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		m := h.mc
		m.sync(p)
		all := multicastEntries{Groups: []groupEntry{}, Nodes: []nodeEntry{},
			Ports: []portsEntry{}, LAGs: []lagEntry{}}
		for _, id := range slices.Sorted(maps.Keys(m.groups)) {
			all.Groups = append(all.Groups, groupEntry{id, m.groups[id]})
		}
		for _, handle := range slices.Sorted(maps.Keys(m.nodes)) {
			n := m.nodes[handle]
			lags := n.lags
			if lags == nil {
				lags = []uint32{}
			}
			all.Nodes = append(all.Nodes, nodeEntry{handle, n.rid, handle})
			all.Ports = append(all.Ports, portsEntry{handle, n.ports, lags})
		}
		for _, id := range slices.Sorted(maps.Keys(m.lags)) {
			all.LAGs = append(all.LAGs, lagEntry{id, m.lags[id]})
		}
		b, err := json.Marshal(all)
		text = string(b)
		return err
	})
	return text, multicastFailure(err)
}

func multicastFailure(err error) error {
	if err == nil {
		return nil
	}
	code := idl.MulticastCodeError
	switch {
	case errors.Is(err, errFull):
		code = idl.MulticastCodeTableFull
	case errors.Is(err, errGroupID):
		code = idl.MulticastCodeInvalidMgid
	case errors.Is(err, errGroup):
		code = idl.MulticastCodeInvalidMgrpHandle
	case errors.Is(err, errNode):
		code = idl.MulticastCodeInvalidL1Handle
	}
	return refusal(code, "%v", err)
}

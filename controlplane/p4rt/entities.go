package p4rt

import (
	"cmp"
	"fmt"
	"slices"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// Replica is one copy that a multicast group or a clone session makes.
type Replica struct {
	Port     uint32
	Instance uint32 // the copy's egress_rid, which has 16 bits
}

// Group is a multicast group.
type Group struct {
	ID       uint32
	Replicas []Replica // each pair of port and instance at most once
}

func encodeReplicas(rs []Replica) ([]*v1.Replica, error) {
	seen := map[Replica]bool{}
	var out []*v1.Replica
	for _, r := range rs {
		if seen[r] {
			return nil, fmt.Errorf("the replica (port %d, instance %d) is there twice", r.Port, r.Instance)
		}
		if r.Instance > 0xFFFF {
			return nil, fmt.Errorf("the replica (port %d, instance %d): instances have 16 bits", r.Port, r.Instance)
		}
		seen[r] = true
		out = append(out, &v1.Replica{PortKind: &v1.Replica_EgressPort{EgressPort: r.Port}, Instance: r.Instance})
	}
	return out, nil
}

func decodeReplicas(rs []*v1.Replica) []Replica {
	var out []Replica
	for _, r := range rs {
		port := r.GetEgressPort()
		if p, ok := r.PortKind.(*v1.Replica_Port); ok {
			port = uint32(Value(p.Port).Uint64())
		}
		out = append(out, Replica{Port: port, Instance: r.Instance})
	}
	return sortReplicas(out)
}

func sortReplicas(rs []Replica) []Replica {
	slices.SortFunc(rs, func(a, b Replica) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Port, b.Port))
	})
	return rs
}

// EncodeGroup makes the protobuf of a multicast group.
func EncodeGroup(g Group) (*v1.Entity, error) {
	rs, err := encodeReplicas(g.Replicas)
	if err != nil {
		return nil, fmt.Errorf("multicast group %d: %w", g.ID, err)
	}
	return groupEntity(&v1.MulticastGroupEntry{MulticastGroupId: g.ID, Replicas: rs}), nil
}

func groupEntity(m *v1.MulticastGroupEntry) *v1.Entity {
	return &v1.Entity{Entity: &v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &v1.PacketReplicationEngineEntry{
			Type: &v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: m},
		}}}
}

// DecodeGroup returns the multicast group in an entity. It returns false if the entity is not a
// multicast group.
func DecodeGroup(e *v1.Entity) (Group, bool) {
	m := e.GetPacketReplicationEngineEntry().GetMulticastGroupEntry()
	if m == nil {
		return Group{}, false
	}
	return Group{ID: m.MulticastGroupId, Replicas: decodeReplicas(m.Replicas)}, true
}

// EntryEntity wraps a table entry as an entity.
func EntryEntity(te *v1.TableEntry) *v1.Entity {
	return &v1.Entity{Entity: &v1.Entity_TableEntry{TableEntry: te}}
}

// Insert, Modify and Delete make updates.
func Insert(e *v1.Entity) *v1.Update { return &v1.Update{Type: v1.Update_INSERT, Entity: e} }
func Modify(e *v1.Entity) *v1.Update { return &v1.Update{Type: v1.Update_MODIFY, Entity: e} }
func Delete(e *v1.Entity) *v1.Update { return &v1.Update{Type: v1.Update_DELETE, Entity: e} }

// counterEntity returns the entity of one cell of a counter, or of all cells if index < 0.
func (i *Info) counterEntity(name string, index int) (*v1.Entity, error) {
	c, err := i.counters.find(name)
	if err != nil {
		return nil, err
	}
	ce := &v1.CounterEntry{CounterId: c.Preamble.Id}
	if index >= 0 {
		if int64(index) >= c.Size {
			return nil, fmt.Errorf("counter %s has no cell %d, only %d", name, index, c.Size)
		}
		ce.Index = &v1.Index{Index: int64(index)}
	}
	return &v1.Entity{Entity: &v1.Entity_CounterEntry{CounterEntry: ce}}, nil
}

// EncodeMeter makes the protobuf of one cell of a meter. The cell passes perSecond packets (or
// bytes) per second, and bursts of up to burst. If perSecond is 0, there is no limit.
func (i *Info) EncodeMeter(name string, index int, perSecond, burst int64) (*v1.Entity, error) {
	m, err := i.meters.find(name)
	if err != nil {
		return nil, err
	}
	if index < 0 || int64(index) >= m.Size {
		return nil, fmt.Errorf("meter %s has no cell %d, only %d", name, index, m.Size)
	}
	me := &v1.MeterEntry{MeterId: m.Preamble.Id, Index: &v1.Index{Index: int64(index)}}
	if perSecond > 0 {
		me.Config = &v1.MeterConfig{Cir: perSecond, Cburst: burst, Pir: perSecond, Pburst: burst}
	}
	return &v1.Entity{Entity: &v1.Entity_MeterEntry{MeterEntry: me}}, nil
}

// registerEntity returns the entity of one cell of a register, or of all cells if index < 0.
func (i *Info) registerEntity(name string, index int, value any) (*v1.Entity, error) {
	r, err := i.registers.find(name)
	if err != nil {
		return nil, err
	}
	re := &v1.RegisterEntry{RegisterId: r.Preamble.Id}
	if index >= 0 {
		if index >= int(r.Size) {
			return nil, fmt.Errorf("register %s has no cell %d, only %d", name, index, r.Size)
		}
		re.Index = &v1.Index{Index: int64(index)}
	}
	if value != nil {
		v, err := MakeValue(value, int(r.GetTypeSpec().GetBitstring().GetBit().GetBitwidth()))
		if err != nil {
			return nil, fmt.Errorf("register %s: %w", name, err)
		}
		re.Data = &v1.P4Data{Data: &v1.P4Data_Bitstring{Bitstring: v}}
	}
	return &v1.Entity{Entity: &v1.Entity_RegisterEntry{RegisterEntry: re}}, nil
}

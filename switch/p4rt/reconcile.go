package p4rt

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"
)

// reconcile commits cfg and preserves the forwarding state (section 14, RECONCILE_AND_COMMIT):
// every entity that controllers have written, and the registers, counters and meters that packets
// have changed. All of it must fit the new program, by id; else the first that does not is named,
// and nothing changes.
//
// What controllers wrote is copied while packets still pass the old pipeline; what packets change
// is copied in the pause in which the pipelines are exchanged.
// may says why the change must not begin any more.
func (s *Server) reconcile(cfg *p4v1.ForwardingPipelineConfig, may func() error) error {
	if s.live == nil {
		return s.replace(cfg, may)
	}
	if cfg != nil && bytes.Equal(cfg.P4DeviceConfig, s.live.pushed.P4DeviceConfig) &&
		proto.Equal(cfg.P4Info, s.live.pushed.P4Info) {
		s.live.pushed = proto.CloneOf(cfg) // the same program: only the cookie changes
		s.saved = nil
		return nil
	}
	c, p, err := s.prepare(cfg)
	if err != nil {
		return err
	}
	old := s.live
	if err := old.copyWritten(c); err != nil {
		return invalid("the forwarding state cannot be preserved: %s", canonical(err).Message())
	}
	if err := may(); err != nil {
		return err
	}
	if err := p.Activate(c.pipe, func() error { return old.copyCells(c) }); err != nil {
		return invalid("the forwarding state cannot be preserved: %s", canonical(err).Message())
	}
	for id, d := range old.digestStates {
		if n := c.digestStates[id]; n != nil {
			n.configure(d.config())
		}
	}
	s.goLive(c)
	return nil
}

// copyWritten writes into c what controllers have written into old, in the order in which one
// entity depends on another.
func (old *config) copyWritten(c *config) error {
	var updates []*p4v1.Update
	var readErr error
	read := func(q *p4v1.Entity, typ p4v1.Update_Type) {
		err := old.read(q, func(e *p4v1.Entity) {
			updates = append(updates,
				&p4v1.Update{Type: typ, Entity: e})
		})
		if err != nil && readErr == nil {
			readErr = err
		}
	}
	read(&p4v1.Entity{Entity: &p4v1.Entity_ActionProfileMember{
		ActionProfileMember: &p4v1.ActionProfileMember{}}}, p4v1.Update_INSERT)
	read(&p4v1.Entity{Entity: &p4v1.Entity_ActionProfileGroup{
		ActionProfileGroup: &p4v1.ActionProfileGroup{}}}, p4v1.Update_INSERT)
	read(&p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{}}}, p4v1.Update_INSERT)
	read(&p4v1.Entity{Entity: &p4v1.Entity_ValueSetEntry{ValueSetEntry: &p4v1.ValueSetEntry{}}},
		p4v1.Update_MODIFY)
	read(&p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{}}},
		p4v1.Update_INSERT)
	for t := range old.defaults {
		read(&p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{
			TableId: t.id, IsDefaultAction: true}}}, p4v1.Update_MODIFY)
	}
	if readErr != nil {
		return readErr
	}
	for _, u := range updates {
		if te := u.Entity.GetTableEntry(); te != nil && te.IsConst {
			continue // the program's own
		}
		if v := u.Entity.GetValueSetEntry(); v != nil && len(v.Members) == 0 {
			continue
		}
		if te := u.Entity.GetTableEntry(); te != nil && !te.IsDefaultAction && c.holds(te) {
			u.Type = p4v1.Update_MODIFY // an initial entry of the new program
		}
		if err := c.write(u); err != nil {
			return invalid("%v: %s", u.Entity, canonical(err).Message())
		}
	}
	return nil
}

// holds reports whether the entry's table has an entry with its key.
func (c *config) holds(te *p4v1.TableEntry) bool {
	t := c.tables[te.TableId]
	if t == nil {
		return false
	}
	e, err := t.entryKey(te)
	return err == nil && c.entries[t][matchKey(e.Match, e.Priority)] != nil
}

// copyCells copies registers, counters, meters and direct resources.
func (old *config) copyCells(c *config) error {
	gone := func(what, name string) error {
		return fmt.Errorf("%s %s is not in the new program, or of another size", what, name)
	}
	for _, id := range slices.Sorted(maps.Keys(old.registers)) {
		from, to := old.registers[id], c.registers[id]
		if to == nil || to.size != from.size || to.typ.width != from.typ.width {
			return gone("register", from.name)
		}
		values, err := old.pipe.ReadRegisters(from.name, 0, from.size)
		if err != nil {
			return err
		}
		for i, v := range values {
			if isZero(v) {
				continue
			}
			if err := c.pipe.WriteRegister(to.name, i, v); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(old.counters)) {
		from, to := old.counters[id], c.counters[id]
		if to == nil || to.size != from.size {
			return gone("counter", from.name)
		}
		for i := range from.size {
			d, err := old.pipe.ReadCounter(from.name, i)
			if err != nil {
				return err
			}
			if err := c.pipe.WriteCounter(to.name, i, d); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(old.meters)) {
		from, to := old.meters[id], c.meters[id]
		if to == nil || to.size != from.size {
			return gone("meter", from.name)
		}
		for i := range from.size {
			m, err := old.pipe.ReadMeter(from.name, i)
			if err != nil {
				return err
			}
			if err := c.pipe.WriteMeter(to.name, i, m); err != nil {
				return err
			}
		}
	}
	return old.copyDirect(c)
}

func (old *config) copyDirect(c *config) error {
	for _, from := range old.tableOrder {
		if from.counter == nil && from.meter == nil {
			continue
		}
		to := c.tables[from.id]
		if to == nil || from.counter != nil && to.counter == nil || from.meter != nil &&
			to.meter == nil {
			return fmt.Errorf("the direct resources of table %s are not in the new program",
				from.name)
		}
		entries, err := old.pipe.Entries(from.name)
		if err != nil {
			return err
		}
		for i := range entries {
			e := &entries[i]
			if c.entries[to][matchKey(e.Match, e.Priority)] == nil {
				continue // a const entry of the old program
			}
			if from.counter != nil {
				d, err := old.pipe.DirectCounter(from.name, e)
				if err != nil {
					return err
				}
				if err := c.pipe.SetDirectCounter(to.name, e, d); err != nil {
					return err
				}
			}
			if from.meter != nil {
				m, err := old.pipe.DirectMeter(from.name, e)
				if err != nil {
					return err
				}
				if err := c.pipe.SetDirectMeter(to.name, e, m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

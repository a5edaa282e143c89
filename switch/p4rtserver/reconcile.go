package p4rtserver

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
)

// reconcile commits cfg and preserves the forwarding state (section 14, RECONCILE_AND_COMMIT). The
// state includes every entity that controllers have written, and the registers, counters and meters
// that packets have changed. All of it must fit the new program, by id. Otherwise the error names
// the first object that does not fit, and nothing changes.
//
// While packets still pass the old pipeline, reconcile copies the objects that controllers wrote.
// In the pause in which the pipelines are exchanged, it copies the values that packets change. may
// returns an error if the change must not begin any more.
func (s *Server) reconcile(cfg *p4v1.ForwardingPipelineConfig, may func() error) error {
	if s.live == nil {
		return s.replace(cfg, may)
	}
	if cfg != nil && bytes.Equal(cfg.P4DeviceConfig, s.live.pushed.P4DeviceConfig) &&
		proto.Equal(cfg.P4Info, s.live.pushed.P4Info) {
		s.live.pushed = proto.CloneOf(cfg) // the program is the same, and only the cookie changes
		s.saved = nil
		return nil
	}
	c, p, err := s.prepare(cfg)
	if err != nil {
		return err
	}
	old := s.live
	if err := old.copyWritten(c); err != nil {
		return translate.Invalidf("the forwarding state cannot be preserved: %s", translate.Canonical(err).Message())
	}
	if err := may(); err != nil {
		return err
	}
	if err := p.Activate(c.pipe, func() error { return old.copyCells(c) }); err != nil {
		return translate.Invalidf("the forwarding state cannot be preserved: %s", translate.Canonical(err).Message())
	}
	for id, d := range old.digestStates {
		if n := c.digestStates[id]; n != nil {
			n.configure(d.config())
		}
	}
	s.goLive(c)
	return nil
}

// copyWritten writes the objects that controllers have written from old to c, in the order of their
// dependencies.
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
			TableId: t.ID, IsDefaultAction: true}}}, p4v1.Update_MODIFY)
	}
	if readErr != nil {
		return readErr
	}
	for _, u := range updates {
		if te := u.Entity.GetTableEntry(); te != nil && te.IsConst {
			continue // the entry is part of the program itself
		}
		if v := u.Entity.GetValueSetEntry(); v != nil && len(v.Members) == 0 {
			continue
		}
		if te := u.Entity.GetTableEntry(); te != nil && !te.IsDefaultAction && c.holds(te) {
			u.Type = p4v1.Update_MODIFY // the new program already contains this entry
		}
		if err := c.write(u); err != nil {
			return translate.Invalidf("%v: %s", u.Entity, translate.Canonical(err).Message())
		}
	}
	return nil
}

// holds reports whether the entry's table has an entry with the same key.
func (c *config) holds(te *p4v1.TableEntry) bool {
	t := c.Tables[te.TableId]
	if t == nil {
		return false
	}
	e, err := t.EntryKey(te)
	return err == nil && c.entries[t][translate.MatchKey(e.Match, e.Priority)] != nil
}

// copyCells copies registers, counters, meters and direct resources.
func (old *config) copyCells(c *config) error {
	gone := func(what, name string) error {
		return fmt.Errorf("%s %s is not in the new program, or of another size", what, name)
	}
	for _, id := range slices.Sorted(maps.Keys(old.Registers)) {
		from, to := old.Registers[id], c.Registers[id]
		if to == nil || to.Size != from.Size || to.Type.Width != from.Type.Width {
			return gone("register", from.Name)
		}
		values, err := old.pipe.ReadRegisters(from.Name, 0, from.Size)
		if err != nil {
			return err
		}
		for i, v := range values {
			if translate.IsZero(v) {
				continue
			}
			if err := c.pipe.WriteRegister(to.Name, i, v); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(old.Counters)) {
		from, to := old.Counters[id], c.Counters[id]
		if to == nil || to.Size != from.Size {
			return gone("counter", from.Name)
		}
		for i := range from.Size {
			d, err := old.pipe.ReadCounter(from.Name, i)
			if err != nil {
				return err
			}
			if err := c.pipe.WriteCounter(to.Name, i, d); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(old.Meters)) {
		from, to := old.Meters[id], c.Meters[id]
		if to == nil || to.Size != from.Size {
			return gone("meter", from.Name)
		}
		for i := range from.Size {
			m, err := old.pipe.ReadMeter(from.Name, i)
			if err != nil {
				return err
			}
			if err := c.pipe.WriteMeter(to.Name, i, m); err != nil {
				return err
			}
		}
	}
	return old.copyDirect(c)
}

func (old *config) copyDirect(c *config) error {
	for _, from := range old.TableOrder {
		if from.Counter == nil && from.Meter == nil {
			continue
		}
		to := c.Tables[from.ID]
		if to == nil || from.Counter != nil && to.Counter == nil || from.Meter != nil &&
			to.Meter == nil {
			return fmt.Errorf("the direct resources of table %s are not in the new program",
				from.Name)
		}
		entries, err := old.pipe.Entries(from.Name)
		if err != nil {
			return err
		}
		for i := range entries {
			e := &entries[i]
			if c.entries[to][translate.MatchKey(e.Match, e.Priority)] == nil {
				continue // the entry is a const entry of the old program
			}
			if from.Counter != nil {
				d, err := old.pipe.DirectCounter(from.Name, e)
				if err != nil {
					return err
				}
				if err := c.pipe.SetDirectCounter(to.Name, e, d); err != nil {
					return err
				}
			}
			if from.Meter != nil {
				m, err := old.pipe.DirectMeter(from.Name, e)
				if err != nil {
					return err
				}
				if err := c.pipe.SetDirectMeter(to.Name, e, m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

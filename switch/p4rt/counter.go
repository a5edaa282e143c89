package p4rt

import (
	"maps"
	"math"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/target"
)

func counterOf(d *p4v1.CounterData) target.CounterData {
	return target.CounterData{Packets: uint64(d.GetPacketCount()), Bytes: uint64(d.GetByteCount())}
}

func counterData(d target.CounterData) *p4v1.CounterData {
	return &p4v1.CounterData{PacketCount: int64(min(d.Packets, math.MaxInt64)),
		ByteCount: int64(min(d.Bytes, math.MaxInt64))}
}

// cells is the range of an array that an Index means: one cell, or all where it is unset.
func cells(what string, size int, i *p4v1.Index) (first, count int, err error) {
	switch {
	case i == nil:
		return 0, size, nil
	case i.Index < 0:
		return 0, 0, invalid("the index %d is negative", i.Index)
	case i.Index >= int64(size):
		return 0, 0, fail(codes.OutOfRange, "%s has %d cells; there is none at index %d", what,
			size, i.Index)
	}
	return int(i.Index), 1, nil
}

// onlyModify refuses other updates of entities that are always there.
func onlyModify(what string, typ p4v1.Update_Type) error {
	if typ != p4v1.Update_MODIFY {
		return invalid("a %s can only be modified, not %v", what, typ)
	}
	return nil
}

func (c *config) writeCounter(typ p4v1.Update_Type, e *p4v1.CounterEntry) error {
	if err := onlyModify("counter", typ); err != nil {
		return err
	}
	a := c.counters[e.CounterId]
	if a == nil {
		return invalid("there is no counter %d", e.CounterId)
	}
	first, count, err := cells("counter "+a.name, a.size, e.Index)
	if err != nil || e.Data == nil {
		return err
	}
	if e.Data.PacketCount < 0 || e.Data.ByteCount < 0 {
		return invalid("a count is not negative")
	}
	for i := first; i < first+count; i++ {
		if err := c.pipe.WriteCounter(a.name, i, counterOf(e.Data)); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) readCounters(q *p4v1.CounterEntry, emit func(*p4v1.Entity)) error {
	which, err := pick(c.schema, "counter", q.CounterId, c.counters, c.counterOrder)
	if err != nil {
		return err
	}
	for _, a := range which {
		index := q.Index
		if q.CounterId == 0 {
			index = nil
		}
		first, count, err := cells("counter "+a.name, a.size, index)
		if err != nil {
			return err
		}
		for i := first; i < first+count; i++ {
			d, err := c.pipe.ReadCounter(a.name, i)
			if err != nil {
				return err
			}
			emit(&p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{
				CounterId: a.id, Index: &p4v1.Index{Index: int64(i)}, Data: counterData(d),
			}}})
		}
	}
	return nil
}

// pick returns the object of that id, or all if it is 0; none if it is left out of the program.
func pick[T any](s *schema, what string, id uint32, byID map[uint32]*T, all []*T) ([]*T, error) {
	if id == 0 {
		return all, nil
	}
	if o := byID[id]; o != nil {
		return []*T{o}, nil
	}
	if _, ok := s.leftOut[id]; ok {
		return nil, nil
	}
	return nil, s.unknown(what, id)
}

func sortedKeys[V any](m map[uint32]V) []uint32 { return slices.Sorted(maps.Keys(m)) }

func (c *config) writeDirectCounter(typ p4v1.Update_Type, e *p4v1.DirectCounterEntry) error {
	if err := onlyModify("direct counter", typ); err != nil {
		return err
	}
	t, entry, err := c.directEntry(e.TableEntry, "counter")
	if err != nil || e.Data == nil {
		return err
	}
	if e.Data.PacketCount < 0 || e.Data.ByteCount < 0 {
		return invalid("a count is not negative")
	}
	return c.pipe.SetDirectCounter(t.name, entry, counterOf(e.Data))
}

func (c *config) readDirectCounters(q *p4v1.DirectCounterEntry, emit func(*p4v1.Entity)) error {
	return c.eachDirect(q.TableEntry, "counter", func(t *table, e *target.TableEntry) error {
		d, err := c.pipe.DirectCounter(t.name, e)
		if err != nil {
			return err
		}
		emit(&p4v1.Entity{Entity: &p4v1.Entity_DirectCounterEntry{
			DirectCounterEntry: &p4v1.DirectCounterEntry{
				TableEntry: t.keyOf(e), Data: counterData(d),
			}}})
		return nil
	})
}

// directEntry finds the entry that a direct resource of the given kind belongs to.
func (c *config) directEntry(te *p4v1.TableEntry, kind string) (*table, *target.TableEntry, error) {
	if te == nil {
		return nil, nil, invalid("the table entry of the direct %s is missing", kind)
	}
	t, err := c.table(te.TableId)
	if err != nil {
		return nil, nil, err
	}
	if !t.has(kind) {
		return nil, nil, invalid("table %s has no direct %s", t.name, kind)
	}
	if te.IsDefaultAction {
		return nil, nil, fail(codes.Unimplemented,
			"the default entry of table %s has no direct %s on this target", t.name, kind)
	}
	e, err := t.entryKey(te)
	if err != nil {
		return nil, nil, err
	}
	if c.entries[t][matchKey(e.Match, e.Priority)] == nil {
		return nil, nil, fail(codes.NotFound, "table %s has no entry with this match and priority",
			t.name)
	}
	return t, e, nil
}

func (t *table) has(kind string) bool {
	if kind == "counter" {
		return t.counter != nil
	}
	return t.meter != nil
}

// eachDirect calls f for the entries whose direct resource a read asks for: all of all tables for
// table id 0, all of a table without a match, else one.
func (c *config) eachDirect(te *p4v1.TableEntry, kind string,
	f func(*table, *target.TableEntry) error) error {
	if te == nil {
		return invalid("the table entry of the direct %s is missing; an empty one means all", kind)
	}
	which := c.tableOrder
	if _, ok := c.leftOut[te.TableId]; ok {
		return nil
	}
	if te.TableId != 0 {
		t, err := c.table(te.TableId)
		if err != nil {
			return err
		}
		if !t.has(kind) {
			return invalid("table %s has no direct %s", t.name, kind)
		}
		if te.IsDefaultAction || len(te.Match) > 0 {
			t, e, err := c.directEntry(te, kind)
			if err != nil {
				return err
			}
			return f(t, e)
		}
		which = []*table{t}
	}
	for _, t := range which {
		if !t.has(kind) {
			continue
		}
		entries, err := c.pipe.Entries(t.name)
		if err != nil {
			return err
		}
		for i := range entries {
			if te.Priority != 0 && entries[i].Priority != int(te.Priority) {
				continue
			}
			if err := f(t, &entries[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyOf describes the key of an entry.
func (t *table) keyOf(e *target.TableEntry) *p4v1.TableEntry {
	out := &p4v1.TableEntry{TableId: t.id, Match: fieldsOf(t.keys, e.Match)}
	if t.needPriority {
		out.Priority = int32(e.Priority)
	}
	return out
}

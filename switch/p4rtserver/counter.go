package p4rtserver

import (
	"maps"
	"math"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

func counterOf(d *p4v1.CounterData) target.CounterData {
	return target.CounterData{Packets: uint64(d.GetPacketCount()), Bytes: uint64(d.GetByteCount())}
}

func counterData(d target.CounterData) *p4v1.CounterData {
	return &p4v1.CounterData{PacketCount: int64(min(d.Packets, math.MaxInt64)),
		ByteCount: int64(min(d.Bytes, math.MaxInt64))}
}

// cells returns the cells of an array that an Index selects: one cell, or all cells if the Index is
// unset.
func cells(what string, size int, i *p4v1.Index) (first, count int, err error) {
	switch {
	case i == nil:
		return 0, size, nil
	case i.Index < 0:
		return 0, 0, translate.Invalidf("the index %d is negative", i.Index)
	case i.Index >= int64(size):
		return 0, 0, translate.Errorf(codes.OutOfRange, "%s has %d cells; there is none at index %d", what,
			size, i.Index)
	}
	return int(i.Index), 1, nil
}

// onlyModify refuses updates other than MODIFY for entities that always exist.
func onlyModify(what string, typ p4v1.Update_Type) error {
	if typ != p4v1.Update_MODIFY {
		return translate.Invalidf("a %s can only be modified, not %v", what, typ)
	}
	return nil
}

func (c *config) writeCounter(typ p4v1.Update_Type, e *p4v1.CounterEntry) error {
	if err := onlyModify("counter", typ); err != nil {
		return err
	}
	a := c.Counters[e.CounterId]
	if a == nil {
		return translate.Invalidf("there is no counter %d", e.CounterId)
	}
	first, count, err := cells("counter "+a.Name, a.Size, e.Index)
	if err != nil || e.Data == nil {
		return err
	}
	if e.Data.PacketCount < 0 || e.Data.ByteCount < 0 {
		return translate.Invalidf("a count is not negative")
	}
	for i := first; i < first+count; i++ {
		if err := c.pipe.WriteCounter(a.Name, i, counterOf(e.Data)); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) readCounters(q *p4v1.CounterEntry, emit func(*p4v1.Entity)) error {
	which, err := pick(c.Schema, "counter", q.CounterId, c.Counters, c.CounterOrder)
	if err != nil {
		return err
	}
	for _, a := range which {
		index := q.Index
		if q.CounterId == 0 {
			index = nil
		}
		first, count, err := cells("counter "+a.Name, a.Size, index)
		if err != nil {
			return err
		}
		for i := first; i < first+count; i++ {
			d, err := c.pipe.ReadCounter(a.Name, i)
			if err != nil {
				return err
			}
			emit(&p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{
				CounterId: a.ID, Index: &p4v1.Index{Index: int64(i)}, Data: counterData(d),
			}}})
		}
	}
	return nil
}

// pick returns the object with this id, or all objects if the id is 0. It returns no objects if p4c
// left the object out of the program.
func pick[T any](s *translate.Schema, what string, id uint32, byID map[uint32]*T, all []*T) ([]*T, error) {
	if id == 0 {
		return all, nil
	}
	if o := byID[id]; o != nil {
		return []*T{o}, nil
	}
	if _, ok := s.LeftOut[id]; ok {
		return nil, nil
	}
	return nil, s.Unknown(what, id)
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
		return translate.Invalidf("a count is not negative")
	}
	return c.pipe.SetDirectCounter(t.Name, entry, counterOf(e.Data))
}

func (c *config) readDirectCounters(q *p4v1.DirectCounterEntry, emit func(*p4v1.Entity)) error {
	return c.eachDirect(q.TableEntry, "counter", func(t *translate.Table, e *target.TableEntry) error {
		d, err := c.pipe.DirectCounter(t.Name, e)
		if err != nil {
			return err
		}
		emit(&p4v1.Entity{Entity: &p4v1.Entity_DirectCounterEntry{
			DirectCounterEntry: &p4v1.DirectCounterEntry{
				TableEntry: t.KeyOf(e), Data: counterData(d),
			}}})
		return nil
	})
}

// directEntry finds the entry to which a direct resource of the given kind belongs.
func (c *config) directEntry(te *p4v1.TableEntry, kind string) (*translate.Table, *target.TableEntry, error) {
	if te == nil {
		return nil, nil, translate.Invalidf("the table entry of the direct %s is missing", kind)
	}
	t, err := c.table(te.TableId)
	if err != nil {
		return nil, nil, err
	}
	if !t.Has(kind) {
		return nil, nil, translate.Invalidf("table %s has no direct %s", t.Name, kind)
	}
	if te.IsDefaultAction {
		return nil, nil, translate.Errorf(codes.Unimplemented,
			"the default entry of table %s has no direct %s on this target", t.Name, kind)
	}
	e, err := t.EntryKey(te)
	if err != nil {
		return nil, nil, err
	}
	if c.entries[t][translate.MatchKey(e.Match, e.Priority)] == nil {
		return nil, nil, translate.Errorf(codes.NotFound, "table %s has no entry with this match and priority",
			t.Name)
	}
	return t, e, nil
}

// eachDirect calls f for each entry whose direct resource a read selects. If the table id is 0,
// these are the entries of all tables. If there is no match, these are all entries of the table.
// Otherwise it is one entry.
func (c *config) eachDirect(te *p4v1.TableEntry, kind string,
	f func(*translate.Table, *target.TableEntry) error) error {
	if te == nil {
		return translate.Invalidf("the table entry of the direct %s is missing; an empty one means all", kind)
	}
	which := c.TableOrder
	if _, ok := c.LeftOut[te.TableId]; ok {
		return nil
	}
	if te.TableId != 0 {
		t, err := c.table(te.TableId)
		if err != nil {
			return err
		}
		if !t.Has(kind) {
			return translate.Invalidf("table %s has no direct %s", t.Name, kind)
		}
		if te.IsDefaultAction || len(te.Match) > 0 {
			t, e, err := c.directEntry(te, kind)
			if err != nil {
				return err
			}
			return f(t, e)
		}
		which = []*translate.Table{t}
	}
	for _, t := range which {
		if !t.Has(kind) {
			continue
		}
		entries, err := c.pipe.Entries(t.Name)
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

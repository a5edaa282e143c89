package tables

import (
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// OnlyAction is the action of a table that can run no other and tells nobody: no keys, and a
// default entry that stands in the program.
func (t *Table) OnlyAction() *bmv2json.Action {
	d := t.Source.Default
	if len(t.keys) > 0 || d == nil || !d.ConstEntry || len(d.Params) > 0 || t.profile != nil {
		return nil
	}
	return d.Action
}

// Table is a compiled table and its entries.
type Table struct {
	Source  *bmv2json.Table
	packets *sync.Mutex // held while a packet is in the program
	keys    []keySource
	// lanes is the length of a packed key; key is where one is put together.
	lanes int
	key   []uint64
	find  finder // nil for a table without keys
	// find, where keys have one lane: there is no interface between the table and what finds
	words  *WordMap
	masked *maskFinder

	byMatch map[string]*Entry // what the control plane sees
	Default *Entry            // the default entry, or nil
	first   *Entry            // the program's own default entry
	seq     uint64
	handles handles
	idle    map[*Entry]struct{} // the entries that have idle timeouts

	counters  bool
	ages      bool // entries may have idle timeouts
	Records   bool // one of these, or a meter: a hit changes the entry
	meter     *bmv2json.Meter
	meterLane int
	meterMask uint64

	profile *Profile
}

// NewTable makes a table that is empty. If its entries refer to members and groups these are
// profile's.
func NewTable(src *bmv2json.Table, lay *packet.Layout, profile *Profile, packets *sync.Mutex) *Table {
	t := &Table{Source: src, packets: packets, byMatch: map[string]*Entry{}, idle: map[*Entry]struct{}{},
		counters: src.WithCounters, ages: src.SupportTimeout, profile: profile}
	t.packKeys(lay)
	switch {
	case len(t.keys) == 0:
	case src.Match == bmv2json.MatchExact:
		f := &exactFinder{newLookupMap(t.lanes)}
		t.find = f
		t.words, _ = f.m.(*WordMap)
	case src.Match == bmv2json.MatchRange:
		f := &rangeFinder{ranges: make([]bool, t.lanes)}
		for _, k := range t.keys {
			f.ranges[k.to] = k.kind == bmv2json.MatchRange
		}
		t.find = f
	default:
		f := &maskFinder{lpm: src.Match == bmv2json.MatchLPM, lanes: t.lanes,
			tmp: make([]uint64, t.lanes)}
		t.find = f
		if t.lanes == 1 {
			t.masked = f
		}
	}
	if m := src.DirectMeter; m != nil {
		if m.Result.IsValidity() || m.Result.Field.VL || m.Result.Width() > 64 {
			refusal.Panic(m.Path, "a meter's result in %s", m.Result)
		}
		t.meter, t.meterLane, t.meterMask = m, lay.LaneOf(m.Result), wideint.TopMask(m.Result.Width())
	}
	t.Records = t.meter != nil || t.counters || t.ages
	return t
}

// Lookup is the entry that a packet hits, or nil.
func (t *Table) Lookup(st *packet.State) *Entry {
	switch {
	case t.words != nil:
		return t.words.Find(t.word(st))
	case t.masked != nil:
		return t.masked.word(t.word(st))
	case t.find == nil:
		return nil
	}
	return t.find.find(t.buildKey(st))
}

// RecordHit notes in an entry that a packet has hit it.
func (t *Table) RecordHit(st *packet.State, e *Entry) {
	if t.meter != nil {
		st.Lanes[t.meterLane] = e.Meter.Color(st.ReceivedLength, st.Now) & t.meterMask
	}
	if t.counters {
		e.Counter.Packets++
		e.Counter.Bytes += uint64(st.ReceivedLength)
	}
	if t.ages {
		e.age.Hit = st.Now
	}
}

// AfterHit is where control goes behind the table's i-th action, if an entry was found; behind an
// entry without an action if i is negative.
func (t *Table) AfterHit(i int) bmv2json.Node {
	switch {
	case t.Source.HitMiss:
		return t.Source.Hit
	case i < 0:
		return t.Source.BaseDefaultNext
	}
	return t.Source.Next[i]
}

// AfterMiss is where control goes behind the table's i-th action, if no entry was found; behind a
// table without a default entry if i is negative.
func (t *Table) AfterMiss(i int) bmv2json.Node {
	switch {
	case t.Source.HitMiss:
		return t.Source.Miss
	case i < 0:
		return t.Source.BaseDefaultNext
	}
	return t.Source.Next[i]
}

// SoleKey is what a table is looked up with if its key is one whole field of up to 64 bits that has
// to match exactly: the map, the field's lane, and the header that has to be valid, or -1.
func (t *Table) SoleKey() (words *WordMap, lane, header int, ok bool) {
	if t.words == nil || len(t.keys) != 1 {
		return nil, 0, 0, false
	}
	k := t.keys[0]
	if k.valid >= 0 || k.mask != nil {
		return nil, 0, 0, false
	}
	return t.words, k.lane, k.header, true
}

// KeyRuns are the lanes that a look-up reads.
func (t *Table) KeyRuns() (runs []packet.Run) {
	for _, k := range t.keys {
		if k.valid < 0 {
			runs = append(runs, packet.Run{From: k.lane, To: k.lane + k.lanes})
		}
	}
	return runs
}

// ColorLane is the lane that a direct meter's result is written to, if the table has one.
func (t *Table) ColorLane() (lane int, ok bool) { return t.meterLane, t.meter != nil }

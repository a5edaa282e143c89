package interp

import (
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// onlyAction is the action of a table that can run no other and tells nobody: no keys, and a
// default entry that stands in the program.
func (t *table) onlyAction() *bmv2json.Action {
	d := t.src.Default
	if len(t.keys) > 0 || d == nil || !d.ConstEntry || len(d.Params) > 0 || t.profile != nil {
		return nil
	}
	return d.Action
}

// table is a compiled table and its entries.
type table struct {
	src     *bmv2json.Table
	packets *sync.Mutex // held while a packet is in the program
	keys    []keySource
	// lanes is the length of a packed key; key is where one is put together.
	lanes int
	key   []uint64
	find  finder // nil for a table without keys
	// find, where keys have one lane: there is no interface between the table and what finds
	words  *wordMap
	masked *maskFinder

	byMatch map[string]*entry // what the control plane sees
	def     *entry            // the default entry, or nil
	first   *entry            // the program's own default entry
	seq     uint64
	handles handles
	idle    map[*entry]struct{} // the entries that have idle timeouts

	counters  bool
	ages      bool // entries may have idle timeouts
	records   bool // one of these, or a meter: a hit changes the entry
	meter     *bmv2json.Meter
	meterLane int
	meterMask uint64

	profile *profile
}

// newTable makes a table that is empty. If its entries refer to members and groups these are
// profile's.
func newTable(src *bmv2json.Table, lay *layout, profile *profile, packets *sync.Mutex) *table {
	t := &table{src: src, packets: packets, byMatch: map[string]*entry{}, idle: map[*entry]struct{}{},
		counters: src.WithCounters, ages: src.SupportTimeout, profile: profile}
	t.packKeys(lay)
	switch {
	case len(t.keys) == 0:
	case src.Match == bmv2json.MatchExact:
		f := &exactFinder{newLookupMap(t.lanes)}
		t.find = f
		t.words, _ = f.m.(*wordMap)
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
			refuse(m.Path, "a meter's result in %s", m.Result)
		}
		t.meter, t.meterLane, t.meterMask = m, lay.lane(m.Result), topMask(m.Result.Width())
	}
	t.records = t.meter != nil || t.counters || t.ages
	return t
}

// lookup is the entry that a packet hits, or nil.
func (t *table) lookup(st *state) *entry {
	switch {
	case t.words != nil:
		return t.words.find(t.word(st))
	case t.masked != nil:
		return t.masked.word(t.word(st))
	case t.find == nil:
		return nil
	}
	return t.find.find(t.buildKey(st))
}

// recordHit notes in an entry that a packet has hit it.
func (t *table) recordHit(st *state, e *entry) {
	if t.meter != nil {
		st.w[t.meterLane] = e.meter.color(st.inLen, st.now) & t.meterMask
	}
	if t.counters {
		e.counter.Packets++
		e.counter.Bytes += uint64(st.inLen)
	}
	if t.ages {
		e.age.Hit = st.now
	}
}

// afterHit is where control goes behind the table's i-th action, if an entry was found; behind an
// entry without an action if i is negative.
func (t *table) afterHit(i int) bmv2json.Node {
	switch {
	case t.src.HitMiss:
		return t.src.Hit
	case i < 0:
		return t.src.BaseDefaultNext
	}
	return t.src.Next[i]
}

// afterMiss is where control goes behind the table's i-th action, if no entry was found; behind a
// table without a default entry if i is negative.
func (t *table) afterMiss(i int) bmv2json.Node {
	switch {
	case t.src.HitMiss:
		return t.src.Miss
	case i < 0:
		return t.src.BaseDefaultNext
	}
	return t.src.Next[i]
}

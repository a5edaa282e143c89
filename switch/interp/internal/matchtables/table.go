package matchtables

import (
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// OnlyAction is the action of a table that can run no other: it has no keys, and a default entry
// that stands in the program. It is nil for other tables.
func (t *Table) OnlyAction() *bmv2json.Action {
	d := t.Source.Default
	if len(t.keys) > 0 || d == nil || !d.ConstEntry || len(d.Params) > 0 || t.actionProfile != nil {
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
	Records   bool // one of these, or a meter: RecordHit has something to do
	meter     *bmv2json.Meter
	meterLane int
	meterMask uint64

	actionProfile *ActionProfile
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

// AfterHit is where control goes after the table's i-th action, if an entry was found; after an
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

// AfterMiss is where control goes after the table's i-th action, if no entry was found; after a
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

// ColorLane is the lane that a direct meter's result is written to, if the table has one.
func (t *Table) ColorLane() (lane int, ok bool) { return t.meterLane, t.meter != nil }

// keySource is one key: which lanes it comes from, and where in the packed key it goes.
type keySource struct {
	kind   bmv2json.MatchKind
	lane   int
	lanes  int
	header int // must be valid, or the key is 0; -1 for metadata
	valid  int // a validity key: the header; -1 otherwise
	width  int
	to     int
	shift  int
	mask   []uint64 // the static mask, by lane; nil for none
}

package matchtables

import (
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// OnlyAction returns the action of a table that has only one: the table has no keys, and its
// default entry is fixed in the program. For other tables it returns nil.
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
	// lanes is the length of a packed key; key is the buffer in which it is built.
	lanes int
	key   []uint64
	find  finder // nil for a table without keys
	// find's value if keys have one lane: calling it directly avoids the interface
	words  *WordMap
	masked *maskFinder

	byMatch map[string]*Entry // the control plane's index
	Default *Entry            // the default entry, or nil
	first   *Entry            // the program's own default entry
	seq     uint64
	handles handles
	idle    map[*Entry]struct{} // the entries that have idle timeouts

	counters  bool
	ages      bool // entries may have idle timeouts
	Records   bool // the table has direct counters, a meter or ageing, so RecordHit must be called
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

// AfterHit returns the next node after the table's i-th action if an entry was found. Negative i:
// the entry had no action.
func (t *Table) AfterHit(i int) bmv2json.Node {
	switch {
	case t.Source.HitMiss:
		return t.Source.Hit
	case i < 0:
		return t.Source.BaseDefaultNext
	}
	return t.Source.Next[i]
}

// AfterMiss returns the next node after the table's i-th action if no entry was found. Negative i:
// the table has no default entry.
func (t *Table) AfterMiss(i int) bmv2json.Node {
	switch {
	case t.Source.HitMiss:
		return t.Source.Miss
	case i < 0:
		return t.Source.BaseDefaultNext
	}
	return t.Source.Next[i]
}

// ColorLane is the lane for the result of a direct meter, if the table has one.
func (t *Table) ColorLane() (lane int, ok bool) { return t.meterLane, t.meter != nil }

// keySource is one key: the lanes of its field, and its position in the packed key.
type keySource struct {
	kind   bmv2json.MatchKind
	lane   int
	lanes  int
	header int // if this header is invalid, the key is 0; -1 for metadata
	valid  int // for a validity key, the header; otherwise -1
	width  int
	to     int
	shift  int
	mask   []uint64 // the static mask, by lane; nil for none
}

package matchtables

import (
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// OnlyAction returns the action of a table that can run only one: the table has no keys, and the
// program fixes its default entry. For other tables it returns nil.
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
	// lanes is the length of a packed key. key is the buffer in which the key is built.
	lanes int
	key   []uint64
	find  finder // nil for a table without keys
	// The value of find if keys have one lane. Calling it directly avoids an interface call.
	words  *WordMap
	masked *maskFinder

	byMatch map[string]*Entry // the index that the control plane uses
	Default *Entry            // the default entry, or nil
	first   *Entry            // the default entry that the program defines
	seq     uint64
	handles handles
	idle    map[*Entry]struct{} // the entries that have idle timeouts

	counters bool
	ages     bool // set if entries may have idle timeouts
	// set if the table has direct counters, a meter or idle timeouts, so that RecordHit must be
	// called
	Records   bool
	meter     *bmv2json.Meter
	meterLane int
	meterMask uint64

	actionProfile *ActionProfile
}

// RecordHit records in an entry that a packet has hit it.
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

// AfterHit returns the next node if an entry was found and the table's i-th action ran. A negative
// i means that the entry had no action.
func (t *Table) AfterHit(i int) bmv2json.Node {
	switch {
	case t.Source.HitMiss:
		return t.Source.Hit
	case i < 0:
		return t.Source.BaseDefaultNext
	}
	return t.Source.Next[i]
}

// AfterMiss returns the next node if no entry was found and the table's i-th action ran. A negative
// i means that the table has no default entry.
func (t *Table) AfterMiss(i int) bmv2json.Node {
	switch {
	case t.Source.HitMiss:
		return t.Source.Miss
	case i < 0:
		return t.Source.BaseDefaultNext
	}
	return t.Source.Next[i]
}

// ColorLane returns the lane for the result of the table's direct meter, if the table has one.
func (t *Table) ColorLane() (lane int, ok bool) { return t.meterLane, t.meter != nil }

// keySource is one field of the key: its lanes in the packet, and its position in the packed key.
type keySource struct {
	kind   bmv2json.MatchKind
	lane   int
	lanes  int
	header int // if this header is invalid, the field counts as 0; -1 for metadata
	valid  int // the header whose validity is the key, or -1
	width  int
	to     int
	shift  int
	mask   []uint64 // the static mask by lane; nil if there is none
}

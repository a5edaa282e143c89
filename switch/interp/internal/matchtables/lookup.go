package matchtables

import (
	"fmt"
	"strings"
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// NewTable creates an empty table. Its entries refer to members and groups of profile or, if
// profile is nil, have actions of their own. packets is the mutex that is held while a packet is in
// the program.
func NewTable(src *bmv2json.Table, lay *packet.Layout, profile *ActionProfile, packets *sync.Mutex) *Table {
	t := &Table{Source: src, packets: packets, byMatch: map[string]*Entry{},
		idle: map[*Entry]struct{}{}, counters: src.WithCounters, ages: src.SupportTimeout,
		actionProfile: profile}
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

// Lookup returns the entry that a packet hits, or nil.
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

// SoleKey describes the key of a table that has only one key, a whole field of up to 64 bits with
// an exact match. It returns the map, the field's lane, and the header that must be valid, or -1.
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

// KeyRuns returns the lanes that a lookup reads.
func (t *Table) KeyRuns() (runs []packet.Run) {
	for _, k := range t.keys {
		if k.valid < 0 {
			runs = append(runs, packet.Run{From: k.lane, To: k.lane + k.lanes})
		}
	}
	return runs
}

// DescribeKey describes the key of a packet in readable form.
func (t *Table) DescribeKey(st *packet.State) string {
	var key strings.Builder
	for i, k := range t.keys {
		if i > 0 {
			key.WriteString(", ")
		}
		fmt.Fprintf(&key, "%s: ", t.Source.Keys[i].Name)
		switch {
		case k.valid >= 0:
			fmt.Fprint(&key, st.Valid[k.valid])
		case k.header >= 0 && !st.Valid[k.header]:
			key.WriteString("0 (its header is not valid)")
		default:
			fmt.Fprintf(&key, "%x", wideint.Bytes(st.Lanes[k.lane:k.lane+k.lanes], k.width))
		}
	}
	return key.String()
}

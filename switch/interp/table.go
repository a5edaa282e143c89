package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// stops reports whether the pipeline may end within the action.
func (a *action) stops() bool {
	for _, p := range a.src.Primitives {
		switch p.Op {
		case "exit", "assert", "assume":
			return true
		}
	}
	return false
}

// onlyAction is the action of a table that can run no other and tells nobody: no keys, and a
// default entry that stands in the program.
func (t *table) onlyAction() *action {
	d := t.src.Default
	if len(t.keys) > 0 || d == nil || !d.ConstEntry || len(d.Params) > 0 || t.profile != nil {
		return nil
	}
	return t.p.actions[d.Action.Index]
}

// call is an action with its parameters.
type call struct {
	params []uint64
	index  int // Action.Index
	act    *action
}

// entry is an entry of a table. What a packet sees of it changes only under Pipeline.dp.
type entry struct {
	do     *call
	member *member // indirect tables: do is nil, and one of these is set
	group  *group

	counter target.CounterData
	meter   *meter
	age     target.Ageing // Hit is written by packets, under Pipeline.dp

	match    []target.FieldMatch
	priority int
	seq      uint64
	handle   int // in events
	isConst  bool

	value, mask []uint64 // by lane of the key; value is under mask
	plen        int
	same        *entry // the next best entry with this value and mask
}

// table is a compiled table and its entries.
type table struct {
	src  *bmv2json.Table
	p    *Pipeline
	keys []keySource
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

	counters  bool
	ages      bool // entries may have idle timeouts
	told      bool // somebody may hear of what is looked up
	meter     *bmv2json.Meter
	meterLane int
	meterMask uint64

	profile *profile
}

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

// packKeys lays the keys out in as few lanes as they fit: narrow ones share a lane, a range has its
// own (it is compared as a number).
func (c *compiler) packKeys(t *table) {
	to, used := 0, 0 // the lane being filled and the bits of it that are taken
	fresh := func() {
		if used > 0 {
			to, used = to+1, 0
		}
	}
	for _, k := range t.src.Keys {
		s := keySource{kind: k.Kind, lanes: lanesOf(k.Width), header: -1, valid: -1, width: k.Width}
		if k.Field.IsValidity() {
			s.valid = k.Field.Header.Index
		} else {
			s.lane = c.lay.lane(k.Field)
			if !k.Field.Header.Metadata {
				s.header = k.Field.Header.Index
			}
		}
		if k.Mask != nil {
			s.mask = make([]uint64, s.lanes)
			lanesFromBytes(s.mask, k.Mask)
		}
		alone := k.Kind == bmv2json.MatchRange || k.Width > 64
		if k.Kind == bmv2json.MatchRange && k.Width > 64 {
			refuse(t.src.Path, "key %q: a range over %d bits", k.Name, k.Width)
		}
		if alone || used+k.Width > 64 {
			fresh()
		}
		s.to, s.shift = to, used
		if alone {
			to += s.lanes
		} else {
			used += k.Width
		}
		t.keys = append(t.keys, s)
	}
	fresh()
	t.lanes = to
	t.key = make([]uint64, to)
}

func (c *compiler) table(src *bmv2json.Table) *table {
	t := &table{src: src, p: c.p, byMatch: map[string]*entry{}, counters: src.WithCounters,
		ages: src.SupportTimeout, told: c.p.opts.Trace != nil || c.p.opts.Events != nil}
	c.packKeys(t)
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
		t.meter, t.meterLane, t.meterMask = m, c.lay.lane(m.Result), topMask(m.Result.Width())
	}
	if src.Profile != nil {
		t.profile = c.p.profiles[src.Profile.Index]
	}
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

// word is the key, where it has one lane.
func (t *table) word(st *state) (key uint64) {
	for i := range t.keys {
		k := &t.keys[i]
		switch {
		case k.valid >= 0:
			if st.valid[k.valid] {
				key |= 1 << k.shift
			}
		case k.header >= 0 && !st.valid[k.header]:
		case k.mask == nil:
			key |= st.w[k.lane] << k.shift
		default:
			key |= st.w[k.lane] & k.mask[0] << k.shift
		}
	}
	return key
}

// indirect finds the action of an entry that refers to a member or a group; nil for an empty group.
func (e *entry) indirect(st *state) *call {
	if e.member != nil {
		return e.member.do
	}
	return e.group.choose(st)
}

// buildKey puts the key together. A field of a header that is not valid counts as 0, as BMv2 has
// it.
func (t *table) buildKey(st *state) []uint64 {
	key := t.key
	clear(key)
	for i := range t.keys {
		k := &t.keys[i]
		switch {
		case k.valid >= 0:
			if st.valid[k.valid] {
				key[k.to] |= 1 << k.shift
			}
		case k.header >= 0 && !st.valid[k.header]:
		case k.mask == nil && k.lanes == 1:
			key[k.to] |= st.w[k.lane] << k.shift
		case k.mask == nil:
			copy(key[k.to:], st.w[k.lane:k.lane+k.lanes])
		default:
			for j := range k.lanes {
				key[k.to+j] |= st.w[k.lane+j] & k.mask[j] << k.shift
			}
		}
	}
	return key
}

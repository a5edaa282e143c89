package interp

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// node is a compiled node of the control flow: it does its work and returns the next, nil at the
// end.
type node interface {
	exec(*state) node
}

// condNode is an if.
type condNode struct {
	cond boolFn
	yes  node
	no   node
}

func (n *condNode) exec(st *state) node {
	if n.cond(st) {
		return n.yes
	}
	return n.no
}

// callNode is an action without parameters that nothing chooses: what p4c writes as a table without
// keys for the statements between tables. Where control goes from one straight to another they are
// one.
type callNode struct {
	code []doFn
	next node
}

func (n *callNode) exec(st *state) node {
	for _, do := range n.code {
		do(st)
	}
	return n.next
}

// actNode is an action that has jumps, or that may stop the pipeline in the middle.
type actNode struct {
	act  *action
	next node
}

func (n *actNode) exec(st *state) node {
	n.act.run(st)
	return n.next
}

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

// callOf makes a node of an action that nothing chooses.
func callOf(a *action) node {
	if a.jumps || a.stops() {
		return &actNode{act: a}
	}
	return &callNode{code: a.code}
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

// fuse joins runs of callNodes. Nodes that control reaches in several ways are then in several
// runs.
func fuse(n node, done map[node]bool) {
	if n == nil || done[n] {
		return
	}
	done[n] = true
	switch n := n.(type) {
	case *table:
		fuse(n.hit, done)
		fuse(n.miss, done)
		for _, x := range n.next {
			fuse(x, done)
		}
	case *condNode:
		fuse(n.yes, done)
		fuse(n.no, done)
	case *actNode:
		fuse(n.next, done)
	case *callNode:
		fuse(n.next, done)
		if next, ok := n.next.(*callNode); ok {
			n.code = append(slices.Clip(n.code), next.code...)
			n.next = next.next
		}
	}
}

// call is an action with its parameters.
type call struct {
	act    *action
	params []uint64
}

// entry is an entry of a table. What a packet sees of it changes only under Pipeline.dp.
type entry struct {
	match    []target.FieldMatch
	priority int
	seq      uint64
	handle   int // in events
	isConst  bool

	value, mask []uint64 // by lane of the key; value is under mask
	plen        int
	same        *entry // the next best entry with this value and mask

	do     *call
	member *member // indirect tables: do is nil, and one of these is set
	group  *group

	counter target.CounterData
	meter   *meter
	age     ageing
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

	byMatch map[string]*entry // what the control plane sees
	def     *entry            // the default entry, or nil
	first   *entry            // the program's own default entry
	seq     uint64
	handles handles

	counters  bool
	ages      bool // entries may have idle timeouts
	traced    bool
	meter     *bmv2json.Meter
	meterLane int
	meterMask uint64

	hitMiss   bool
	hit, miss node
	next      []node // by Action.Index, where hitMiss is not set
	profile   *profile
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
		ages: src.SupportTimeout, traced: c.p.opts.Trace != nil, hitMiss: src.HitMiss}
	c.packKeys(t)
	switch {
	case len(t.keys) == 0:
	case src.Match == bmv2json.MatchExact && t.lanes == 1:
		t.find = &oneFinder{map[uint64]*entry{}}
	case src.Match == bmv2json.MatchExact:
		t.find = &exactFinder{newLookupMap(t.lanes)}
	case src.Match == bmv2json.MatchRange:
		f := &rangeFinder{ranges: make([]bool, t.lanes)}
		for _, k := range t.keys {
			f.ranges[k.to] = k.kind == bmv2json.MatchRange
		}
		t.find = f
	default:
		t.find = &maskFinder{lpm: src.Match == bmv2json.MatchLPM, lanes: t.lanes,
			tmp: make([]uint64, t.lanes)}
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

// exec applies the table.
func (t *table) exec(st *state) node {
	var e *entry
	if t.find != nil {
		e = t.find.find(t.buildKey(st))
	}
	if t.traced {
		t.trace(st, e)
	}
	if t.p.eventful {
		t.tell(st, e)
	}
	if e == nil {
		return t.missed(st)
	}
	if t.meter != nil {
		st.w[t.meterLane] = e.meter.color(st) & t.meterMask
	}
	if t.counters {
		e.counter.Packets++
		e.counter.Bytes += uint64(st.inLen)
	}
	if t.ages {
		e.age.touch(st.now)
	}
	do := e.do
	if do == nil {
		do = e.indirect(st)
	}
	if do != nil {
		if t.traced {
			t.traceCall(do)
		}
		t.p.event(st, EventActionExecute, do.act.src.ID, 0)
		st.params = do.params
		do.act.run(st)
	}
	switch {
	case t.hitMiss:
		return t.hit
	case do == nil:
		return t.miss
	}
	return t.next[do.act.src.Index]
}

func (t *table) missed(st *state) node {
	e := t.def
	if e == nil {
		return t.miss
	}
	do := e.do
	if do == nil {
		if do = e.indirect(st); do == nil {
			return t.miss
		}
	}
	if t.traced {
		t.traceCall(do)
	}
	t.p.event(st, EventActionExecute, do.act.src.ID, 0)
	st.params = do.params
	do.act.run(st)
	if t.hitMiss {
		return t.miss
	}
	return t.next[do.act.src.Index]
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

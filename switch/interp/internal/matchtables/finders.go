package matchtables

import (
	"slices"
	"unsafe"
)

// lookupMap finds an entry by all lanes of a key, without allocating.
type lookupMap interface {
	get(key []uint64) *Entry
	put(key []uint64, e *Entry) // sets the entry of a key; a nil entry removes the key
	len() int
}

// newLookupMap selects the map for keys of this many lanes. Keys of one or two lanes, which nearly
// all keys have, are hashed directly.
func newLookupMap(lanes int) lookupMap {
	switch {
	case lanes <= 1:
		return newWordMap()
	case lanes == 2:
		return map2{}
	case lanes <= 4:
		return map4{}
	}
	return mapN{}
}

type (
	map2 map[[2]uint64]*Entry
	map4 map[[4]uint64]*Entry
	mapN map[string]*Entry
)

func set[K comparable](m map[K]*Entry, k K, e *Entry) {
	if e == nil {
		delete(m, k)
	} else {
		m[k] = e
	}
}

func key4(key []uint64) (k [4]uint64) {
	copy(k[:], key)
	return k
}

// keyString returns a string that shares the memory of the lanes. It is only for a lookup that does
// not store the string.
func keyString(key []uint64) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(key))), len(key)*8)
}

func (m map2) get(key []uint64) *Entry    { return m[[2]uint64(key)] }
func (m map2) put(key []uint64, e *Entry) { set(m, [2]uint64(key), e) }
func (m map2) len() int                   { return len(m) }
func (m map4) get(key []uint64) *Entry    { return m[key4(key)] }
func (m map4) put(key []uint64, e *Entry) { set(m, key4(key), e) }
func (m map4) len() int                   { return len(m) }
func (m mapN) get(key []uint64) *Entry    { return m[keyString(key)] }
func (m mapN) put(key []uint64, e *Entry) { set(m, string([]byte(keyString(key))), e) }
func (m mapN) len() int                   { return len(m) }

// finder is a table's lookup structure, which finds the entry that a key hits.
type finder interface {
	find(key []uint64) *Entry
	insert(e *Entry)
	remove(e *Entry)
}

// exactFinder finds entries in a single map.
type exactFinder struct{ m lookupMap }

func (f *exactFinder) find(key []uint64) *Entry { return f.m.get(key) }
func (f *exactFinder) insert(e *Entry)          { f.m.put(e.value, e) }
func (f *exactFinder) remove(e *Entry)          { f.m.put(e.value, nil) }

// maskFinder has a map for the entries of each mask, and searches the maps in order. An LPM table
// has a map for each prefix length in use, the longest first. A ternary table has a map for each
// mask in use (the "tuple space" of Srinivasan and others, SIGCOMM 1999). Entries that differ only
// in priority are chained. The maps are searched in the order of their best priority, until no
// further map can have a better entry.
type maskFinder struct {
	lpm    bool
	lanes  int
	groups []*maskGroup
	tmp    []uint64
}

// word finds an entry if the key has one lane.
func (f *maskFinder) word(key uint64) *Entry {
	var found *Entry
	for _, g := range f.groups {
		if found != nil && g.best < found.priority {
			break
		}
		e := g.words.Find(key & g.mask[0])
		if e == nil {
			continue
		}
		if f.lpm {
			return e
		}
		if found == nil || e.before(found) {
			found = e
		}
	}
	return found
}

type maskGroup struct {
	mask  []uint64
	plen  int
	best  int // the largest priority in the group
	m     lookupMap
	words *WordMap    // the same map as m, or nil if keys have several lanes
	prio  map[int]int // the number of entries of each priority
}

func (f *maskFinder) find(key []uint64) *Entry {
	var found *Entry
	for _, g := range f.groups {
		if found != nil && g.best < found.priority {
			break
		}
		for i, k := range key {
			f.tmp[i] = k & g.mask[i]
		}
		e := g.m.get(f.tmp)
		if e == nil {
			continue
		}
		if f.lpm {
			return e
		}
		if found == nil || e.before(found) {
			found = e
		}
	}
	return found
}

// before reports whether e wins over o if both match. The entry with the larger priority wins, or
// the older entry if both priorities are equal.
func (e *Entry) before(o *Entry) bool {
	return e.priority > o.priority || e.priority == o.priority && e.seq < o.seq
}

func (f *maskFinder) insert(e *Entry) {
	i := slices.IndexFunc(f.groups, func(g *maskGroup) bool { return slices.Equal(g.mask, e.mask) })
	if i < 0 {
		i = len(f.groups)
		g := &maskGroup{mask: e.mask, plen: e.plen, m: newLookupMap(f.lanes), prio: map[int]int{}}
		g.words, _ = g.m.(*WordMap)
		f.groups = append(f.groups, g)
	}
	g := f.groups[i]
	first := g.m.get(e.value)
	if first == nil || e.before(first) {
		e.same = first
		g.m.put(e.value, e)
	} else {
		at := first
		for at.same != nil && at.same.before(e) {
			at = at.same
		}
		e.same, at.same = at.same, e
	}
	g.prio[e.priority]++
	f.order(g)
}

func (f *maskFinder) remove(e *Entry) {
	i := slices.IndexFunc(f.groups, func(g *maskGroup) bool { return slices.Equal(g.mask, e.mask) })
	g := f.groups[i]
	if first := g.m.get(e.value); first == e {
		g.m.put(e.value, e.same)
	} else {
		at := first
		for at.same != e {
			at = at.same
		}
		at.same = e.same
	}
	e.same = nil
	if g.prio[e.priority]--; g.prio[e.priority] == 0 {
		delete(g.prio, e.priority)
	}
	if g.m.len() == 0 {
		f.groups = slices.Delete(f.groups, i, i+1)
		return
	}
	f.order(g)
}

// order sorts the groups after group g has changed.
func (f *maskFinder) order(g *maskGroup) {
	if f.lpm {
		slices.SortStableFunc(f.groups, func(a, b *maskGroup) int { return b.plen - a.plen })
		return
	}
	first := true
	for p := range g.prio {
		if first || p > g.best {
			g.best, first = p, false
		}
	}
	slices.SortStableFunc(f.groups, func(a, b *maskGroup) int { return b.best - a.best })
}

// rangeFinder compares a key with one entry after the other, the best entry first.
type rangeFinder struct {
	entries []*Entry
	ranges  []bool // by lane; if set, value and mask are the bounds of the lane
}

func (f *rangeFinder) find(key []uint64) *Entry {
next:
	for _, e := range f.entries {
		for i, k := range key {
			if f.ranges[i] {
				if k < e.value[i] || k > e.mask[i] {
					continue next
				}
			} else if k&e.mask[i] != e.value[i] {
				continue next
			}
		}
		return e
	}
	return nil
}

func (f *rangeFinder) insert(e *Entry) {
	i, _ := slices.BinarySearchFunc(f.entries, e, func(a, b *Entry) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	f.entries = slices.Insert(f.entries, i, e)
}

func (f *rangeFinder) remove(e *Entry) {
	f.entries = slices.Delete(f.entries, slices.Index(f.entries, e), slices.Index(f.entries, e)+1)
}

package matchtables

import "math/rand/v2"

// WordMap finds entries by keys of one lane. It uses open addressing with linear probing, and is at
// most half full. A lookup usually touches one cache line. Keys are hashed with a random number, so
// nobody can choose keys that collide.
type WordMap struct {
	slots  []wordSlot // the number of slots is a power of two
	shift  uint       // 64 minus the number of bits of an index
	factor uint64
	used   int
}

type wordSlot struct {
	key uint64
	e   *Entry // nil if the slot is free
}

const fewestSlots = 4

func newWordMap() *WordMap {
	m := &WordMap{factor: rand.Uint64() | 1}
	m.resize(fewestSlots)
	return m
}

func (m *WordMap) at(key uint64) int { return int(key * m.factor >> m.shift) }

// Find returns the entry of a key, or nil.
func (m *WordMap) Find(key uint64) *Entry {
	slots := m.slots
	for i := m.at(key); ; i++ {
		s := &slots[i&(len(slots)-1)]
		if s.key == key || s.e == nil {
			return s.e
		}
	}
}

func (m *WordMap) resize(n int) {
	old := m.slots
	m.slots, m.used, m.shift = make([]wordSlot, n), 0, 64
	for x := n; x > 1; x >>= 1 {
		m.shift--
	}
	for _, s := range old {
		if s.e != nil {
			m.set(s.key, s.e)
		}
	}
}

// set sets the entry of a key. If e is nil, set removes the key.
func (m *WordMap) set(key uint64, e *Entry) {
	if e == nil {
		m.remove(key)
		return
	}
	if 2*(m.used+1) > len(m.slots) {
		m.resize(2 * len(m.slots))
	}
	mask := len(m.slots) - 1
	i := m.at(key)
	for ; m.slots[i&mask].e != nil; i++ {
		if m.slots[i&mask].key == key {
			m.slots[i&mask].e = e
			return
		}
	}
	m.slots[i&mask] = wordSlot{key, e}
	m.used++
}

// remove removes a key. Later keys that collided with this key move closer to their own slots.
func (m *WordMap) remove(key uint64) {
	mask := len(m.slots) - 1
	i := m.at(key) & mask
	for ; m.slots[i].key != key || m.slots[i].e == nil; i = (i + 1) & mask {
		if m.slots[i].e == nil {
			return
		}
	}
	for j := (i + 1) & mask; m.slots[j].e != nil; j = (j + 1) & mask {
		// Entry j is at least as far from its own slot as from the gap, so it may move into the
		// gap.
		if (j-m.at(m.slots[j].key))&mask >= (j-i)&mask {
			m.slots[i], i = m.slots[j], j
		}
	}
	m.slots[i] = wordSlot{}
	if m.used--; len(m.slots) > fewestSlots && 8*m.used < len(m.slots) {
		m.resize(len(m.slots) / 2)
	}
}

func (m *WordMap) get(key []uint64) *Entry    { return m.Find(key[0]) }
func (m *WordMap) put(key []uint64, e *Entry) { m.set(key[0], e) }
func (m *WordMap) len() int                   { return m.used }

package runtime

import (
	"encoding/binary"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/target"
)

// scanList is the control plane's side of a table's priority list.
type scanList struct {
	order   []*entry // the entries in the order of the list
	current int      // index of the copy that the table points at
	clean   int      // number of copies after the current copy that no packet can be reading
}

// before reports whether e wins over o if both match. The entry with the larger priority wins, or
// the older entry if both priorities are equal.
func (e *entry) before(o *entry) bool {
	return e.Priority > o.Priority || e.Priority == o.Priority && e.seq < o.seq
}

func (t *table) addToList(e *entry) {
	i, _ := slices.BinarySearchFunc(t.list.order, e, func(a, b *entry) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	t.list.order = slices.Insert(t.list.order, i, e)
}

func (t *table) removeFromList(e *entry) {
	i := slices.Index(t.list.order, e)
	t.list.order = slices.Delete(t.list.order, i, i+1)
}

// publishList makes packets see the present list.
func (t *table) publishList() {
	s := t.Scan
	if t.list.clean == 0 {
		WaitForPackets()
		t.list.clean = s.Copies - 1
	}
	t.list.clean--
	t.list.current = (t.list.current + 1) % s.Copies
	first := t.list.current * s.Max
	at := s.List + first*s.Entry
	for _, e := range t.list.order {
		words := t.matchWords(e.Match)
		for i, w := range words {
			binary.NativeEndian.PutUint64(t.p.State.Mem[at+i*8:], w)
		}
		binary.NativeEndian.PutUint64(t.p.State.Mem[at+len(words)*8:], e.word)
		at += s.Entry
	}
	t.p.State.Store(s.Head, uint64(len(t.list.order))|uint64(first)<<32)
}

// matchWords converts a match to two words for each word of the key.
func (t *table) matchWords(match []target.FieldMatch) (out []uint64) {
	for i, m := range match {
		k := t.Source.Keys[i]
		values, masks := ir.SplitKey(m.Value, []int{len(m.Value) * 8}),
			ir.SplitKey(maskOf(&k, m), []int{len(m.Value) * 8})
		for w := range values {
			out = append(out, values[w], masks[w])
		}
	}
	return out
}

// maskOf returns the mask of a match. For a range it returns the upper bound.
func maskOf(k *bmv2json.Key, m target.FieldMatch) []byte {
	switch k.Kind {
	case bmv2json.MatchTernary, bmv2json.MatchOptional, bmv2json.MatchRange:
		return m.Mask
	}
	out := make([]byte, len(m.Value))
	bits := len(m.Value) * 8
	to := bits
	if k.Kind == bmv2json.MatchLPM {
		to = bits - k.Width + m.PrefixLen
	}
	for b := bits - k.Width; b < to; b++ {
		out[b/8] |= 0x80 >> (b % 8)
	}
	return out
}

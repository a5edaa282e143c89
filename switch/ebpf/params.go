package ebpf

import (
	"encoding/binary"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// paramPlan is where an action finds its parameters in a table's entry.
type paramPlan struct {
	inline bool // in bits of the entry's word (Entry); otherwise in the entry's slot, to which Entry points
	at     []int
	widths []int
}

// param is a word of a parameter of the action that is being translated.
func (w *writer) param(e *bmv2json.Expr, i int) *value {
	if w.konsts != nil {
		b := w.konsts[e.Index]
		part := make([]byte, wordsOf(e.Width)*8)
		copy(part[len(part)-len(b):], b)
		n := len(part)/8 - 1 - i
		if n < 0 {
			return konst(0)
		}
		return konst(binary.BigEndian.Uint64(part[n*8:]))
	}
	at, width := w.params.at[e.Index], w.params.widths[e.Index]
	switch {
	case w.params.inline:
		return &value{op: vInline, k: uint64(at), max: ones(width)}
	case !wide(width):
		return &value{op: vParam, off: at, size: slotSize(width), max: ones(width)}
	}
	n := wordsOf(width)
	if i >= n {
		return konst(0)
	}
	return &value{op: vParam, off: at + (n-1-i)*8, size: 8, swapped: true, max: ones(min(64, width-64*i))}
}

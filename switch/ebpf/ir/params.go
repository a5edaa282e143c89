package ir

import (
	"encoding/binary"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// Params says where an action's parameters are in a table entry.
type Params struct {
	// Inline is set if the parameters are in the entry's word, which is in Entry. Otherwise they
	// are in the entry's slot, to which Entry points.
	Inline bool
	At     []int
	Widths []int
}

// param returns a word of a parameter of the action that is being translated.
func (w *Writer) param(e *bmv2json.Expr, i int) *Value {
	if w.Constants != nil {
		b := w.Constants[e.Index]
		part := make([]byte, WordsOf(e.Width)*8)
		copy(part[len(part)-len(b):], b)
		n := len(part)/8 - 1 - i
		if n < 0 {
			return Const(0)
		}
		return Const(binary.BigEndian.Uint64(part[n*8:]))
	}
	at, width := w.Params.At[e.Index], w.Params.Widths[e.Index]
	switch {
	case w.Params.Inline:
		return &Value{op: vInline, k: uint64(at), Max: Ones(width)}
	case !Wide(width):
		return &Value{op: vParam, off: at, size: SlotSize(width), Max: Ones(width)}
	}
	n := WordsOf(width)
	if i >= n {
		return Const(0)
	}
	return &Value{op: vParam, off: at + (n-1-i)*8, size: 8, swapped: true,
		Max: Ones(min(64, width-64*i))}
}

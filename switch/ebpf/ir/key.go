package ir

import (
	"encoding/binary"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// KeyWord returns word i of a table key's field. Word 0 is the lowest. A field of an invalid header
// counts as 0, as in BMv2.
func (w *Writer) KeyWord(k *bmv2json.Key, i int) *Value {
	var v *Value
	if k.Field.IsValidity() {
		v = w.Valid(k.Field.Header)
	} else {
		p := w.phv.Field(k.Field)
		p.Signed = false
		v = w.WordOfPlace(p, i)
		if !k.Field.Header.Metadata {
			valid := Compare(CmpNe, w.Valid(k.Field.Header), Const(0), false)
			v = Select(valid, v, Const(0))
		}
	}
	if k.Mask != nil {
		v = And(v, Const(SplitKey(k.Mask, []int{k.Width})[WordsOf(k.Width)-1-i]))
	}
	return v
}

// SplitKey splits a concatenation of numbers into 64-bit words. Each number is padded to whole
// bytes.
func SplitKey(b []byte, widths []int) (out []uint64) {
	for _, w := range widths {
		n := (w + 7) / 8
		part := make([]byte, WordsOf(w)*8)
		copy(part[len(part)-n:], b[:n])
		b = b[n:]
		for ; len(part) > 0; part = part[8:] {
			out = append(out, binary.BigEndian.Uint64(part))
		}
	}
	return out
}

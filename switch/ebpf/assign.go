package ebpf

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// storeValue stores a number into a field of up to 64 bits, cut to its width.
func (w *writer) storeValue(p place, v *value) {
	v = andValue(v, konst(ones(p.width)))
	if v.op == vConst {
		if imm, ok := v.immediate(); ok || p.size <= 4 {
			if !ok {
				imm = int32(uint32(v.k))
			}
			w.StoreConstant(code.PHV, p.off, imm, p.size)
			return
		}
	}
	// A condition becomes two stores of constants, which keeps it out of the registers.
	if v.op == vSelect && v.a.op == vConst && v.b.op == vConst && v.a.k <= 0x7fffffff && v.b.k <= 0x7fffffff {
		yes, no, end := w.NewLabel("yes"), w.NewLabel("no"), w.NewLabel("end")
		w.branch(v.cond, yes, no, yes, 0)
		w.Bind(yes)
		w.StoreConstant(code.PHV, p.off, int32(v.a.k), p.size)
		w.Jump(end)
		w.Bind(no)
		w.StoreConstant(code.PHV, p.off, int32(v.b.k), p.size)
		w.Bind(end)
		return
	}
	w.Store(code.PHV, p.off, w.compute(v, 0), p.size)
}

// assignTo emits dst = src, cut to dst's width.
func (t *writer) assignTo(dst place, src *bmv2json.Expr) {
	if dst.last {
		refuse(src.Path, "assigning to the last element of a stack")
	}
	if !wide(dst.width) {
		t.storeValue(dst, t.word(src, 0))
		return
	}
	n := wordsOf(dst.width)
	if src.Op == bmv2json.OpField && !src.Field.IsValidity() && src.Width == dst.width && !src.Field.Field.VL {
		t.CopyWords(code.PHV, dst.off, code.PHV, t.phv.field(src.Field).off, n*8)
		return
	}
	words := make([]*value, n)
	for i := range words {
		words[i] = andValue(t.word(src, i), konst(ones(min(64, dst.width-64*i))))
	}
	// The words are computed before any is stored, as many as there are registers for; a word that stays what it is needs neither.
	var moved []int
	for i, w := range words {
		if !w.same(t.wordOfPlace(dst, i)) {
			moved = append(moved, i)
		}
	}
	at := func(i int) int { return dst.off + (n-1-i)*8 }
	if len(moved) > 3 && readsAnyOf(words, dst.off, n*8) {
		at := t.words(n) // computed elsewhere first: a word may be wanted after it has been stored
		for i, w := range words {
			t.computeSwapped(w, 0)
			t.Store(code.PHV, at+(n-1-i)*8, pool[0], 8)
		}
		t.CopyWords(code.PHV, dst.off, code.PHV, at, n*8)
		return
	}
	if len(moved) <= 3 {
		for j, i := range moved {
			t.computeSwapped(words[i], j)
		}
		for j, i := range moved {
			t.Store(code.PHV, at(i), pool[j], 8)
		}
		return
	}
	for _, i := range moved {
		t.computeSwapped(words[i], 0)
		t.Store(code.PHV, at(i), pool[0], 8)
	}
}

// computeSwapped computes a word of a wide field as it stands in memory.
func (t *writer) computeSwapped(v *value, d int) {
	if v.op == vConst {
		v = konst(reverse(v.k))
		t.compute(v, d)
		return
	}
	if v.swapped {
		w := *v
		w.swapped = false
		t.compute(&w, d)
		return
	}
	t.compute(v, d)
	t.Emit(asm.HostTo(asm.BE, pool[d], asm.DWord))
}

func reverse(k uint64) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], k)
	return binary.LittleEndian.Uint64(b[:])
}

func readsAnyOf(words []*value, off, size int) bool {
	var reads func(*value) bool
	var asks func(*condition) bool
	reads = func(v *value) bool {
		if v == nil {
			return false
		}
		return v.op == vLoad && v.off < off+size && v.off+v.size > off || reads(v.a) || reads(v.b) || asks(v.cond)
	}
	asks = func(c *condition) bool {
		return c != nil && (reads(c.a) || reads(c.b) || asks(c.sel) || asks(c.left) || asks(c.right))
	}
	for _, w := range words {
		if reads(w) {
			return true
		}
	}
	return false
}

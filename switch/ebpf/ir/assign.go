package ir

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// StoreValue emits code that stores a number into a field of up to 64 bits, truncated to the
// field's width.
func (w *Writer) StoreValue(p Place, v *Value) {
	v = And(v, Const(Ones(p.Width)))
	if v.op == vConst {
		if imm, ok := v.Immediate(); ok || p.Size <= 4 {
			if !ok {
				imm = int32(uint32(v.k))
			}
			w.StoreConstant(code.PHV, p.Off, imm, p.Size)
			return
		}
	}
	// A condition becomes two stores of constants, so it needs no register.
	if v.op == vSelect && v.a.op == vConst && v.b.op == vConst && v.a.k <= 0x7fffffff &&
		v.b.k <= 0x7fffffff {
		yes, no, end := w.NewLabel("yes"), w.NewLabel("no"), w.NewLabel("end")
		w.Branch(v.cond, yes, no, yes, 0)
		w.Bind(yes)
		w.StoreConstant(code.PHV, p.Off, int32(v.a.k), p.Size)
		w.Jump(end)
		w.Bind(no)
		w.StoreConstant(code.PHV, p.Off, int32(v.b.k), p.Size)
		w.Bind(end)
		return
	}
	w.Store(code.PHV, p.Off, w.Compute(v, 0), p.Size)
}

// AssignTo emits dst = src, truncated to the width of dst.
func (t *Writer) AssignTo(dst Place, src *bmv2json.Expr) {
	if dst.LastElement {
		Refuse(src.Path, "assigning to the last element of a stack")
	}
	if !Wide(dst.Width) {
		t.StoreValue(dst, t.Word(src, 0))
		return
	}
	n := WordsOf(dst.Width)
	if src.Op == bmv2json.OpField && !src.Field.IsValidity() && src.Width == dst.Width &&
		!src.Field.Field.VL {
		t.CopyWords(code.PHV, dst.Off, code.PHV, t.phv.Field(src.Field).Off, n*8)
		return
	}
	words := make([]*Value, n)
	for i := range words {
		words[i] = And(t.Word(src, i), Const(Ones(min(64, dst.Width-64*i))))
	}
	// The code computes as many words as fit into the registers before it stores any. It does not
	// compute or store words that do not change.
	var moved []int
	for i, w := range words {
		if !w.same(t.WordOfPlace(dst, i)) {
			moved = append(moved, i)
		}
	}
	at := func(i int) int { return dst.Off + (n-1-i)*8 }
	if len(moved) > 3 && readsAnyOf(words, dst.Off, n*8) {
		// Compute into scratch memory first, because a word may be needed after it has been
		// overwritten.
		at := t.words(n)
		for i, w := range words {
			t.ComputeSwapped(w, 0)
			t.Store(code.PHV, at+(n-1-i)*8, Registers[0], 8)
		}
		t.CopyWords(code.PHV, dst.Off, code.PHV, at, n*8)
		return
	}
	if len(moved) <= 3 {
		for j, i := range moved {
			t.ComputeSwapped(words[i], j)
		}
		for j, i := range moved {
			t.Store(code.PHV, at(i), Registers[j], 8)
		}
		return
	}
	for _, i := range moved {
		t.ComputeSwapped(words[i], 0)
		t.Store(code.PHV, at(i), Registers[0], 8)
	}
}

// ComputeSwapped emits code that computes a word of a wide field in memory byte order.
func (t *Writer) ComputeSwapped(v *Value, d int) {
	if v.op == vConst {
		v = Const(reverse(v.k))
		t.Compute(v, d)
		return
	}
	if v.swapped {
		w := *v
		w.swapped = false
		t.Compute(&w, d)
		return
	}
	t.Compute(v, d)
	t.Emit(asm.HostTo(asm.BE, Registers[d], asm.DWord))
}

func reverse(k uint64) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], k)
	return binary.LittleEndian.Uint64(b[:])
}

func readsAnyOf(words []*Value, off, size int) bool {
	var reads func(*Value) bool
	var asks func(*Condition) bool
	reads = func(v *Value) bool {
		if v == nil {
			return false
		}
		return v.op == vLoad && v.off < off+size && v.off+v.size > off || reads(v.a) ||
			reads(v.b) || asks(v.cond)
	}
	asks = func(c *Condition) bool {
		return c != nil && (reads(c.a) || reads(c.b) || asks(c.sel) || asks(c.left) ||
			asks(c.right))
	}
	for _, w := range words {
		if reads(w) {
			return true
		}
	}
	return false
}

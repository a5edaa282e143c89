package tables

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// CountHit emits code that puts the slot's address into Entry, as SlotAddress does. The code also
// updates the entry's counter and meter, and records the time of the hit.
func (t *Tables) CountHit(tp *memory.TablePlan, bad string) {
	t.SlotAddress(tp, bad)
	if tp.Counter >= 0 {
		t.externs.AddToCounter(code.Entry, tp.Counter)
	}
	if tp.Hit >= 0 {
		t.Call(asm.FnKtimeGetBootNs)
		t.Store(code.Entry, tp.Hit, asm.R0, 8)
	}
	if tp.Meter >= 0 {
		t.externs.DirectMeter(tp)
	}
}

// SlotAddress emits code that converts the entry word in Entry to the address of its slot, and
// stores the action's number in PHVAction. If the word names no slot, the code jumps to bad.
func (t *Tables) SlotAddress(tp *memory.TablePlan, bad string) {
	t.Store(code.PHV, memory.PHVAction, code.Entry, 2)
	t.Emit(asm.RSh.Imm(code.Entry, 16), asm.JGE.Imm(code.Entry, int32(tp.SlotCount), bad))
	if tp.SlotSize > 0 {
		t.Emit(asm.Mul.Imm(code.Entry, int32(tp.SlotSize)))
	}
	t.StateAddress(asm.R1, tp.Slots)
	t.Emit(asm.Add.Reg(code.Entry, asm.R1))
}

// LookUp emits code that puts the entry word of the key into the register Entry, or jumps to miss.
// If the compiler knows the entry and its word has a label, the code jumps to that label.
func (t *Tables) LookUp(tp *memory.TablePlan, labels map[uint64]string, miss string) {
	if known, ok := t.Maps.Known[tp.Source.Index]; ok {
		found := t.NewLabel("found")
		t.lookupKnown(tp, known, labels, found, miss)
		t.lookupMap(tp, miss)
		t.Bind(found)
		return
	}
	t.lookupMap(tp, miss)
}

// lookupMap emits code that looks the key up in the table's map.
func (t *Tables) lookupMap(tp *memory.TablePlan, miss string) {
	keys := tp.Source.Keys
	switch tp.Kind {
	case memory.LookupArray:
		var index *ir.Value = ir.Const(0)
		for i := range keys {
			index = ir.Or(index, ir.Shl(t.KeyWord(&keys[i], 0), uint64(tp.Parts[i].At)))
		}
		t.Compute(index, 0)
		// The verifier needs this mask, because it does not know the widths of fields.
		t.Emit(asm.And.Imm(asm.R1, int32(ir.Ones(tp.Bits))), asm.LSh.Imm(asm.R1, 3))
		t.StateAddress(asm.R2, tp.Direct)
		t.Emit(asm.Add.Reg(asm.R2, asm.R1))
		t.Load(code.Entry, asm.R2, 0, 8)
		t.Emit(asm.JEq.Imm(code.Entry, 0, miss))
		return
	case memory.LookupScan:
		t.scanTable(tp, miss)
		return
	case memory.LookupHash:
		for i := range keys {
			p := tp.Parts[i]
			n := ir.WordsOf(keys[i].Width)
			for w := range n {
				v := t.KeyWord(&keys[i], w)
				if ir.Wide(keys[i].Width) {
					t.ComputeSwapped(v, 0)
					t.Store(code.PHV, t.Keys+p.At+(n-1-w)*8, asm.R1, 8)
				} else {
					t.Store(code.PHV, t.Keys+p.At, t.Compute(v, 0), p.Size)
				}
			}
		}
	case memory.LookupTrie:
		t.StoreConstant(code.PHV, t.Keys, int32((tp.KeyBytes-4)*8), 4)
		for i := range keys {
			t.trieKey(&keys[i], tp.Parts[i])
		}
	}
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Lookups[tp.Source.Index]), asm.Mov.Reg(asm.R2, code.PHV),
		asm.Add.Imm(asm.R2, int32(t.Keys)))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, miss))
	t.Load(code.Entry, asm.R0, 0, 8)
}

// trieKey emits code that stores a field big-endian, so that its first bit starts a byte.
func (t *Tables) trieKey(k *bmv2json.Key, p memory.KeyPart) {
	n := ir.WordsOf(k.Width)
	if ir.Wide(k.Width) {
		for w := range n {
			v := ir.Shl(t.KeyWord(k, w), uint64(p.Shift))
			if p.Shift > 0 && w > 0 {
				v = ir.Or(v, ir.Shr(t.KeyWord(k, w-1), uint64(64-p.Shift)))
			}
			t.ComputeSwapped(v, 0)
			at := t.Keys + p.At + (n-1-w)*8 // the offset is not a multiple of 8
			t.Store(code.PHV, at, asm.R1, 4)
			t.Emit(asm.RSh.Imm(asm.R1, 32))
			t.Store(code.PHV, at+4, asm.R1, 4)
		}
		return
	}
	t.Compute(ir.Shl(t.KeyWord(k, 0), uint64(p.Shift)), 0)
	t.storeBigEndian(code.PHV, t.Keys+p.At, p.Size)
}

// storeBigEndian emits code that stores the low bytes of R1, byte by byte if their number is not a
// power of two. It clobbers R1.
func (t *Tables) storeBigEndian(base asm.Register, off, size int) {
	switch size {
	case 2, 4, 8:
		if off%size == 0 {
			t.Emit(asm.HostTo(asm.BE, asm.R1, code.SizeOf(size)))
			t.Store(base, off, asm.R1, size)
			return
		}
	}
	for i := size - 1; i >= 0; i-- {
		t.Store(base, off+i, asm.R1, 1)
		if i > 0 {
			t.Emit(asm.RSh.Imm(asm.R1, 8))
		}
	}
}

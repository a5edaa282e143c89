package tables

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// scanTable emits the lookup in a priority list. The code leaves the entry word in the register
// Entry.
func (t *Tables) scanTable(tp *memory.TablePlan, miss string) {
	s := tp.Scan
	for i := range tp.Source.Keys {
		n := ir.WordsOf(tp.Source.Keys[i].Width)
		for w := range n { // The most significant word comes first.
			t.Store(code.PHV, t.Keys+tp.Parts[i].At+(n-1-w)*8,
				t.Compute(t.KeyWord(&tp.Source.Keys[i], w), 0), 8)
		}
	}
	const frame = -24 // Layout of the stack: the PHV, the first entry's number, and the word found.
	t.StateAddress(asm.R1, s.Head)
	t.Load(asm.R2, asm.R1, 0, 8)
	t.Emit(asm.Mov.Reg32(asm.R1, asm.R2), asm.RSh.Imm(asm.R2, 32))
	t.Store(asm.R10, frame, code.PHV, 8)
	t.Store(asm.R10, frame+8, asm.R2, 8)
	t.StoreConstant(asm.R10, frame+16, 0, 8)
	name := "scan." + tp.Source.Name
	t.LoadFunction(asm.R2, name)
	t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, frame), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnLoop)
	t.Load(code.Entry, asm.R10, frame+16, 8)
	t.Emit(asm.JEq.Imm(code.Entry, 0, miss))
	t.AddFunction(name, func() {
		next := name + ".next"
		t.Emit(asm.Mov.Reg(asm.R6, asm.R2))
		t.Load(asm.R7, asm.R6, 0, 8)
		t.Load(asm.R8, asm.R6, 8, 8)
		t.Emit(asm.Add.Reg(asm.R8, asm.R1), asm.JGE.Imm(asm.R8, int32(s.Max*s.Copies), next),
			asm.Mul.Imm(asm.R8, int32(s.Entry)))
		t.StateAddress(asm.R1, s.List)
		t.Emit(asm.Add.Reg(asm.R8, asm.R1))
		for w := range s.Words {
			t.Load(asm.R1, asm.R7, t.Keys+w*8, 8)
			t.Load(asm.R2, asm.R8, w*16, 8)
			t.Load(asm.R3, asm.R8, w*16+8, 8)
			if s.Ranges[w] {
				t.Emit(asm.JLT.Reg(asm.R1, asm.R2, next), asm.JGT.Reg(asm.R1, asm.R3, next))
			} else {
				t.Emit(asm.And.Reg(asm.R1, asm.R3), asm.JNE.Reg(asm.R1, asm.R2, next))
			}
		}
		t.Load(asm.R1, asm.R8, s.Words*16, 8)
		t.Store(asm.R6, 16, asm.R1, 8)
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
		t.Bind(next)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}

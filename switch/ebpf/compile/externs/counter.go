package externs

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// Count emits code that adds the packet to a counter's cell. An index beyond the array counts
// nothing.
func (t *Externs) Count(k *bmv2json.Counter, index *bmv2json.Expr) {
	end, a := t.NewLabel("counted"), t.Counters[k.Index]
	if k.Size == 0 {
		return
	}
	if a.CPUs == 0 {
		t.CellAddress(a.ArrayPlan, t.Index(index), end)
		t.AddToCounter(asm.R2, 0)
		t.Bind(end)
		return
	}
	t.Call(asm.FnGetSmpProcessorId)
	t.Store(code.PHV, memory.PHVCPU, asm.R0, 8)
	t.CellAddress(a.ArrayPlan, t.Index(index), end)
	t.Load(asm.R1, code.PHV, memory.PHVCPU, 8)
	t.Emit(asm.JGE.Imm(asm.R1, int32(a.CPUs), end), asm.Mul.Imm(asm.R1, int32(a.Apart)),
		asm.Add.Reg(asm.R2, asm.R1))
	for i := range 2 {
		t.Load(asm.R1, asm.R2, 8*i, 8)
		if i == 0 {
			t.Emit(asm.Add.Imm(asm.R1, 1))
		} else {
			t.Load(asm.R3, code.PHV, memory.PHVInLen, 4)
			t.Emit(asm.Add.Reg(asm.R1, asm.R3))
		}
		t.Store(asm.R2, 8*i, asm.R1, 8)
	}
	t.Bind(end)
}

// AddToCounter emits code that atomically adds the packet to the counter at base+off. It uses R1.
func (t *Externs) AddToCounter(base asm.Register, off int) {
	t.Emit(asm.Mov.Imm(asm.R1, 1), code.Atomic(asm.AddAtomic, base, asm.R1, off))
	t.Load(asm.R1, code.PHV, memory.PHVInLen, 4)
	t.Emit(code.Atomic(asm.AddAtomic, base, asm.R1, off+8))
}

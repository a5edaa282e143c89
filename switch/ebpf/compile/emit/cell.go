package emit

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// CellAddress emits code that puts the address of an array's cell into R2. For an index beyond the
// array it jumps to beyond.
func (t *Emitter) CellAddress(a memory.ArrayPlan, index *ir.Value, beyond string) {
	if k, ok := index.Constant(); ok {
		if k >= uint64(a.Size) {
			t.Jump(beyond)
			return
		}
		t.StateAddress(asm.R2, a.At(int(k)))
		return
	}
	t.Compute(index, 0)
	if index.Max >= uint64(a.Size) {
		t.Emit(asm.JGE.Imm(asm.R1, int32(a.Size), beyond))
	} else {
		// The jump is never taken, but the verifier does not know the widths of values in memory.
		t.Emit(asm.JGT.Imm(asm.R1, int32(min(index.Max, uint64(a.Size-1))), beyond))
	}
	switch {
	case a.Stride&(a.Stride-1) != 0:
		t.Emit(asm.Mul.Imm(asm.R1, int32(a.Stride)))
	case a.Stride > 1:
		t.Emit(asm.LSh.Imm(asm.R1, int32(Log2(a.Stride))))
	}
	t.StateAddress(asm.R2, a.Off)
	t.Emit(asm.Add.Reg(asm.R2, asm.R1))
}

// Log2 returns the logarithm of a power of two.
func Log2(n int) (k int) {
	for n > 1 {
		n, k = n/2, k+1
	}
	return k
}

package emit

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// NumberOnStack is the stack offset that holds a number while operands are computed.
const NumberOnStack = -80

// StoreNumber emits code that stores the number in R1 into a field. It truncates the number to the
// field's width and sets the upper words of a wide field to 0.
func (t *Emitter) StoreNumber(dst *bmv2json.Expr) {
	pl := t.PlaceOf(dst)
	if pl.LastElement {
		ir.Refuse(dst.Path, "assigning to the last element of a stack")
	}
	if !ir.Wide(pl.Width) {
		t.Mask(asm.R1, ir.Ones(pl.Width), 0)
		t.Store(code.PHV, pl.Off, asm.R1, pl.Size)
		return
	}
	n := ir.WordsOf(pl.Width)
	t.Zero(code.PHV, pl.Off, (n-1)*8)
	t.Emit(asm.HostTo(asm.BE, asm.R1, asm.DWord))
	t.Store(code.PHV, pl.Off+(n-1)*8, asm.R1, 8)
}

// Random64 emits code that puts 64 random bits into R0. They come from the kernel, so they differ
// from the interpreter's.
func (t *Emitter) Random64() {
	t.Call(asm.FnGetPrandomU32)
	t.Emit(asm.LSh.Imm(asm.R0, 32))
	t.Store(asm.R10, NumberOnStack, asm.R0, 8)
	t.Call(asm.FnGetPrandomU32)
	t.Emit(asm.Mov.Imm32(asm.R1, -1), asm.And.Reg(asm.R0, asm.R1))
	t.Load(asm.R1, asm.R10, NumberOnStack, 8)
	t.Emit(asm.Or.Reg(asm.R0, asm.R1))
}

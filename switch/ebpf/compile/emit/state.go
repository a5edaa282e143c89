package emit

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// LocksRegisters says whether packets ever take the registers' lock.
func (t *Emitter) LocksRegisters() bool { return !t.Unlocked && len(t.Prog.Registers) > 0 }

// StateAddress loads the address of a place in the state.
func (t *Emitter) StateAddress(dst asm.Register, off int) {
	t.Emit(asm.LoadMapValue(dst, t.Maps.State, uint32(off)))
}

// LookupPHV sets PHV to the address of this CPU's PHV.
func (t *Emitter) LookupPHV(drop string) {
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.PHV), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, drop), asm.Mov.Reg(code.PHV, asm.R0))
}

// WidenBounds makes the verifier forget what it knows about a register, by storing and reloading
// it, and tells it that the register is at most most: a greater number jumps to never. Otherwise,
// where many paths meet that differ only in a number, the verifier would follow all of them to the
// end.
func (t *Emitter) WidenBounds(r asm.Register, most int, never string) {
	t.Store(code.PHV, memory.PHVSpill, r, 8)
	t.Load(r, code.PHV, memory.PHVSpill, 8)
	t.Emit(asm.JGT.Imm(r, int32(most), never))
}

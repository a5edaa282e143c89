package emit

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// LocksRegisters reports whether packets ever take the registers' lock.
func (t *Emitter) LocksRegisters() bool { return !t.Unlocked && len(t.Prog.Registers) > 0 }

// StateAddress emits code that loads the address of an offset in the state.
func (t *Emitter) StateAddress(dst asm.Register, off int) {
	t.Emit(asm.LoadMapValue(dst, t.Maps.State, uint32(off)))
}

// LookupPHV emits code that sets PHV to the address of this CPU's PHV.
func (t *Emitter) LookupPHV(drop string) {
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.PHV), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, drop), asm.Mov.Reg(code.PHV, asm.R0))
}

// WidenBounds emits code that makes the verifier forget what it knows about a register, by storing
// and reloading the register. The code then tells the verifier that the register is at most most,
// and jumps to never if it is greater. Without WidenBounds, the verifier would follow each of many
// paths that differ only in one number.
func (t *Emitter) WidenBounds(r asm.Register, most int, never string) {
	t.Store(code.PHV, memory.PHVSpill, r, 8)
	t.Load(r, code.PHV, memory.PHVSpill, 8)
	t.Emit(asm.JGT.Imm(r, int32(most), never))
}

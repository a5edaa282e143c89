package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// CellsMax is the maximum number of bytes of registers that one run of the cells program copies.
const CellsMax = 2048

// CellsHeader is the size in bytes of the header in front of the cells in the cells program's
// input. The header contains offset and length (4 bytes each), a flag that is 1 for a write, and
// padding.
const CellsHeader = 16

// CellsProgram returns a small program that copies register and meter cells between the state and
// its input. It holds the packets' locks meanwhile, so the control plane's reads and writes are
// atomic for packets.
func CellsProgram(p *memory.Plan, f emit.Maps) (insns asm.Instructions, err error) {
	defer ir.Catch(&err)
	t := newTranslator(p, emit.TC, f, emit.Settings{})
	main := t.WriteFunction("cells", func() {
		read, done, fail := "cells.read", "cells.done", "cells.fail"
		meters, unlock := "cells.meters", "cells.unlock"
		t.Emit(asm.Mov.Reg(code.Ctx, asm.R1), asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Imm(asm.R3, -32), asm.Mov.Imm(asm.R4, CellsHeader))
		t.LoadBytes()
		t.Emit(asm.JNE.Imm(asm.R0, 0, fail))
		t.Load(asm.R8, asm.R10, -32, 4)
		t.Load(asm.R9, asm.R10, -28, 4)
		t.Emit(asm.JGT.Imm(asm.R8, int32(p.StateBytes), fail), asm.JEq.Imm(asm.R9, 0, fail),
			asm.JGT.Imm(asm.R9, CellsMax, fail))
		t.StateAddress(asm.R6, 0)
		t.Emit(asm.Add.Reg(asm.R6, asm.R8))
		t.locks.Acquire(p.Lock, fail)
		t.locks.Acquire(p.MeterLock, unlock)
		if len(t.Families) > 0 {
			one := t.NewLabel("one")
			t.StateAddress(asm.R1, t.Mode)
			t.Load(asm.R1, asm.R1, 0, 8)
			t.Store(asm.R10, -40, asm.R1, 8)
			t.Emit(asm.JEq.Imm(asm.R1, memory.ModeOne, one), asm.Mov.Imm(asm.R1, 0),
				asm.Mov.Imm(asm.R2, 0))
			t.CallFunction(t.locks.TakeStripesFunction())
			t.Emit(asm.JEq.Imm(asm.R0, 0, meters))
			t.Bind(one)
		}
		t.turnIfWriting()
		t.Load(asm.R1, asm.R10, -24, 1)
		t.Emit(asm.Mov.Imm(asm.R2, CellsHeader), asm.Mov.Reg(asm.R3, asm.R6),
			asm.Mov.Reg(asm.R4, asm.R9), asm.JEq.Imm(asm.R1, 0, read))
		t.LoadBytes()
		t.Jump(done)
		t.Bind(read)
		t.StoreBytes()
		t.Bind(done)
		t.Emit(asm.Mov.Reg(asm.R8, asm.R0))
		t.turnIfWriting()
		if len(t.Families) > 0 {
			one := t.NewLabel("one")
			t.Load(asm.R1, asm.R10, -40, 8)
			t.Emit(asm.JEq.Imm(asm.R1, memory.ModeOne, one),
				asm.Mov.Imm(asm.R1, int32(len(t.Families)*t.StripeCount)), asm.Mov.Imm(asm.R2, 0))
			t.CallFunction(t.locks.GiveStripesFunction())
			t.Bind(one)
		}
		t.locks.Release(p.MeterLock)
		t.locks.Release(p.Lock)
		t.Emit(asm.Mov.Reg(asm.R0, asm.R8), asm.Return())
		t.Bind(meters)
		t.locks.Release(p.MeterLock)
		t.Bind(unlock)
		t.locks.Release(p.Lock)
		t.Bind(fail)
		t.Emit(asm.Mov.Imm(asm.R0, -1), asm.Return())
	})
	return t.Link(main)
}

// turnIfWriting emits code that increments the registers' version if the cells program writes.
func (t *translator) turnIfWriting() {
	if !t.locks.Versioned() {
		return
	}
	reads := t.NewLabel("reads")
	t.Load(asm.R1, asm.R10, -24, 1)
	t.Emit(asm.JEq.Imm(asm.R1, 0, reads))
	t.StateAddress(asm.R1, t.Lock)
	t.locks.TurnVersion(asm.R1)
	t.Bind(reads)
}

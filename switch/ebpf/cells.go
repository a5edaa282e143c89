package ebpf

import (
	"github.com/cilium/ebpf/asm"
)

// cellsMax is how many bytes of registers one run of the cells program moves.
const cellsMax = 2048

// cellsHeader precedes the cells in what the cells program is given: offset and length (4 bytes each), 1 to write, and padding.
const cellsHeader = 16

// cellsProgram is a small program that copies between the state and the data that it is run with, under the packets' locks: so that the control plane's reads and
// writes of registers and meters are whole, seen from packets.
func cellsProgram(p *plan, f fds) (insns asm.Instructions, err error) {
	defer catch(&err)
	t := newTranslator(p, hookTC, f, settings{})
	main := t.function("cells", func() {
		read, done, unlock, fail := "cells.read", "cells.done", "cells.unlock", "cells.fail"
		t.emit(asm.Mov.Reg(rCtx, asm.R1), asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -32), asm.Mov.Imm(asm.R4, cellsHeader))
		t.loadBytes()
		t.emit(asm.JNE.Imm(asm.R0, 0, fail))
		t.load(asm.R8, asm.R10, -32, 4)
		t.load(asm.R9, asm.R10, -28, 4)
		t.emit(asm.JGT.Imm(asm.R8, int32(p.stateSize), fail), asm.JEq.Imm(asm.R9, 0, fail), asm.JGT.Imm(asm.R9, cellsMax, fail))
		t.stateAddress(asm.R6, 0)
		t.emit(asm.Add.Reg(asm.R6, asm.R8))
		t.acquire(p.lock, fail)
		t.acquire(p.meterLock, unlock)
		t.load(asm.R1, asm.R10, -24, 1)
		t.emit(asm.Mov.Imm(asm.R2, cellsHeader), asm.Mov.Reg(asm.R3, asm.R6), asm.Mov.Reg(asm.R4, asm.R9), asm.JEq.Imm(asm.R1, 0, read))
		t.loadBytes()
		t.jump(done)
		t.bind(read)
		t.storeBytes()
		t.bind(done)
		t.emit(asm.Mov.Reg(asm.R8, asm.R0))
		t.release(p.meterLock)
		t.release(p.lock)
		t.emit(asm.Mov.Reg(asm.R0, asm.R8), asm.Return())
		t.bind(unlock)
		t.release(p.lock)
		t.bind(fail)
		t.emit(asm.Mov.Imm(asm.R0, -1), asm.Return())
	})
	return linkFunctions(append([]*code{main}, t.functions...))
}

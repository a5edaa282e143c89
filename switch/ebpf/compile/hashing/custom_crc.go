package hashing

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// callCustomCRC emits a call that computes the CRC of the bytes that hashInput has assembled, and
// leaves it in R0. It returns false if the calculation has no custom CRC.
func (t *Hashes) callCustomCRC(k *bmv2json.Calculation) bool {
	at, width := t.CustomCRC(k)
	if at < 0 {
		return false
	}
	name := fmt.Sprintf("custom_crc_%d", k.Index)
	t.Emit(asm.Mov.Reg(asm.R1, code.Temp), asm.Mov.Reg(asm.R2, code.PHV),
		asm.Add.Imm(asm.R2, int32(t.HashIn)))
	t.CallFunction(name)
	t.FunctionOnce(name, func() { t.customCRC(name, at, width) })
	return true
}

// customCRC emits the function that processes the bytes of a custom CRC. R1 is the number of bytes,
// and R2 their address.
func (t *Hashes) customCRC(name string, at, width int) {
	const params, bytesAt, count, i, v = asm.R5, asm.R6, asm.R7, asm.R8, asm.R9
	next, done, straight := name+".next", name+".done", name+".straight"
	t.Emit(asm.Mov.Reg(count, asm.R1), asm.Mov.Reg(bytesAt, asm.R2), asm.Mov.Imm(i, 0))
	t.StateAddress(params, at)
	t.Load(asm.R4, params, 0, 8)
	t.Emit(asm.And.Imm(asm.R4, 1), asm.Mul.Imm(asm.R4, memory.CustomCopy), asm.Add.Reg(params, asm.R4),
		asm.Add.Imm(params, 8))
	t.Load(v, params, memory.CustomStart, 8)
	t.Bind(next)
	t.Emit(asm.JGE.Reg(i, count, done), asm.JGE.Imm(i, int32(t.HashMax), done))
	t.Emit(asm.Mov.Reg(asm.R1, bytesAt), asm.Add.Reg(asm.R1, i))
	t.Load(asm.R2, asm.R1, 0, 1)
	t.Emit(asm.Mov.Reg(asm.R3, params), asm.Add.Reg(asm.R3, asm.R2))
	t.Load(asm.R2, asm.R3, memory.CustomIn, 1)
	t.Emit(asm.Mov.Reg(asm.R3, v), asm.RSh.Imm(asm.R3, int32(width-8)), asm.Xor.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R3, 0xff), asm.LSh.Imm(asm.R3, 3), asm.Mov.Reg(asm.R4, params),
		asm.Add.Reg(asm.R4, asm.R3))
	t.Load(asm.R4, asm.R4, memory.CustomTable, 8)
	t.Emit(asm.LSh.Imm(v, 8), asm.Xor.Reg(v, asm.R4))
	t.Mask(v, ir.Ones(width), 3)
	t.Emit(asm.Add.Imm(i, 1))
	t.Jump(next)
	t.Bind(done)
	t.Load(asm.R1, params, memory.CustomTurn, 8)
	t.Emit(asm.JEq.Imm(asm.R1, 0, straight))
	// These steps reverse the order of the bits. Each step swaps neighbouring groups of bits, which
	// are twice as large as in the previous step.
	for n, half := range []int32{0x55555555, 0x33333333, 0x0f0f0f0f, 0x00ff00ff, 0x0000ffff} {
		shift := int32(1) << n
		if int(shift) == width {
			break
		}
		t.Emit(asm.Mov.Reg(asm.R1, v), asm.RSh.Imm(asm.R1, shift), asm.And.Imm(asm.R1, half),
			asm.And.Imm(v, half), asm.LSh.Imm(v, shift), asm.Or.Reg(v, asm.R1))
	}
	t.Bind(straight)
	t.Load(asm.R1, params, memory.CustomFinal, 8)
	t.Emit(asm.Xor.Reg(v, asm.R1))
	t.Mask(v, ir.Ones(width), 3)
	t.Emit(asm.Mov.Reg(asm.R0, v), asm.Return())
}

package hashing

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/interval"
)

// ComputeHash emits code that puts the value of a calculation into R0.
func (t *Hashes) ComputeHash(k *bmv2json.Calculation) {
	name, ok := memory.HashAlgorithms[k.Algo]
	if !ok {
		ir.Refuse(k.Path, "the hash algorithm %q", k.Algo)
	}
	if name == "random" {
		t.Random64()
		return
	}
	inputs, payload := analysis.WithoutPayload(k)
	if payload {
		ir.Refuse(k.Path, "a hash over the payload")
	}
	t.hashInput(k, inputs)
	if !t.callCustomCRC(k) {
		t.callHash(name)
	}
}

// EmitHash emits the primitive hash(dst, base, input, size), which computes base + value mod size
// in 64 bits.
func (t *Hashes) EmitHash(p *bmv2json.Primitive) {
	k := p.Args[2].Calc
	if ir.WideExpr(p.Args[1]) && !interval.OfExpr(p.Args[1]).Within(interval.U64) ||
		ir.WideExpr(p.Args[3]) && !interval.OfExpr(p.Args[3]).Within(interval.U64) {
		ir.Refuse(p.Path, "a hash with a base or size of more than 64 bits")
	}
	t.ComputeHash(k)
	t.Store(asm.R10, emit.NumberOnStack, asm.R0, 8)
	// The size may be 0, which has the same effect as 1.
	one := t.NewLabel("one")
	t.Compute(t.Word(p.Args[3], 0), 0)
	t.Load(asm.R0, asm.R10, emit.NumberOnStack, 8)
	t.Emit(asm.JNE.Imm(asm.R1, 0, one), asm.Mov.Imm(asm.R1, 1))
	t.Bind(one)
	t.Emit(asm.Mod.Reg(asm.R0, asm.R1))
	t.Store(asm.R10, emit.NumberOnStack, asm.R0, 8)
	t.Compute(t.Word(p.Args[1], 0), 0)
	t.Load(asm.R0, asm.R10, emit.NumberOnStack, 8)
	t.Emit(asm.Add.Reg(asm.R1, asm.R0))
	t.StoreNumber(p.Args[0])
}

// callHash emits code that puts the hash of the bytes that hashInput has assembled into R0.
func (t *Hashes) callHash(name string) {
	t.Emit(asm.Mov.Reg(asm.R1, code.Temp), asm.Mov.Reg(asm.R2, code.PHV),
		asm.Add.Imm(asm.R2, int32(t.HashIn)))
	t.CallFunction(t.hashFunction(name))
}

// hashFunction emits the function that computes a hash. R1 is the number of bytes, and R2 their
// address. The function returns the hash in R0.
func (t *Hashes) hashFunction(name string) string {
	full := "hash_" + name
	return t.FunctionOnce(full, func() {
		next, done := full+".next", full+".done"
		const bytesAt, count, i, v = asm.R6, asm.R7, asm.R8, asm.R9
		check, isCRC := memory.CRCs[name]
		t.Emit(asm.Mov.Reg(count, asm.R1), asm.Mov.Reg(bytesAt, asm.R2), asm.Mov.Imm(i, 0))
		t.LoadConstant(v, check.Start)
		t.Bind(next)
		t.Emit(asm.JGE.Reg(i, count, done), asm.JGE.Imm(i, int32(t.HashMax), done))
		t.Emit(asm.Mov.Reg(asm.R1, bytesAt), asm.Add.Reg(asm.R1, i))
		t.Load(asm.R2, asm.R1, 0, 1) // load the next byte
		switch {
		case isCRC:
			t.Emit(asm.Mov.Reg(asm.R3, v))
			if !check.Reflected && check.Width > 8 {
				t.Emit(asm.RSh.Imm(asm.R3, int32(check.Width-8)))
			}
			t.Emit(asm.Xor.Reg(asm.R3, asm.R2), asm.And.Imm(asm.R3, 0xff), asm.LSh.Imm(asm.R3, 3))
			t.StateAddress(asm.R4, t.CRCTables[name])
			t.Emit(asm.Add.Reg(asm.R4, asm.R3))
			t.Load(asm.R4, asm.R4, 0, 8)
			switch {
			case check.Width == 8:
				t.Emit(asm.Mov.Imm(v, 0))
			case check.Reflected:
				t.Emit(asm.RSh.Imm(v, 8))
			default:
				t.Emit(asm.LSh.Imm(v, 8))
			}
			t.Emit(asm.Xor.Reg(v, asm.R4))
			if !check.Reflected {
				t.Mask(v, ir.Ones(check.Width), 3)
			}
		case name == "identity":
			// The hash is the first eight bytes, or all bytes if there are fewer.
			t.Emit(asm.JGE.Imm(i, 8, done), asm.LSh.Imm(v, 8), asm.Or.Reg(v, asm.R2))
		default: // Combine whole words: shift the byte to its position in the word.
			size := map[string]int32{"csum16": 2, "xor16": 2, "xor32": 4}[name]
			t.Emit(asm.Mov.Reg(asm.R3, i), asm.And.Imm(asm.R3, size-1), asm.Xor.Imm(asm.R3, size-1),
				asm.LSh.Imm(asm.R3, 3), asm.LSh.Reg(asm.R2, asm.R3))
			if name == "csum16" {
				t.Emit(asm.Add.Reg(v, asm.R2))
			} else {
				t.Emit(asm.Xor.Reg(v, asm.R2))
			}
		}
		t.Emit(asm.Add.Imm(i, 1))
		t.Jump(next)
		t.Bind(done)
		switch {
		case isCRC && check.Final != 0:
			t.LoadConstant(asm.R1, check.Final)
			t.Emit(asm.Xor.Reg(v, asm.R1))
		case name == "csum16":
			for range 3 {
				t.Emit(asm.Mov.Reg(asm.R1, v), asm.RSh.Imm(asm.R1, 16), asm.And.Imm(v, 0xffff),
					asm.Add.Reg(v, asm.R1))
			}
			t.Emit(asm.Xor.Imm(v, 0xffff), asm.And.Imm(v, 0xffff))
		}
		t.Emit(asm.Mov.Reg(asm.R0, v), asm.Return())
	})
}

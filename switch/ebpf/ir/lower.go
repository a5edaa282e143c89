package ir

import (
	"math"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// Registers are the registers in which values are computed. A value is computed into Registers[d]
// with the help of the registers after it.
var Registers = [...]asm.Register{asm.R1, asm.R2, asm.R3, asm.R4, asm.R5, asm.R0}

// Compute emits code that computes v into Registers[d].
func (w *Writer) Compute(v *Value, d int) asm.Register {
	dst := Registers[d]
	switch v.op {
	case vConst:
		w.LoadConstant(dst, v.k)
	case vLoad:
		w.Load(dst, code.PHV, v.off, v.size)
		w.swap(dst, v)
	case vLast:
		w.lastElement(v, dst)
	case vParam:
		w.Load(dst, code.Entry, v.off, v.size)
		w.swap(dst, v)
	case vInline:
		w.Emit(asm.Mov.Reg(dst, code.Entry))
		if v.k != 0 {
			w.Emit(asm.RSh.Imm(dst, int32(v.k)))
		}
		w.Mask(dst, v.Max, d)
	case vFrame:
		w.Emit(asm.Mov.Reg(dst, code.PHV), asm.Add.Reg(dst, code.Entry))
		w.Load(dst, dst, v.off, v.size)
		w.swap(dst, v)
	case vSelect:
		yes, no, end := w.NewLabel("yes"), w.NewLabel("no"), w.NewLabel("end")
		w.Branch(v.cond, yes, no, yes, d)
		w.Bind(yes)
		w.Compute(v.a, d)
		w.Jump(end)
		w.Bind(no)
		w.Compute(v.b, d)
		w.Bind(end)
	case vSext:
		w.Compute(v.a, d)
		s := int32(64 - v.k)
		w.Emit(asm.LSh.Imm(dst, s), asm.ArSh.Imm(dst, s))
	case vShl, vShr, vSar:
		op := map[valueOp]asm.ALUOp{vShl: asm.LSh, vShr: asm.RSh, vSar: asm.ArSh}[v.op]
		if v.b == nil {
			w.Compute(v.a, d)
			w.Emit(op.Imm(dst, int32(v.k)))
			return dst
		}
		w.binary(op, v, d)
	case vAnd:
		if v.b.op == vConst {
			w.Compute(v.a, d)
			w.Mask(dst, v.b.k, d)
			return dst
		}
		w.binary(asm.And, v, d)
	default:
		w.binary(map[valueOp]asm.ALUOp{vAdd: asm.Add, vSub: asm.Sub, vMul: asm.Mul, vDiv: asm.Div,
			vMod: asm.Mod, vOr: asm.Or, vXor: asm.Xor}[v.op], v, d)
	}
	return dst
}

func (w *Writer) swap(dst asm.Register, v *Value) {
	if v.swapped {
		w.Emit(asm.HostTo(asm.BE, dst, asm.DWord))
	}
}

// Mask emits code that clears all bits of dst that are not set in k.
func (w *Writer) Mask(dst asm.Register, k uint64, d int) {
	switch {
	case k == math.MaxUint64:
	case k <= math.MaxInt32 || k > math.MaxUint64-math.MaxInt32:
		w.Emit(asm.And.Imm(dst, int32(k)))
	case k == math.MaxUint32:
		w.Emit(asm.Mov.Reg32(dst, dst))
	case k&(k+1) == 0:
		s := int32(bits.LeadingZeros64(k))
		w.Emit(asm.LSh.Imm(dst, s), asm.RSh.Imm(dst, s))
	default:
		w.binaryWith(asm.And, Const(k), d)
	}
}

// binary emits Registers[d] = a op b. It first computes the operand that needs more registers. So
// deep trees need few registers, and only bushy trees need many.
func (w *Writer) binary(op asm.ALUOp, v *Value, d int) {
	_, imm := v.b.Immediate()
	if imm || v.a.RegistersNeeded() >= v.b.RegistersNeeded() {
		w.Compute(v.a, d)
		w.binaryWith(op, v.b, d)
		return
	}
	w.requireRegisters(d + 1)
	w.Compute(v.b, d)
	w.Compute(v.a, d+1)
	w.Emit(op.Reg(Registers[d+1], Registers[d]), asm.Mov.Reg(Registers[d], Registers[d+1]))
}

func (w *Writer) binaryWith(op asm.ALUOp, b *Value, d int) {
	if imm, ok := b.Immediate(); ok {
		w.Emit(op.Imm(Registers[d], imm))
		return
	}
	w.requireRegisters(d + 1)
	w.Compute(b, d+1)
	w.Emit(op.Reg(Registers[d], Registers[d+1]))
}

// requireRegisters refuses an expression that needs more registers than there are.
func (w *Writer) requireRegisters(d int) {
	if d >= len(Registers) {
		Refuse(w.Where, "an expression that holds more than %d intermediate values at a time",
			len(Registers))
	}
}

// lastElement emits code that reads a field of the last valid element of a stack.
func (w *Writer) lastElement(v *Value, dst asm.Register) {
	end := w.NewLabel("empty")
	w.Load(dst, code.PHV, v.next, 1)
	// The count never exceeds the stack's size, but the verifier cannot know that.
	w.Emit(asm.JEq.Imm(dst, 0, end), asm.JGT.Imm(dst, int32(v.k), end))
	w.Emit(asm.Sub.Imm(dst, 1), asm.Mul.Imm(dst, int32(v.stride)), asm.Add.Reg(dst, code.PHV))
	w.Load(dst, dst, v.off, v.size)
	w.swap(dst, v)
	w.Bind(end)
}

// Branch emits jumps to yes or no, depending on the condition. fall is the label that follows the
// emitted code. Branch uses Registers[d] and the registers after it.
func (w *Writer) Branch(b *Condition, yes, no, fall string, d int) {
	switch b.op {
	case cTrue:
		if fall != yes {
			w.Jump(yes)
		}
	case cFalse:
		if fall != no {
			w.Jump(no)
		}
	case cNot:
		w.Branch(b.left, no, yes, fall, d)
	case cAnd:
		mid := w.NewLabel("and")
		w.Branch(b.left, mid, no, mid, d)
		w.Bind(mid)
		w.Branch(b.right, yes, no, fall, d)
	case cOr:
		mid := w.NewLabel("or")
		w.Branch(b.left, yes, mid, mid, d)
		w.Bind(mid)
		w.Branch(b.right, yes, no, fall, d)
	case cSelect:
		l, r := w.NewLabel("then"), w.NewLabel("else")
		w.Branch(b.sel, l, r, l, d)
		w.Bind(l)
		w.Branch(b.left, yes, no, "", d)
		w.Bind(r)
		w.Branch(b.right, yes, no, fall, d)
	default:
		to, other := yes, no
		if fall == yes {
			b, to, other = notCondition(b), no, yes
		}
		if d == 0 && w.BeforeCompare != nil {
			w.BeforeCompare(b.a, b.b)
		}
		w.Compute(b.a, d)
		jumps := [...]asm.JumpOp{asm.JEq, asm.JNE, asm.JLT, asm.JLE, asm.JGT, asm.JGE}
		if b.signed {
			jumps = [...]asm.JumpOp{asm.JEq, asm.JNE, asm.JSLT, asm.JSLE, asm.JSGT, asm.JSGE}
		}
		if imm, ok := b.b.Immediate(); ok {
			w.Emit(jumps[b.cmp].Imm(Registers[d], imm, to))
		} else {
			w.requireRegisters(d + 1)
			w.Compute(b.b, d+1)
			w.Emit(jumps[b.cmp].Reg(Registers[d], Registers[d+1], to))
		}
		if fall != other {
			w.Jump(other)
		}
	}
}

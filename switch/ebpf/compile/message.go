package compile

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// What a program says with log_msg goes through a ring of its own to the process, which puts the
// text together. The ring is bounded: what finds it full is counted, and lost.
//
// A record: the pipeline's number (8 bytes), which message it is (8 bytes), and each value but
// constants in words of 8 bytes in host order, the most significant one first.
const MessageHeader = 16

// planMessages finds what the program says. A message whose values do not fit a record, or are
// computed other than in registers, is none.
func (p *Plan) planMessages() {
	for _, a := range p.Prog.Actions {
		for _, q := range a.Primitives {
			if q.Op != "log_msg" || len(q.Args) != 2 {
				continue
			}
			size, simple := MessageHeader, true
			for _, e := range q.Args[1].Args {
				simple = simple && sayable(e)
				size += 8 * MessageWords(e)
			}
			if simple && size <= BufferSize {
				p.Messages = append(p.Messages, q)
			}
		}
	}
	if len(p.Messages) > 0 {
		p.MessagesLost = p.allocate(8)
	}
}

// sayable reports whether a value is a field, a parameter, a constant, or computed of these in a
// register.
func sayable(e *bmv2json.Expr) bool {
	switch e.Op {
	case bmv2json.OpConst, bmv2json.OpLocal:
		return true
	case bmv2json.OpField:
		return !e.Field.IsValidity() && !e.Field.Field.VL
	case bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpMul, bmv2json.OpBitAnd, bmv2json.OpBitOr,
		bmv2json.OpBitXor:
		return !ir.WideExpr(e) && !inSteps(e) && !slices.ContainsFunc(e.Args,
			func(x *bmv2json.Expr) bool { return !sayable(x) })
	}
	return false
}

// MessageWords is how many words a value takes: none for a constant, which the process knows.
func MessageWords(e *bmv2json.Expr) int {
	if e.Op == bmv2json.OpConst {
		return 0
	}
	return ir.WordsOf(MessageWidth(e))
}

// MessageWidth is how many bits of a value are said.
func MessageWidth(e *bmv2json.Expr) int {
	if e.Width <= 0 {
		return 64
	}
	return e.Width
}

// say emits a log_msg. It keeps Entry.
func (t *translator) say(q *bmv2json.Primitive) {
	number := -1
	for i, m := range t.Messages {
		if m == q {
			number = i
		}
	}
	if number < 0 || t.maps.Messages == 0 {
		return
	}
	done := t.NewLabel("said")
	t.StoreConstant(asm.R10, hashOnStack, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, hashOnStack))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, done), asm.Mov.Reg(code.Temp, asm.R0))
	t.LoadConstant(asm.R1, t.maps.Number)
	t.Store(code.Temp, 0, asm.R1, 8)
	t.StoreConstant(code.Temp, 8, int32(number), 8)
	at := MessageHeader
	for _, e := range q.Args[1].Args {
		width := MessageWidth(e)
		for w := MessageWords(e) - 1; w >= 0; w-- {
			t.Compute(ir.And(t.Word(e, w), ir.Const(ir.Ones(min(64, width-64*w)))), 0)
			t.Store(code.Temp, at, asm.R1, 8)
			at += 8
		}
	}
	t.Emit(asm.LoadMapPtr(asm.R1, t.maps.Messages), asm.Mov.Reg(asm.R2, code.Temp),
		asm.Mov.Imm(asm.R3, int32(at)), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnRingbufOutput)
	t.Emit(asm.JEq.Imm(asm.R0, 0, done))
	t.stateAddress(asm.R2, t.MessagesLost)
	t.Emit(asm.Mov.Imm(asm.R1, 1), code.Atomic(asm.AddAtomic, asm.R2, asm.R1, 0))
	t.Bind(done)
}

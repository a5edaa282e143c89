package memory

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// A program's log_msg sends its values through a separate ring to the process, which composes the
// text. The ring is bounded. If it is full, messages are lost and counted.
//
// A record has the pipeline's number (8 bytes), the message's number (8 bytes), and each value
// except constants. A value is in words of 8 bytes in host order, the most significant word first.
const MessageHeader = 16

// planMessages finds the program's messages. It omits messages whose values do not fit into a
// record or are not computed in registers.
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

// sayable reports whether a value is a field, a parameter or a constant, or is computed from these
// in registers.
func sayable(e *bmv2json.Expr) bool {
	switch e.Op {
	case bmv2json.OpConst, bmv2json.OpLocal:
		return true
	case bmv2json.OpField:
		return !e.Field.IsValidity() && !e.Field.Field.VL
	case bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpMul, bmv2json.OpBitAnd, bmv2json.OpBitOr,
		bmv2json.OpBitXor:
		return !ir.WideExpr(e) && !analysis.ComputedInSteps(e) && !slices.ContainsFunc(e.Args,
			func(x *bmv2json.Expr) bool { return !sayable(x) })
	}
	return false
}

// MessageWords returns the number of words of a value in a record. It returns 0 for a constant,
// because the process knows the constant.
func MessageWords(e *bmv2json.Expr) int {
	if e.Op == bmv2json.OpConst {
		return 0
	}
	return ir.WordsOf(MessageWidth(e))
}

// MessageWidth returns the number of bits of a value that a record contains.
func MessageWidth(e *bmv2json.Expr) int {
	if e.Width <= 0 {
		return 64
	}
	return e.Width
}

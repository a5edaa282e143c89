package memory

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// A program's log_msg goes through a ring of its own to the process, which composes the text. The
// ring is bounded. If it is full, messages are lost and counted.
//
// A record: the pipeline's number (8 bytes), the message's number (8 bytes), and each value except
// constants in words of 8 bytes in host order, the most significant one first.
const MessageHeader = 16

// planMessages finds the program's messages. A message whose values do not fit a record, or are not
// computed in registers, is left out.
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

// sayable reports whether a value is a field, a parameter, a constant, or computed from these in
// registers.
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

// MessageWords returns the number of words of a value: 0 for a constant, which the process knows.
func MessageWords(e *bmv2json.Expr) int {
	if e.Op == bmv2json.OpConst {
		return 0
	}
	return ir.WordsOf(MessageWidth(e))
}

// MessageWidth returns the number of bits of a value that are sent.
func MessageWidth(e *bmv2json.Expr) int {
	if e.Width <= 0 {
		return 64
	}
	return e.Width
}

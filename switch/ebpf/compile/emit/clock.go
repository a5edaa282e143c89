package emit

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Reading the clock takes longer than anything else in a program, and few packets need the time. So
// if only the ingress pipeline reads ingress_global_timestamp, it is read from the clock when a
// packet first needs it: in front of the statement or, in the condition of a branch or an
// assignment, in front of the comparison that needs it, so that what stands before it may decide
// without. A packet always has the same time. That time may be later than its arrival, by the
// processing so far: of two times that a packet could have, it gets the later, with which less is
// still valid.
//
// bpf_ktime_get_coarse_ns would take a sixth of it, but says when the last timer interrupt was.
// That may be as long ago as the CPU that has the interrupt stands still, a virtual one for longer
// than any lease, while another one continues with packets: no margin makes it safe.

// StartClock begins a packet; if the clock is read late, it has not been read yet.
func (t *Emitter) StartClock() {
	if t.LateClock {
		t.StoreConstant(code.PHV, memory.PHVAsked, 0, 8)
		return
	}
	t.StoreTimestamp(t.Std.IngressTime)
}

// readClock makes the packet's time known. It leaves nothing in the registers 0 to 5.
func (t *Emitter) readClock() {
	known := t.NewLabel("time")
	t.Load(asm.R0, code.PHV, memory.PHVAsked, 8)
	t.Emit(asm.JNE.Imm(asm.R0, 0, known))
	t.StoreTimestamp(t.Std.IngressTime)
	t.StoreConstant(code.PHV, memory.PHVAsked, 1, 8)
	t.Bind(known)
}

// ReadTimeFor makes the packet's time known if it is a key of a table.
func (t *Emitter) ReadTimeFor(tp *memory.TablePlan) {
	if t.LateClock && slices.ContainsFunc(tp.Source.Keys, func(k bmv2json.Key) bool {
		return k.Field == t.Std.IngressTime
	}) {
		t.readClock()
	}
}

// asksTime reports whether an expression reads ingress_global_timestamp.
func (t *Emitter) asksTime(e *bmv2json.Expr) (asks bool) {
	analysis.WalkExpr(e, func(x *bmv2json.Expr) {
		asks = asks || x.Op == bmv2json.OpField && x.Field == t.Std.IngressTime
	})
	return asks
}

// StartStatement begins a statement that computes some expressions, with what they need before.
func (t *Emitter) StartStatement(list ...ir.Operand) {
	if t.LateClock && slices.ContainsFunc(list, func(o ir.Operand) bool {
		return t.asksTime(o.Expr())
	}) {
		t.readClock()
	}
	t.branches = false
	t.BeginStatement(list...)
}

// StartBranch begins a statement that branches by a condition, and does not use registers for
// anything else meanwhile: if possible, the clock is read where the condition needs it.
func (t *Emitter) StartBranch(cond *bmv2json.Expr) {
	if !t.LateClock || !plainCondition(cond) {
		t.StartStatement(ir.NewOperand(cond, 1))
		return
	}
	t.branches = true
	t.BeginStatement(ir.NewOperand(cond, 1))
}

// plainCondition reports whether a condition is made of comparisons of which none has another
// condition in it: then a branch by it begins each comparison with no register in use.
func plainCondition(e *bmv2json.Expr) bool {
	switch e.Op {
	case bmv2json.OpAnd, bmv2json.OpOr:
		return plainCondition(e.Left) && plainCondition(e.Right)
	case bmv2json.OpNot:
		return plainCondition(e.Right)
	}
	plain := true
	for _, side := range []*bmv2json.Expr{e.Left, e.Right} {
		analysis.WalkExpr(side, func(x *bmv2json.Expr) {
			plain = plain && x.Type != bmv2json.TypeBool && x.Op != bmv2json.OpTernary
		})
	}
	return plain
}

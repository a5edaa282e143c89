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

// Reading the clock takes longer than anything else in a program, and few packets need the time. If
// only the ingress pipeline reads ingress_global_timestamp, the program therefore reads the clock
// when a packet first needs it. That is before the statement or, in the condition of a branch or an
// assignment, before the comparison that needs the time, because earlier comparisons may decide
// without it. A packet sees the same time throughout. This time may be later than the packet's
// arrival, by the processing so far. That is the safe direction, because fewer leases are valid at
// a later time.
//
// bpf_ktime_get_coarse_ns would take a sixth of the time, but it returns the time of the last timer
// interrupt. The CPU that handles this interrupt may stand still while another CPU continues with
// packets. A virtual CPU may do so for longer than any lease. The returned time is then arbitrarily
// old, so no margin makes it safe.

// StartClock emits code for the beginning of a packet. It reads the clock, or records that the
// packet has not read the clock yet.
func (t *Emitter) StartClock() {
	if t.LateClock {
		t.StoreConstant(code.PHV, memory.PHVAsked, 0, 8)
		return
	}
	t.StoreTimestamp(t.Std.IngressTime)
}

// readClock emits code that reads the clock if the packet has not read it yet. It clobbers R0 to
// R5.
func (t *Emitter) readClock() {
	known := t.NewLabel("time")
	t.Load(asm.R0, code.PHV, memory.PHVAsked, 8)
	t.Emit(asm.JNE.Imm(asm.R0, 0, known))
	t.StoreTimestamp(t.Std.IngressTime)
	t.StoreConstant(code.PHV, memory.PHVAsked, 1, 8)
	t.Bind(known)
}

// ReadTimeFor emits code that reads the clock if the time is a key of the table.
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

// StartStatement begins a statement that computes expressions. It first emits what the expressions
// need.
func (t *Emitter) StartStatement(list ...ir.Operand) {
	if t.LateClock && slices.ContainsFunc(list, func(o ir.Operand) bool {
		return t.asksTime(o.Expr())
	}) {
		t.readClock()
	}
	t.branches = false
	t.BeginStatement(list...)
}

// StartBranch begins a statement that only branches on a condition. If possible, the code reads the
// clock just before the comparison that needs the time.
func (t *Emitter) StartBranch(cond *bmv2json.Expr) {
	if !t.LateClock || !plainCondition(cond) {
		t.StartStatement(ir.NewOperand(cond, 1))
		return
	}
	t.branches = true
	t.BeginStatement(ir.NewOperand(cond, 1))
}

// plainCondition reports whether no comparison in a condition contains another condition. A branch
// on such a condition begins each comparison with no register in use.
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

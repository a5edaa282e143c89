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
// if only the ingress pipeline reads ingress_global_timestamp, the program reads the clock when a
// packet first needs it: before the statement or, in the condition of a branch or an assignment,
// before the comparison that needs it, so that earlier comparisons may decide without the clock. A
// packet sees the same time throughout. That time may be later than its arrival by the processing
// so far, which is the safe direction: at a later time, less is still valid.
//
// bpf_ktime_get_coarse_ns would take a sixth of the time, but it returns the time of the last timer
// interrupt. If the CPU that handles this interrupt stands still (a virtual CPU may do so for
// longer than any lease) while another CPU continues with packets, that time is arbitrarily old. No
// margin makes it safe.

// StartClock begins a packet; if the clock is read late, it has not been read yet.
func (t *Emitter) StartClock() {
	if t.LateClock {
		t.StoreConstant(code.PHV, memory.PHVAsked, 0, 8)
		return
	}
	t.StoreTimestamp(t.Std.IngressTime)
}

// readClock makes the packet's time known. It clobbers the registers 0 to 5.
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

// StartStatement begins a statement that computes some expressions and first emits what they need.
func (t *Emitter) StartStatement(list ...ir.Operand) {
	if t.LateClock && slices.ContainsFunc(list, func(o ir.Operand) bool {
		return t.asksTime(o.Expr())
	}) {
		t.readClock()
	}
	t.branches = false
	t.BeginStatement(list...)
}

// StartBranch begins a statement that branches by a condition and uses no registers for anything
// else meanwhile: if possible, the clock is read where the condition needs it.
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

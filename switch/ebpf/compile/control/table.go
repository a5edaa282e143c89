package control

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// tableWriter emits a table: the lookup, the actions, and the jumps to the next nodes.
type tableWriter struct {
	*Control
	plan *memory.TablePlan
	src  *bmv2json.Table
	next func(bmv2json.Node) // emits a jump to a node
	miss string              // label for packets that match no entry
	run  string              // label at which an entry's action begins
}

// applyTable emits a table: the lookup and the actions.
func (t *Control) applyTable(tp *memory.TablePlan, next func(bmv2json.Node)) {
	w := &tableWriter{t, tp, tp.Source, next, t.NewLabel("miss"), t.NewLabel("run")}
	t.ReadTimeFor(tp)
	if tp.Kind != memory.LookupNone {
		t.Where = w.src.Path
		t.tables.LookUp(tp, nil, w.miss)
		if w.src.HitMiss {
			t.StoreConstant(code.PHV, memory.PHVHit, 1, 1)
		}
		t.Jump(w.run)
	}
	t.Bind(w.miss)
	if w.src.HitMiss {
		t.StoreConstant(code.PHV, memory.PHVHit, 0, 1)
	}
	if tp.ConstantDefault() {
		w.constantDefault()
		if tp.Kind == memory.LookupNone {
			return
		}
	} else {
		w.defaultEntry()
	}
	w.actions()
}

// constantDefault emits the default action that the program fixes.
func (w *tableWriter) constantDefault() {
	w.Constants = w.src.Default.Params
	if w.Constants == nil {
		w.Constants = [][]byte{}
	}
	w.runAction(w.src.Default.Action, w.pipeline.end)
	w.Constants = nil
	if i := w.src.Default.ActionIndex; !w.src.HitMiss && i >= 0 {
		w.next(w.src.Next[i])
		return
	}
	w.next(w.withoutEntry())
}

// defaultEntry emits code that loads the default entry and runs its action, if there is a default
// entry.
func (w *tableWriter) defaultEntry() {
	w.StateAddress(asm.R1, w.plan.Default)
	w.Load(code.Entry, asm.R1, 0, 8)
	has := w.NewLabel("default")
	w.Emit(asm.JNE.Imm(code.Entry, 0, has))
	w.next(w.withoutEntry())
	w.Bind(has)
	if !w.plan.Inline {
		w.tables.SlotAddress(w.plan, w.pipeline.end)
		w.Jump(w.run + ".chosen")
	}
}

// withoutEntry returns the node that follows a miss if the table has no default entry.
func (w *tableWriter) withoutEntry() bmv2json.Node {
	if w.src.HitMiss {
		return w.src.Miss
	}
	return w.src.BaseDefaultNext
}

// actions emits the action that the entry names.
func (w *tableWriter) actions() {
	w.Bind(w.run)
	if !w.plan.Inline {
		w.tables.CountHit(w.plan, w.miss)
		w.Bind(w.run + ".chosen")
		w.tables.ChooseMember(w.plan, w.run+".empty")
		w.Load(asm.R1, code.PHV, memory.PHVAction, 2)
	} else {
		w.Emit(asm.Mov.Reg(asm.R1, code.Entry), asm.And.Imm(asm.R1, 0xffff))
	}
	for i, a := range w.src.Actions {
		other := w.NewLabel("other")
		if i < len(w.src.Actions)-1 {
			w.Emit(asm.JNE.Imm(asm.R1, int32(i+1), other))
		}
		w.Params = &w.plan.Params[i]
		w.runAction(a, w.pipeline.end)
		w.Params = nil
		w.afterAction(i)
		w.Bind(other)
	}
	w.Jump(w.pipeline.end) // The table has no actions.
	if w.src.Kind == bmv2json.TableIndirectWS {
		w.Bind(w.run + ".empty") // An empty group of an action selector does nothing.
		if w.src.HitMiss {
			w.ifHit()
		}
		w.next(w.withoutEntry())
	}
}

// afterAction emits the jump to the next node after action number i.
func (w *tableWriter) afterAction(i int) {
	if !w.src.HitMiss {
		w.next(w.src.Next[i])
		return
	}
	if w.plan.Kind != memory.LookupNone {
		w.ifHit()
	}
	w.next(w.src.Miss)
}

// ifHit emits a jump to the table's node for a hit, if the packet hit the table.
func (w *tableWriter) ifHit() {
	missed := w.NewLabel("missed")
	w.Load(asm.R1, code.PHV, memory.PHVHit, 1)
	w.Emit(asm.JEq.Imm(asm.R1, 0, missed))
	w.next(w.src.Hit)
	w.Bind(missed)
}

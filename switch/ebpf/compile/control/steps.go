package control

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/compile/paths"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// emitSteps emits a pipeline whose paths have been found. As in RunPipeline, control leaves it at
// its end, and what crosses the border of the section that has the registers takes or gives back
// their lock; here each step is inside of it, or is not.
func (t *Control) emitSteps(name string, order []*paths.Step) {
	type edge struct {
		from bool
		to   *paths.Step
	}
	edges, crossings := map[edge]string{}, []edge{}
	labels := map[*paths.Step]string{}
	for _, s := range order {
		labels[s] = t.NewLabel("step")
	}
	toward := func(from bool, to *paths.Step) string {
		e := edge{from, to}
		if from == to.Inside {
			return labels[to]
		}
		if _, ok := edges[e]; !ok {
			edges[e] = t.NewLabel("edge")
			crossings = append(crossings, e)
		}
		return edges[e]
	}
	cross := func(to *paths.Step) {
		if to.Inside {
			t.locks.LockInside(to)
		} else {
			t.locks.UnlockInside()
		}
	}
	t.pipeline = &pipelineState{}
	if order[0].Inside {
		cross(order[0])
	}
	for i, s := range order {
		t.Bind(labels[s])
		t.Facts, t.Where, t.Params, t.Constants = s.Facts, s.Path, s.Params, s.Constants
		switch s.Kind {
		case paths.StepEnd:
			t.Jump(name + ".end")
			continue
		case paths.StepUnlocked:
			t.locks.EmitUnlocked(s.Undo, s.Next[1], toward(false, s.Next[1]))
		case paths.StepUndo:
			t.locks.RestoreKept(s.Undo)
			for _, h := range s.Undo.Reload {
				t.headers.ReloadBlock(h, "ingress.drop")
			}
		case paths.StepValidate:
			t.locks.EmitValidate(s.Next[1].Undo, toward(false, s.Next[1]))
		case paths.StepTest:
			fall := ""
			if i+1 < len(order) {
				fall = labels[order[i+1]]
			}
			t.StartBranch(s.Expr)
			t.Branch(t.Truth(s.Expr), toward(s.Inside, s.Next[0]), toward(s.Inside, s.Next[1]),
				fall, 0)
			continue
		case paths.StepTable:
			t.pipeline.end = name + ".exit"
			if s.Inside {
				t.pipeline.end = name + ".exit.locked"
			}
			t.emitLookup(s, toward)
			continue
		case paths.StepSet:
			if !s.Dead {
				t.StoreValue(s.Dst, ir.Const(s.Value))
			}
		case paths.StepPrimitive:
			if !s.Dead {
				t.primitive(s.Primitive, name)
			}
			if s.Spoilt {
				t.locks.SpoilRead(s.Primitive)
			}
		}
		to := s.Next[0]
		if i+1 < len(order) && order[i+1] == to && to.Inside != s.Inside {
			cross(to)
			t.Jump(labels[to])
			continue
		}
		t.Jump(toward(s.Inside, to))
	}
	for i := 0; i < len(crossings); i++ {
		t.Bind(edges[crossings[i]])
		cross(crossings[i].to)
		t.Jump(labels[crossings[i].to])
	}
	t.Facts, t.Params, t.Constants = nil, nil, nil
	t.Bind(name + ".exit.locked")
	if slices.ContainsFunc(order, func(s *paths.Step) bool { return s.Inside }) {
		t.locks.UnlockInside()
	}
	t.Jump(name + ".exit")
	t.FlushLater()
	t.Bind(name + ".exit")
	t.Bind(name + ".end")
}

// emitLookup emits a table whose outcomes are steps.
func (t *Control) emitLookup(s *paths.Step, toward func(bool, *paths.Step) string) {
	o, tp := s.Table, s.Table.Plan
	to := func(s2 *paths.Step) string { return toward(s.Inside, s2) }
	t.Facts = s.Facts
	t.ReadTimeFor(tp)
	miss, run := t.NewLabel("miss"), t.NewLabel("run")
	if tp.Kind != memory.LookupNone {
		labels := map[uint64]string{}
		for word, entry := range o.Known {
			labels[word] = to(entry)
		}
		t.tables.LookUp(tp, labels, miss)
		t.Bind(run)
		if !tp.Inline {
			t.tables.CountHit(tp, miss)
		}
		t.dispatch(tp, o.Hit, to)
	}
	t.Bind(miss)
	if o.Always != nil {
		t.Jump(to(o.Always))
		return
	}
	t.StateAddress(asm.R1, tp.Default)
	t.Load(code.Entry, asm.R1, 0, 8)
	t.Emit(asm.JEq.Imm(code.Entry, 0, to(o.Without)))
	if !tp.Inline {
		t.tables.SlotAddress(tp, t.pipeline.end)
	}
	t.dispatch(tp, o.Missed, to)
}

// dispatch goes to the step of the action that a table's word names: of the word in Entry, or, of a
// table with slots, in PHVAction.
func (t *Control) dispatch(tp *memory.TablePlan, steps []*paths.Step, to func(*paths.Step) string) {
	if len(steps) == 0 {
		t.Jump(t.pipeline.end)
		return
	}
	if len(steps) > 1 {
		if tp.Inline {
			t.Emit(asm.Mov.Reg(asm.R1, code.Entry), asm.And.Imm(asm.R1, 0xffff))
		} else {
			t.Load(asm.R1, code.PHV, memory.PHVAction, 2)
		}
	}
	for i, s := range steps[:len(steps)-1] {
		t.Emit(asm.JEq.Imm(asm.R1, int32(i+1), to(s)))
	}
	t.Jump(to(steps[len(steps)-1]))
}

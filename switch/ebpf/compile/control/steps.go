package control

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/compile/paths"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// stepWriter emits the steps of a pipeline.
type stepWriter struct {
	*Control
	labels map[*paths.Step]string
	// edges across the border of the locked section; each edge has its own code
	edges     map[stepEdge]string
	crossings []stepEdge
}

// stepEdge is an edge to a step. Its origin is inside or outside the locked section.
type stepEdge struct {
	inside bool
	to     *paths.Step
}

// emitSteps emits a pipeline that is compiled path by path. After the emitted code, the pipeline
// has ended, as in RunPipeline. Edges across the border of the locked section take or release the
// registers' lock. Each step is completely inside or outside the section.
func (t *Control) emitSteps(name string, order []*paths.Step) {
	w := &stepWriter{t, map[*paths.Step]string{}, map[stepEdge]string{}, nil}
	for _, s := range order {
		w.labels[s] = t.NewLabel("step")
	}
	t.pipeline = &pipelineState{}
	if order[0].Inside {
		w.cross(order[0])
	}
	for i, s := range order {
		var following *paths.Step
		if i+1 < len(order) {
			following = order[i+1]
		}
		t.Bind(w.labels[s])
		t.Facts, t.Where, t.Params, t.Constants = s.Facts, s.Path, s.Params, s.Constants
		if w.emit(name, s, following) {
			w.emitWayOn(s, following)
		}
	}
	for i := 0; i < len(w.crossings); i++ {
		t.Bind(w.edges[w.crossings[i]])
		w.cross(w.crossings[i].to)
		t.Jump(w.labels[w.crossings[i].to])
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

// toward returns the label of the edge to a step.
func (w *stepWriter) toward(inside bool, to *paths.Step) string {
	if inside == to.Inside {
		return w.labels[to]
	}
	e := stepEdge{inside, to}
	if _, ok := w.edges[e]; !ok {
		w.edges[e] = w.NewLabel("edge")
		w.crossings = append(w.crossings, e)
	}
	return w.edges[e]
}

// cross emits code that takes the lock if the step is inside the locked section, and otherwise
// releases it.
func (w *stepWriter) cross(to *paths.Step) {
	if to.Inside {
		w.locks.LockInside(to)
	} else {
		w.locks.UnlockInside()
	}
}

// emit emits a step. The code of the step following comes right after it. emit returns true if the
// caller must still emit the step's only outgoing edge.
func (w *stepWriter) emit(name string, s, following *paths.Step) (goesOn bool) {
	switch s.Kind {
	case paths.StepEnd:
		w.Jump(name + ".end")
		return false
	case paths.StepUnlocked:
		w.locks.EmitUnlocked(s.Undo, s.Next[1], w.toward(false, s.Next[1]))
	case paths.StepUndo:
		w.locks.RestoreKept(s.Undo)
		for _, h := range s.Undo.Reload {
			w.headers.ReloadBlock(h, "ingress.drop")
		}
	case paths.StepValidate:
		w.locks.EmitValidate(s.Next[1].Undo, w.toward(false, s.Next[1]))
	case paths.StepTest:
		fall := ""
		if following != nil {
			fall = w.labels[following]
		}
		w.StartBranch(s.Expr)
		w.Branch(w.Truth(s.Expr), w.toward(s.Inside, s.Next[0]), w.toward(s.Inside, s.Next[1]),
			fall, 0)
		return false
	case paths.StepTable:
		w.pipeline.end = name + ".exit"
		if s.Inside {
			w.pipeline.end = name + ".exit.locked"
		}
		w.emitLookup(s, w.toward)
		return false
	case paths.StepSet:
		if !s.Dead {
			w.StoreValue(s.Dst, ir.Const(s.Value))
		}
	case paths.StepPrimitive:
		if !s.Dead {
			w.primitive(s.Primitive, name)
		}
		if s.Spoilt {
			w.locks.SpoilRead(s.Primitive)
		}
	}
	return true
}

// emitWayOn emits the edge to the next step, after a step with a single outgoing edge.
func (w *stepWriter) emitWayOn(s, following *paths.Step) {
	to := s.Next[0]
	if following == to && to.Inside != s.Inside {
		w.cross(to)
		w.Jump(w.labels[to])
		return
	}
	w.Jump(w.toward(s.Inside, to))
}

// emitLookup emits a table lookup whose outcomes are steps.
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

// dispatch emits a jump to the step of the action that an entry word names. The word is in Entry
// or, for a table with slots, in PHVAction.
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

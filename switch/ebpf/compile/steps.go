package compile

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// emitSteps emits a pipeline whose paths have been found. As in runPipeline, control leaves it at
// its end, and what crosses the border of the section that has the registers takes or gives back
// their lock; here each step is inside of it, or is not.
func (t *translator) emitSteps(name string, order []*step) {
	type edge struct {
		from bool
		to   *step
	}
	edges, crossings := map[edge]string{}, []edge{}
	for _, s := range order {
		s.label = t.NewLabel("step")
	}
	toward := func(from bool, to *step) string {
		e := edge{from, to}
		if from == to.inside {
			return to.label
		}
		if _, ok := edges[e]; !ok {
			edges[e] = t.NewLabel("edge")
			crossings = append(crossings, e)
		}
		return edges[e]
	}
	cross := func(to *step) {
		if to.inside {
			t.lockInside(to)
		} else {
			t.unlockInside()
		}
	}
	t.pipeline = &pipelineState{}
	if order[0].inside {
		cross(order[0])
	}
	for i, s := range order {
		t.Bind(s.label)
		t.Facts, t.Where, t.Params, t.Constants = s.facts, s.path, s.params, s.constants
		switch s.kind {
		case stepEnd:
			t.Jump(name + ".end")
			continue
		case stepUnlocked:
			t.emitUnlocked(s.undo, s.next[1], toward(false, s.next[1]))
		case stepUndo:
			t.restoreKept(s.undo)
			for _, h := range s.undo.reload {
				t.reload(h, "ingress.drop")
			}
		case stepValidate:
			t.emitValidate(s.next[1].undo, toward(false, s.next[1]))
		case stepTest:
			fall := ""
			if i+1 < len(order) {
				fall = order[i+1].label
			}
			t.beginBranch(s.expr)
			t.Branch(t.Truth(s.expr), toward(s.inside, s.next[0]), toward(s.inside, s.next[1]),
				fall, 0)
			continue
		case stepTable:
			t.pipeline.end = name + ".exit"
			if s.inside {
				t.pipeline.end = name + ".exit.locked"
			}
			t.emitLookup(s, toward)
			continue
		case stepSet:
			if !s.dead {
				t.StoreValue(s.dst, ir.Const(s.value))
			}
		case stepPrimitive:
			if !s.dead {
				t.primitive(s.primitive, name)
			}
			if s.spoilt {
				t.spoil(s.primitive)
			}
		}
		to := s.next[0]
		if i+1 < len(order) && order[i+1] == to && to.inside != s.inside {
			cross(to)
			t.Jump(to.label)
			continue
		}
		t.Jump(toward(s.inside, to))
	}
	for i := 0; i < len(crossings); i++ {
		t.Bind(edges[crossings[i]])
		cross(crossings[i].to)
		t.Jump(crossings[i].to.label)
	}
	t.Facts, t.Params, t.Constants = nil, nil, nil
	t.Bind(name + ".exit.locked")
	if slices.ContainsFunc(order, func(s *step) bool { return s.inside }) {
		t.unlockInside()
	}
	t.Jump(name + ".exit")
	t.emitLater()
	t.Bind(name + ".exit")
	t.Bind(name + ".end")
}

// emitLookup emits a table whose outcomes are steps.
func (t *translator) emitLookup(s *step, toward func(bool, *step) string) {
	o, tp := s.table, s.table.plan
	to := func(s2 *step) string { return toward(s.inside, s2) }
	t.Facts = s.facts
	t.readTimeFor(tp)
	miss, run := t.NewLabel("miss"), t.NewLabel("run")
	if tp.Kind != lookupNone {
		labels := map[uint64]string{}
		for word, entry := range o.known {
			labels[word] = to(entry)
		}
		t.lookup(tp, labels, miss)
		t.Bind(run)
		if !tp.Inline {
			t.countHit(tp, miss)
		}
		t.dispatch(tp, o.hit, to)
	}
	t.Bind(miss)
	if o.always != nil {
		t.Jump(to(o.always))
		return
	}
	t.stateAddress(asm.R1, tp.Default)
	t.Load(code.Entry, asm.R1, 0, 8)
	t.Emit(asm.JEq.Imm(code.Entry, 0, to(o.without)))
	if !tp.Inline {
		t.slotAddress(tp, t.pipeline.end)
	}
	t.dispatch(tp, o.missed, to)
}

// dispatch goes to the step of the action that a table's word names: of the word in Entry, or, of a
// table with slots, in phvAction.
func (t *translator) dispatch(tp *TablePlan, steps []*step, to func(*step) string) {
	if len(steps) == 0 {
		t.Jump(t.pipeline.end)
		return
	}
	if len(steps) > 1 {
		if tp.Inline {
			t.Emit(asm.Mov.Reg(asm.R1, code.Entry), asm.And.Imm(asm.R1, 0xffff))
		} else {
			t.Load(asm.R1, code.PHV, phvAction, 2)
		}
	}
	for i, s := range steps[:len(steps)-1] {
		t.Emit(asm.JEq.Imm(asm.R1, int32(i+1), to(s)))
	}
	t.Jump(to(steps[len(steps)-1]))
}

// zeroMetadata makes metadata 0 where it may be read before it is set, and all that is not known of
// without paths.
func (t *translator) zeroMetadata() {
	from := t.Layout.Next &^ 7
	if t.live == nil {
		t.Zero(code.PHV, from, t.Layout.Headers-from)
		return
	}
	t.Zero(code.PHV, from, t.Layout.Meta-from)
	parser := t.parserTouches()
	words := map[int]bool{}
	for _, h := range t.Prog.Headers {
		if !h.Metadata {
			continue
		}
		standard := slices.Contains(standardHeaders, h.Name)
		for i := range h.Type.Fields {
			f := t.Layout.Types[h.Type].Fields[i]
			off := t.Layout.Base[h.Index] + f.Off
			if standard || parser(off) || t.live.has(off) {
				for at := off &^ 7; at < off+f.Size; at += 8 {
					words[at] = true
				}
			}
		}
	}
	for at := t.Layout.Meta; at < t.Layout.Headers; at += 8 {
		if words[at] {
			t.Zero(code.PHV, at, 8)
		}
	}
}

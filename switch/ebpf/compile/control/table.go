package control

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// applyTable emits a table: lookup, action, and where to go on.
func (t *Control) applyTable(tp *memory.TablePlan, next func(bmv2json.Node)) {
	src := tp.Source
	miss, run := t.NewLabel("miss"), t.NewLabel("run")
	t.ReadTimeFor(tp)
	constDefault := tp.ConstantDefault()
	if tp.Kind != memory.LookupNone {
		t.Where = src.Path
		t.tables.LookUp(tp, nil, miss)
		if src.HitMiss {
			t.StoreConstant(code.PHV, memory.PHVHit, 1, 1)
		}
		t.Jump(run)
	}
	t.Bind(miss)
	after := func(i int) {
		if src.HitMiss {
			hit, missed := t.NewLabel("hit"), t.NewLabel("missed")
			if tp.Kind == memory.LookupNone {
				next(src.Miss)
				return
			}
			t.Load(asm.R1, code.PHV, memory.PHVHit, 1)
			t.Emit(asm.JEq.Imm(asm.R1, 0, missed))
			t.Bind(hit)
			next(src.Hit)
			t.Bind(missed)
			next(src.Miss)
			return
		}
		next(src.Next[i])
	}
	noDefault := src.BaseDefaultNext
	if src.HitMiss {
		noDefault = src.Miss
	}
	switch {
	case constDefault:
		if src.HitMiss {
			t.StoreConstant(code.PHV, memory.PHVHit, 0, 1)
		}
		t.Constants = src.Default.Params
		if t.Constants == nil {
			t.Constants = [][]byte{}
		}
		t.runAction(src.Default.Action, t.pipeline.end)
		t.Constants = nil
		switch {
		case src.HitMiss:
			next(src.Miss)
		case src.Default.ActionIndex >= 0:
			next(src.Next[src.Default.ActionIndex])
		default:
			next(noDefault)
		}
		if tp.Kind == memory.LookupNone {
			return
		}
	default:
		if src.HitMiss {
			t.StoreConstant(code.PHV, memory.PHVHit, 0, 1)
		}
		t.StateAddress(asm.R1, tp.Default)
		t.Load(code.Entry, asm.R1, 0, 8)
		has := t.NewLabel("default")
		t.Emit(asm.JNE.Imm(code.Entry, 0, has))
		next(noDefault)
		t.Bind(has)
		if !tp.Inline {
			t.tables.SlotAddress(tp, t.pipeline.end)
			t.Jump(run + ".chosen")
		}
	}
	t.Bind(run)
	if !tp.Inline {
		t.tables.CountHit(tp, miss)
		t.Bind(run + ".chosen")
		t.tables.ChooseMember(tp, run+".empty")
		t.Load(asm.R1, code.PHV, memory.PHVAction, 2)
	} else {
		t.Emit(asm.Mov.Reg(asm.R1, code.Entry), asm.And.Imm(asm.R1, 0xffff))
	}
	for i, a := range src.Actions {
		other := t.NewLabel("other")
		if i < len(src.Actions)-1 {
			t.Emit(asm.JNE.Imm(asm.R1, int32(i+1), other))
		}
		t.Params = &tp.Params[i]
		t.runAction(a, t.pipeline.end)
		t.Params = nil
		after(i)
		t.Bind(other)
	}
	t.Jump(t.pipeline.end) // a table without actions
	if src.Kind == bmv2json.TableIndirectWS {
		t.Bind(run + ".empty") // a group without members does nothing
		if src.HitMiss {
			missed := t.NewLabel("missed")
			t.Load(asm.R1, code.PHV, memory.PHVHit, 1)
			t.Emit(asm.JEq.Imm(asm.R1, 0, missed))
			next(src.Hit)
			t.Bind(missed)
		}
		next(noDefault)
	}
}

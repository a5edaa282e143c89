package compile

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// The control flow of a pipeline is a graph of tables and conditions without cycles; each node
// becomes code once, at a label.
//
// Registers are what packets on several CPUs share. In BMv2 one thread runs all of ingress, so
// whatever a packet does to registers there is done before the next packet comes. Here a lock makes
// it so, held from the first node that touches a register to the last on the packet's path: a node
// is inside if a register may have been touched before it (or is in it) and may be touched after it
// (or in it). Every edge into the inside takes the lock, every edge out gives it back, and since no
// path comes back in, a packet takes it once at most. Packets that touch no register never take it.
// What has been made by its paths may have many locks in the place of that one (stripes.go).
//
// Egress has a section of its own: what a packet does in ingress and what it does in egress are not
// one step in BMv2 either. Meters have a lock of their own, as in BMv2, held only while one is
// asked (meter.go): a program that asks one early would else hold the registers' for all that
// follows. Who takes both takes the registers' first.

// pipelineState is the pipeline that is being translated.
type pipelineState struct {
	end    string
	inside map[bmv2json.Node]bool
}

// nodes lists the nodes of a pipeline that control can come to, each before those after it.
func nodes(p *bmv2json.Pipeline) (order []bmv2json.Node) {
	state := map[bmv2json.Node]int{}
	var visit func(bmv2json.Node)
	visit = func(n bmv2json.Node) {
		if n == nil || state[n] == 2 {
			return
		}
		if state[n] == 1 {
			ir.Refuse(p.Path, "a control flow that goes round (%s)", n.NodeName())
		}
		state[n] = 1
		next := successors(n)
		for i := len(next) - 1; i >= 0; i-- {
			visit(next[i])
		}
		state[n] = 2
		order = append(order, n)
	}
	visit(p.Init)
	for i, j := 0, len(order)-1; i < j; i, j = i+1, j-1 {
		order[i], order[j] = order[j], order[i]
	}
	return order
}

func successors(n bmv2json.Node) []bmv2json.Node {
	switch n := n.(type) {
	case *bmv2json.Conditional:
		return []bmv2json.Node{n.True, n.False}
	case *bmv2json.ActionCall:
		return []bmv2json.Node{n.Next}
	case *bmv2json.Table:
		if n.HitMiss {
			return []bmv2json.Node{n.Hit, n.Miss}
		}
		return append(append([]bmv2json.Node{}, n.Next...), n.BaseDefaultNext)
	}
	return nil
}

// actionsOf are the actions that a node may run.
func actionsOf(n bmv2json.Node) []*bmv2json.Action {
	switch n := n.(type) {
	case *bmv2json.ActionCall:
		return []*bmv2json.Action{n.Action}
	case *bmv2json.Table:
		if n.Default != nil {
			return append([]*bmv2json.Action{n.Default.Action}, n.Actions...)
		}
		return n.Actions
	}
	return nil
}

// touchesRegister reports whether a node reads or writes registers.
func touchesRegister(n bmv2json.Node) bool {
	for _, a := range actionsOf(n) {
		for _, p := range a.Primitives {
			if p.Op == "register_read" || p.Op == "register_write" {
				return true
			}
		}
	}
	return false
}

// writesRegister reports whether a node writes registers.
func writesRegister(n bmv2json.Node) bool {
	for _, a := range actionsOf(n) {
		for _, p := range a.Primitives {
			if p.Op == "register_write" {
				return true
			}
		}
	}
	return false
}

// lockedNodes finds the nodes inside of the locked section.
func lockedNodes(order []bmv2json.Node) map[bmv2json.Node]bool {
	// a register may have been touched, or may still be, itself included
	before, after := map[bmv2json.Node]bool{}, map[bmv2json.Node]bool{}
	for _, n := range order {
		before[n] = before[n] || touchesRegister(n)
		for _, s := range successors(n) {
			if s != nil && before[n] {
				before[s] = true
			}
		}
	}
	inside := map[bmv2json.Node]bool{}
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		after[n] = touchesRegister(n)
		for _, s := range successors(n) {
			after[n] = after[n] || s != nil && after[s]
		}
		inside[n] = before[n] && after[n]
	}
	return inside
}

// runPipeline emits a pipeline. Control leaves it at its end.
func (t *translator) runPipeline(name string) {
	p := t.Prog.Pipeline(name)
	if p == nil {
		return
	}
	if t.steps != nil && name == "ingress" {
		t.emitSteps(name, t.steps)
		return
	}
	order := nodes(p)
	t.pipeline = &pipelineState{end: name + ".exit", inside: map[bmv2json.Node]bool{}}
	if !t.Unlocked {
		t.pipeline.inside = lockedNodes(order)
	}
	label := func(n bmv2json.Node) string {
		if n == nil {
			return name + ".end"
		}
		return name + "." + n.NodeName()
	}
	inside := t.pipeline.inside
	// An edge that crosses the section's border has code of its own. An inside node that a register
	// may be touched before can still be entered from outside.
	type edge struct {
		to bmv2json.Node
		in bool // takes the lock; otherwise gives it back
	}
	edges := map[edge]string{}
	var pending []edge
	toward := func(from bool, n bmv2json.Node) string {
		to := n != nil && inside[n]
		if from == to {
			return label(n)
		}
		e := edge{n, to}
		if _, ok := edges[e]; !ok {
			edges[e] = t.NewLabel("edge")
			pending = append(pending, e)
		}
		return edges[e]
	}
	anyLock := false
	for _, n := range order {
		anyLock = anyLock || inside[n]
	}
	t.Jump(toward(false, p.Init))
	for i, n := range order {
		in := inside[n]
		following := label(nil)
		if i+1 < len(order) {
			following = label(order[i+1])
		}
		t.Bind(label(n))
		t.mark(n.NodeName())
		switch n := n.(type) {
		case *bmv2json.Conditional:
			t.Where = n.Path
			t.beginBranch(n.Expr)
			t.Branch(t.Condition(n.Expr), toward(in, n.True), toward(in, n.False), following, 0)
		case *bmv2json.ActionCall:
			t.Constants = [][]byte{}
			t.runAction(n.Action, t.pipeline.end)
			t.Constants = nil
			t.Jump(toward(in, n.Next))
		case *bmv2json.Table:
			t.applyTable(t.Tables[n.Index], func(s bmv2json.Node) { t.Jump(toward(in, s)) })
		}
	}
	t.Jump(label(nil))
	for i := 0; i < len(pending); i++ {
		e := pending[i]
		t.Bind(edges[e])
		if e.in {
			t.lockRegisters()
		} else {
			t.unlockRegisters()
		}
		t.Jump(label(e.to))
	}
	// exit leaves from anywhere: whether the lock is held is known only as the packet passes.
	t.Bind(t.pipeline.end)
	if anyLock {
		free := t.NewLabel("free")
		t.Load(asm.R1, code.PHV, phvLocked, 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, free))
		t.unlockRegisters()
		t.Bind(free)
	}
	t.Bind(label(nil))
}

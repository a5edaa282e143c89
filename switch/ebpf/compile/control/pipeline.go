package control

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// The control flow of a pipeline is a graph of tables and conditions without cycles; each node
// becomes code once, at a label.
//
// Registers are shared by packets on several CPUs. In BMv2 one thread runs all of ingress, so a
// packet's operations on registers in ingress are done before the next packet comes. In this engine
// a lock has that effect. It is held from the first node that touches a register to the last on the
// packet's path: a node is inside if a register may have been touched before it (or is in it) and
// may be touched after it (or in it). Every edge into the inside takes the lock, and every edge out
// releases it. Since no path comes back in, a packet takes it once at most. Packets that touch no
// register never take it. A program that is compiled by its paths may have many locks instead
// (package locking).
//
// Egress has a section of its own: a packet's ingress and egress are not one step in BMv2 either.
// Meters have a lock of their own, as in BMv2, held only while one is used (externs/meter.go).
// Otherwise a program that uses a meter early would hold the registers' lock for everything that
// follows. A packet that takes both locks takes the registers' lock first.

// pipelineState is the pipeline that is being translated.
type pipelineState struct {
	end    string
	inside map[bmv2json.Node]bool
}

// RunPipeline emits a pipeline. Control leaves it at its end.
func (t *Control) RunPipeline(name string) {
	p := t.Prog.Pipeline(name)
	if p == nil {
		return
	}
	if t.Steps != nil && name == "ingress" {
		t.emitSteps(name, t.Steps)
		return
	}
	order := analysis.Nodes(p)
	t.pipeline = &pipelineState{end: name + ".exit", inside: map[bmv2json.Node]bool{}}
	if !t.Unlocked {
		t.pipeline.inside = analysis.LockedNodes(order)
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
		in bool // true: the edge takes the lock; false: it releases the lock
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
		t.PutMark(n.NodeName())
		t.emitNode(n, following, func(s bmv2json.Node) string { return toward(in, s) })
	}
	t.Jump(label(nil))
	for i := 0; i < len(pending); i++ {
		e := pending[i]
		t.Bind(edges[e])
		if e.in {
			t.locks.LockRegisters()
		} else {
			t.locks.UnlockRegisters()
		}
		t.Jump(label(e.to))
	}
	// exit may be called anywhere, so whether the lock is held is known only at run time.
	t.Bind(t.pipeline.end)
	if anyLock {
		free := t.NewLabel("free")
		t.Load(asm.R1, code.PHV, memory.PHVLocked, 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, free))
		t.locks.UnlockRegisters()
		t.Bind(free)
	}
	t.Bind(label(nil))
}

// emitNode emits one node. toward is the label of the edge to another node; following is that of
// the node that is emitted next.
func (t *Control) emitNode(n bmv2json.Node, following string, toward func(bmv2json.Node) string) {
	switch n := n.(type) {
	case *bmv2json.Conditional:
		t.Where = n.Path
		t.StartBranch(n.Expr)
		t.Branch(t.Condition(n.Expr), toward(n.True), toward(n.False), following, 0)
	case *bmv2json.ActionCall:
		t.Constants = [][]byte{}
		t.runAction(n.Action, t.pipeline.end)
		t.Constants = nil
		t.Jump(toward(n.Next))
	case *bmv2json.Table:
		t.applyTable(t.Tables[n.Index], func(s bmv2json.Node) { t.Jump(toward(s)) })
	}
}

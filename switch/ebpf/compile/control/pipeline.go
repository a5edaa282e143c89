package control

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// The control flow of a pipeline is an acyclic graph of tables and conditions. Each node becomes
// code once, at a label.
//
// Packets on several CPUs share the registers. In BMv2 one thread runs all of ingress, so a
// packet's operations on registers in ingress are done before the next packet comes. In this engine
// a lock has the same effect. A packet holds it from the first node on its path that touches a
// register to the last. A node is inside the locked section if a register may be touched in it or
// before it, and also in it or after it. Every edge into the section takes the lock, and every edge
// out of it releases the lock. No path comes back into the section, so a packet takes the lock once
// at most. Packets that touch no register never take it. A program that is compiled path by path
// may have many locks instead (package locking).
//
// Egress has a locked section of its own, because a packet's ingress and egress are separate steps
// in BMv2, too. Meters have a lock of their own, as in BMv2, which a packet holds only while it
// uses a meter (externs/meter.go). Otherwise a program that uses a meter early would hold the
// registers' lock for everything that follows. A packet that takes both locks takes the registers'
// lock first.

// pipelineState describes the pipeline that is being translated.
type pipelineState struct {
	end    string
	inside map[bmv2json.Node]bool
}

// RunPipeline emits a pipeline. After the emitted code, the pipeline has ended.
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
	// edge is an edge across the border of the locked section, which has its own code. The
	// destination can be an inside node that is also reachable from inside, after a register was
	// touched.
	type edge struct {
		to bmv2json.Node
		in bool // true if the edge takes the lock, false if it releases the lock
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
	// The program may exit anywhere, so only a run-time check can tell whether the packet holds the
	// lock.
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

// emitNode emits one node. toward returns the label of the edge to another node. following is the
// label of the node that is emitted next.
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

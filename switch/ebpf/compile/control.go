package compile

import (
	"runtime"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// The control flow of a pipeline is a graph of tables and conditions without cycles; each node becomes code once, at a label.
//
// Registers are what packets on several CPUs share. In BMv2 one thread runs all of ingress, so whatever a packet does to registers there is done before the
// next packet comes. Here a lock makes it so, held from the first node that touches a register to the last on the packet's path: a node is inside if
// a register may have been touched before it (or is in it) and may be touched after it (or in it). Every edge into the inside takes the lock, every edge out
// gives it back, and since no path comes back in, a packet takes it once at most. Packets that touch no register never take it.
//
// Egress has a section of its own: what a packet does in ingress and what it does in egress are not one step in BMv2 either. Meters have a lock of their own, as in BMv2, held
// only while one is asked (meter.go): a program that asks one early would else hold the registers' for all that follows. Who takes both takes the registers' first.

// A packet may have looked something up, and wait for the registers while the control plane changes what it has found. So a packet notes the epoch in which it begins, and
// Barrier counts the epoch up after a change, leaves the packets that began before time to end (barrierGrace), says that none of an earlier epoch may have the registers
// from now on, and waits until the lock is free: a packet that has the registers by then is waited for; one that gets them later is dropped before it touches them. That costs
// a packet two loads. To wait until all packets are gone (waitForPackets) would cost the control plane 8 to 40 ms for each request, and without the grace a request in
// eighty dropped a packet of a client that asks without a pause.

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

// lockedNodes finds the nodes inside of the locked section.
func lockedNodes(order []bmv2json.Node) map[bmv2json.Node]bool {
	before, after := map[bmv2json.Node]bool{}, map[bmv2json.Node]bool{} // a register may have been touched, or may still be, itself included
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
	// An edge that crosses the section's border has code of its own. An inside node that a register may be touched before can still be entered from outside.
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
		switch n := n.(type) {
		case *bmv2json.Conditional:
			t.Where = n.Path
			t.BeginStatement(ir.NewOperand(n.Expr, 1))
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

// lockTries bounds how often a packet looks whether the lock has come free before it is dropped: some tens of milliseconds, a thousand times longer than any
// packet holds it.
const lockTries = 1 << 23

// lockRegisters waits for the registers. Packets are processed with interrupts of the network disabled (softirq), so the holder runs on another CPU and is never
// kept from finishing by the one that waits.
func (t *translator) lockRegisters() {
	drop := "ingress.drop"
	if t.Name == "egress" {
		drop = "egress.drop"
	}
	t.acquire(t.Lock, drop)
	current := t.NewLabel("current")
	t.stateAddress(asm.R1, t.Epoch)
	t.Load(asm.R2, asm.R1, OldestEpoch, 8)
	t.Load(asm.R3, code.PHV, phvEpoch, 8)
	t.Emit(asm.JLE.Reg(asm.R2, asm.R3, current), asm.Mov.Imm(asm.R2, 1), code.Atomic(asm.AddAtomic, asm.R1, asm.R2, EpochDropped))
	t.release(t.Lock)
	t.Jump(drop)
	t.Bind(current)
	t.StoreConstant(code.PHV, phvLocked, 1, 1)
}

// Behind Plan.Epoch.
const (
	EpochDropped = 8  // how many packets Barrier has had dropped
	OldestEpoch  = 16 // packets that began in an earlier epoch may not have the registers
)

// recordEpoch keeps the epoch in which a packet begins, before it looks anything up. It uses R1 and R2.
func (t *translator) recordEpoch() {
	if !t.locks() {
		return
	}
	t.stateAddress(asm.R1, t.Epoch)
	if runtime.GOARCH == "amd64" { // whose later loads are not done earlier
		t.Load(asm.R2, asm.R1, 0, 8)
	} else {
		t.Emit(asm.Mov.Imm(asm.R2, 0), code.Atomic(asm.FetchAdd, asm.R1, asm.R2, 0))
	}
	t.Store(code.PHV, phvEpoch, asm.R2, 8)
}

// locks says whether packets ever take the registers' lock.
func (t *translator) locks() bool { return !t.Unlocked && len(t.Prog.Registers) > 0 }

// acquire takes a lock, or goes to failed. It uses the registers 0 to 5 and the first word of the stack.
func (t *translator) acquire(lock int, failed string) {
	got, name := t.NewLabel("got"), "wait"
	if lock != t.Lock {
		name = "wait.meters"
	}
	t.stateAddress(asm.R1, lock)
	t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1), code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JEq.Imm(asm.R0, 0, got))
	t.StoreConstant(asm.R10, -8, 0, 8)
	t.Emit(asm.Mov.Imm(asm.R1, lockTries))
	t.LoadFunction(asm.R2, name)
	t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnLoop)
	t.Load(asm.R1, asm.R10, -8, 8)
	t.Emit(asm.JEq.Imm(asm.R1, 0, failed))
	t.Bind(got)
	for _, f := range t.functions {
		if f.Name == name {
			return
		}
	}
	wait := t.function(name, func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R2))
		t.stateAddress(asm.R1, lock)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1), code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JEq.Imm(asm.R0, 0, name+".got"))
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind(name + ".got")
		t.StoreConstant(asm.R6, 0, 1, 8)
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	})
	t.functions = append(t.functions, wait)
}

// unlockRegisters lets the next packet have the registers.
func (t *translator) unlockRegisters() {
	t.StoreConstant(code.PHV, phvLocked, 0, 1)
	t.release(t.Lock)
}

// release gives a lock back. It uses the registers 1 and 2.
func (t *translator) release(lock int) {
	t.stateAddress(asm.R1, lock)
	if runtime.GOARCH == "amd64" { // whose stores are not reordered with earlier loads and stores
		t.StoreConstant(asm.R1, 0, 0, 8)
		return
	}
	t.Emit(asm.Mov.Imm(asm.R2, 0), code.Atomic(asm.Xchg, asm.R1, asm.R2, 0))
}

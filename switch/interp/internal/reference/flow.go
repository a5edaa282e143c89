package reference

import (
	"fmt"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
)

// Flow is the control flow of a pipeline exactly as it is written: conditions, tables and actions
// that lead to each other.
type Flow struct{ first *node }

// node is a condition, a table, or an action that runs unconditionally. A nil node is the end of
// the pipeline.
type node struct {
	// If a condition is true, it leads to yes, and otherwise to next.
	cond expression.Condition
	yes  *node
	// A table's choice decides which node is next.
	table   *choice
	actions []*Action // indexed by Action.Index
	obs     *packetevents.Observer
	// An action leads to next. If it stops and the program has executed exit, the action leads to
	// the pipeline's end.
	do    expression.Statement
	stops bool
	next  *node
}

// choice has the nodes that may follow a table. If an action ran, the next node is in hit or miss,
// by Action.Index. Otherwise the next node is none (the entry has an empty group) or missed (the
// table has no default entry).
type choice struct {
	t            *matchtables.Table
	hit, miss    []*node
	none, missed *node
}

// Run runs a packet through the control flow.
func (f *Flow) Run(st *packet.State) {
	for n := f.first; n != nil; {
		switch {
		case n.cond != nil:
			if n.cond(st) {
				n = n.yes
			} else {
				n = n.next
			}
		case n.table != nil:
			n = n.apply(st)
		default:
			n.do(st)
			if n.stops && st.Exited {
				n = nil
			} else {
				n = n.next
			}
		}
	}
	st.Exited = false
}

// apply looks up a packet in a table, runs the action of the entry that it finds, and returns the
// next node.
func (n *node) apply(st *packet.State) *node {
	c := n.table
	e := c.t.Lookup(st)
	n.tellLookup(st, e)
	next, none := c.hit, c.none
	if e != nil {
		c.t.RecordHit(st, e)
	} else {
		next, none = c.miss, c.missed
		if e = c.t.Default; e == nil {
			return none
		}
	}
	do := e.Call(st)
	if do == nil {
		return none
	}
	if n.obs.HasTrace() {
		n.traceCall(do)
	}
	n.obs.Event(st, packetevents.ActionExecute, do.Source.ID, 0)
	st.Parameters = do.Parameters
	a := n.actions[do.Index]
	a.Run(st)
	if a.Stops && st.Exited {
		return nil
	}
	return next[do.Index]
}

// tellLookup reports a table lookup and its result to the observer.
func (n *node) tellLookup(st *packet.State, e *matchtables.Entry) {
	t := n.table.t
	if n.obs.HasTrace() && len(t.Source.Keys) > 0 {
		found := "miss"
		if e != nil {
			found = "hit"
		}
		n.obs.Tracef("Table '%s': %s. Key: %s", t.Source.Name, found, t.DescribeKey(st))
	}
	if e == nil {
		n.obs.Event(st, packetevents.TableMiss, t.Source.ID, 0)
		return
	}
	n.obs.Event(st, packetevents.TableHit, t.Source.ID, e.Handle)
}

// traceCall traces the action that a table runs.
func (n *node) traceCall(do *matchtables.Call) {
	var params []string
	for i, v := range do.Export().Params {
		params = append(params, fmt.Sprintf("%s: %x", do.Source.Params[i].Name, v))
	}
	n.obs.Tracef("Action %s(%s)", do.Source.Name, strings.Join(params, ", "))
}

// flowCompiler compiles a control flow.
type flowCompiler struct {
	c     *Compiler
	nodes map[bmv2json.Node]*node
}

// Flow compiles the control flow of a pipeline.
func (c *Compiler) Flow(pl *bmv2json.Pipeline) *Flow {
	f := &flowCompiler{c: c, nodes: map[bmv2json.Node]*node{}}
	return &Flow{f.node(pl.Init)}
}

// node compiles a node and its successors, each of them once.
func (f *flowCompiler) node(n bmv2json.Node) *node {
	if n == nil {
		return nil
	}
	out := f.nodes[n]
	if out != nil {
		return out
	}
	switch n := n.(type) {
	case *bmv2json.Conditional:
		cond := f.c.toldCondition(n, f.c.tracedCondition(n, f.c.Condition(n.Expr)))
		out = &node{cond: cond, yes: f.node(n.True), next: f.node(n.False)}
	case *bmv2json.ActionCall:
		out = f.action(f.c.Actions[n.Action.Index], nil, f.node(n.Next))
	case *bmv2json.Table:
		out = f.table(f.c.Tables[n.Index])
	}
	f.nodes[n] = out
	return out
}

// action returns the node of an action that runs unconditionally. If of is not nil, the action
// stands for that table, which is reported first.
func (f *flowCompiler) action(a *Action, of *bmv2json.Table, next *node) *node {
	out := &node{do: a.Run, stops: a.Stops, next: next}
	if of != nil {
		obs := f.c.Observer
		out.do = func(st *packet.State) {
			obs.Event(st, packetevents.TableMiss, of.ID, 0)
			obs.Event(st, packetevents.ActionExecute, a.Source.ID, 0)
			a.Run(st)
		}
	}
	return out
}

// table returns the node of a table, and compiles the table's successors. If several tables share
// an action profile, a member may name an action object that p4c made for another table. It is the
// same action if its name is the same.
func (f *flowCompiler) table(t *matchtables.Table) *node {
	if a := t.OnlyAction(); a != nil && !f.c.Observer.HasTrace() {
		return f.action(f.c.Actions[a.Index], t.Source, f.node(t.AfterMiss(0)))
	}
	n := len(f.c.Actions)
	out := &choice{t: t, none: f.node(t.AfterHit(-1)), missed: f.node(t.AfterMiss(-1)),
		hit: make([]*node, n), miss: make([]*node, n)}
	known := make([]bool, n)
	lead := func(a *bmv2json.Action, i int) {
		out.hit[a.Index], out.miss[a.Index] = f.node(t.AfterHit(i)), f.node(t.AfterMiss(i))
		known[a.Index] = true
	}
	for i, a := range t.Source.Actions {
		lead(a, i)
	}
	if t.Source.ActionProfile != nil {
		for _, b := range f.c.Source.Actions {
			if a, i := t.Source.Action(b.Name); a != nil && !known[b.Index] {
				lead(b, i)
			}
		}
	}
	if d := t.Source.Default; d != nil && !known[d.Action.Index] && t.Source.HitMiss {
		out.miss[d.Action.Index] = f.node(t.Source.Miss)
	}
	return &node{table: out, actions: f.c.Actions, obs: f.c.Observer}
}

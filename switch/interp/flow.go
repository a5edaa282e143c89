package interp

import (
	"fmt"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// flow is the control flow of a pipeline as it stands in the program: its nodes, one after the
// other.
type flow struct{ first *node }

// node is a condition, a table, or an action that nothing chooses. A nil node is the pipeline's
// end.
type node struct {
	cond    boolFn // goes on at yes or at next
	table   *choice
	do      doFn // an action
	stops   bool // the pipeline may end within the action
	yes     *node
	next    *node
	actions []*action // by Action.Index
	obs     *observer
}

// choice is a table at its place in the control flow, and where a packet goes on behind it: by
// Action.Index where an action ran, and otherwise at none (an entry that has none) or missed.
type choice struct {
	t            *table
	hit, miss    []*node
	none, missed *node
}

// run takes a packet through.
func (f *flow) run(st *state) {
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
			if n.stops && st.exit {
				n = nil
			} else {
				n = n.next
			}
		}
	}
	st.exit = false
}

// apply looks a packet up in a table, runs the action that it finds, and returns where to go on.
func (n *node) apply(st *state) *node {
	c := n.table
	e := c.t.lookup(st)
	n.tellLookup(st, e)
	next, none := c.hit, c.none
	if e != nil {
		c.t.recordHit(st, e)
	} else {
		next, none = c.miss, c.missed
		if e = c.t.def; e == nil {
			return none
		}
	}
	do := e.call(st)
	if do == nil {
		return none
	}
	if n.obs.traces() {
		n.traceCall(do)
	}
	n.obs.event(st, EventActionExecute, do.src.ID, 0)
	st.params = do.params
	a := n.actions[do.index]
	a.run(st)
	if a.stops && st.exit {
		return nil
	}
	return next[do.index]
}

// tellLookup tells what was looked up in a table.
func (n *node) tellLookup(st *state, e *entry) {
	t := n.table.t
	if n.obs.traces() && len(t.keys) > 0 {
		found := "miss"
		if e != nil {
			found = "hit"
		}
		n.obs.trace("Table '%s': %s. Key: %s", t.src.Name, found, t.describeKey(st))
	}
	if e == nil {
		n.obs.event(st, EventTableMiss, t.src.ID, 0)
		return
	}
	n.obs.event(st, EventTableHit, t.src.ID, e.handle)
}

// traceCall says what a table runs.
func (n *node) traceCall(do *call) {
	var params []string
	for i, v := range do.export().Params {
		params = append(params, fmt.Sprintf("%s: %x", do.src.Params[i].Name, v))
	}
	n.obs.trace("Action %s(%s)", do.src.Name, strings.Join(params, ", "))
}

// flowCompiler compiles a control flow.
type flowCompiler struct {
	c     *compiler
	nodes map[bmv2json.Node]*node
}

// flow compiles the control flow of a pipeline.
func (c *compiler) flow(pl *bmv2json.Pipeline) *flow {
	f := &flowCompiler{c: c, nodes: map[bmv2json.Node]*node{}}
	return &flow{f.node(pl.Init)}
}

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
		cond := f.c.toldCondition(n, f.c.tracedCondition(n, f.c.boolean(n.Expr)))
		out = &node{cond: cond, yes: f.node(n.True), next: f.node(n.False)}
	case *bmv2json.ActionCall:
		out = f.action(f.c.actions[n.Action.Index], nil, f.node(n.Next))
	case *bmv2json.Table:
		out = f.table(f.c.tables[n.Index])
	}
	f.nodes[n] = out
	return out
}

// action is an action that nothing chooses. If a table stands for it, that is told before.
func (f *flowCompiler) action(a *action, of *bmv2json.Table, next *node) *node {
	out := &node{do: a.run, stops: a.stops, next: next}
	if of != nil {
		obs := f.c.obs
		out.do = func(st *state) {
			obs.event(st, EventTableMiss, of.ID, 0)
			obs.event(st, EventActionExecute, a.src.ID, 0)
			a.run(st)
		}
	}
	return out
}

// table is a table with where its actions lead to. A member of an action profile that several
// tables share may name an action object that p4c made for another of them; it is the same action
// by name.
func (f *flowCompiler) table(t *table) *node {
	if a := t.onlyAction(); a != nil && !f.c.obs.traces() {
		return f.action(f.c.actions[a.Index], t.src, f.node(t.afterMiss(0)))
	}
	n := len(f.c.actions)
	out := &choice{t: t, none: f.node(t.afterHit(-1)), missed: f.node(t.afterMiss(-1)),
		hit: make([]*node, n), miss: make([]*node, n)}
	known := make([]bool, n)
	lead := func(a *bmv2json.Action, i int) {
		out.hit[a.Index], out.miss[a.Index] = f.node(t.afterHit(i)), f.node(t.afterMiss(i))
		known[a.Index] = true
	}
	for i, a := range t.src.Actions {
		lead(a, i)
	}
	if t.profile != nil {
		for _, b := range f.c.prog.Actions {
			if a, i := t.src.Action(b.Name); a != nil && !known[b.Index] {
				lead(b, i)
			}
		}
	}
	if d := t.src.Default; d != nil && !known[d.Action.Index] && t.src.HitMiss {
		out.miss[d.Action.Index] = f.node(t.src.Miss)
	}
	return &node{table: out, actions: f.c.actions, obs: f.c.obs}
}

package vm

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
)

// largestBody is the number of primitives of the largest action that is inlined wherever it is
// used.
const largestBody = 256

// mostWritten is the largest total number of inlined primitives.
const mostWritten = 1 << 17

// node creates the steps for a node of the control flow and for all its successors.
func (l *lowering) node(n bmv2json.Node) *step {
	if n == nil {
		return l.end
	}
	s := l.nodes[n]
	if s == nil {
		switch n := n.(type) {
		case *bmv2json.Conditional:
			s = l.conditional(n)
		case *bmv2json.ActionCall:
			s = l.action(l.c.Actions[n.Action.Index], l.node(n.Next))
		case *bmv2json.Table:
			s = l.table(l.c.Tables[n.Index])
		}
		l.nodes[n] = s
	}
	return s
}

func (l *lowering) conditional(n *bmv2json.Conditional) *step {
	yes, no := l.node(n.True), l.node(n.False)
	l.used = 0
	return l.cond(n.Expr, yes, no)
}

// table creates the steps of a table, of its actions, and of their successors. If several tables
// share an action profile, a member may name an action object that p4c made for another table. It
// is the same action if its name is the same.
func (l *lowering) table(t *matchtables.Table) *step {
	actions := l.c.Actions
	if a := t.OnlyAction(); a != nil {
		return l.action(actions[a.Index], l.node(t.AfterMiss(0)))
	}
	out := &outcomes{t: t, hit: make([]*step, len(actions)), miss: make([]*step, len(actions)),
		missed: l.node(t.AfterMiss(-1))}
	out.none = l.node(t.AfterHit(-1))
	for i, a := range t.Source.Actions {
		out.hit[a.Index] = l.action(actions[a.Index], l.node(t.AfterHit(i)))
		out.miss[a.Index] = out.hit[a.Index]
		if t.Source.HitMiss {
			out.miss[a.Index] = l.action(actions[a.Index], l.node(t.AfterMiss(i)))
		}
	}
	if t.Source.ActionProfile != nil {
		for _, b := range l.c.Source.Actions {
			if a, _ := t.Source.Action(b.Name); a != nil && out.hit[b.Index] == nil {
				out.hit[b.Index], out.miss[b.Index] = out.hit[a.Index], out.miss[a.Index]
			}
		}
	}
	if d := t.Source.Default; d != nil && out.miss[d.Action.Index] == nil {
		then := l.end
		if t.Source.HitMiss {
			then = l.node(t.Source.Miss)
		}
		out.miss[d.Action.Index] = l.action(actions[d.Action.Index], then)
	}
	return &step{op: opTable, table: out}
}

// action creates the steps of an action.
func (l *lowering) action(a *reference.Action, next *step) *step {
	if a.Stops {
		next = &step{op: opIfExit, yes: l.end, next: next}
	}
	targets, ok := forwardJumps(a)
	l.written += len(a.Statements)
	if !ok || len(a.Statements) > largestBody || l.written > mostWritten {
		return &step{op: opDo, do: a.Run, effects: anything, next: next}
	}
	l.c.Params = a.Parameters
	defer func() { l.c.Params = nil }()
	at := make([]*step, len(a.Statements)+1)
	at[len(a.Statements)] = next
	for i := len(a.Statements) - 1; i >= 0; i-- {
		p := a.Source.Primitives[i]
		switch {
		case p.Op == "_jump":
			at[i] = at[targets[i]]
		case p.Op == "_jump_if_zero":
			l.used = 0
			at[i] = l.truth(p.Args[0], at[i+1], at[targets[i]])
		default:
			at[i] = l.primitive(p, a.Statements[i], at[i+1])
		}
	}
	return at[0]
}

// forwardJumps returns the targets of an action's jumps. It returns false if an action jumps
// backward, or to an unknown target.
func forwardJumps(a *reference.Action) (targets map[int]int, ok bool) {
	targets = map[int]int{}
	for i, p := range a.Source.Primitives {
		if p.Op != "_jump" && p.Op != "_jump_if_zero" {
			continue
		}
		to := p.Args[len(p.Args)-1]
		if to.Op != bmv2json.OpConst || !to.Const.IsInt64() || to.Const.Int64() <= int64(i) {
			return nil, false
		}
		targets[i] = int(min(to.Const.Int64(), int64(len(a.Statements))))
	}
	return targets, true
}

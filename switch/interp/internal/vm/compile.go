package vm

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
)

// Compile compiles the control flow of a pipeline. first is the index of the first lane for
// temporaries.
func Compile(c *reference.Compiler, pl *bmv2json.Pipeline, first int) *Code {
	l := &lowering{c: c, end: &step{op: opEnd}, nodes: map[bmv2json.Node]*step{},
		conds: map[*bmv2json.Expr]expression.Condition{}, first: first}
	s := l.node(pl.Init)
	if lanes := c.Layout.Lanes; s.count(map[*step]bool{})*lanes <= mostFacts {
		private := l.private(pl)
		zero := slices.Clone(private)
		for i := range Temporaries {
			zero.remove(first + i)
		}
		s = thread(s, c.Layout.Widths(), len(c.Layout.Headers), zero)
		d := dead{private: private, done: map[*step]alive{}}
		s = d.at(s).step
	}
	out := placed(s)
	out.registers, out.counters = c.Registers, c.Counters
	return out
}

// mostFacts bounds the optimization of paths. It is skipped if the number of steps times the number
// of lanes is larger.
const mostFacts = 1 << 26

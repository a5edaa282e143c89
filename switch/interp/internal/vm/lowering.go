package vm

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
)

// Temporaries are the lanes for intermediate results of an expression; one that needs more is left
// to a closure.
const Temporaries = 8

// lowering makes steps of the control flow of a pipeline. They are made from the end: each is made
// knowing what comes after it.
type lowering struct {
	c     *reference.Compiler
	end   *step
	nodes map[bmv2json.Node]*step
	conds map[*bmv2json.Expr]expression.Condition
	first int // lane of the temporaries
	used  int // of the temporaries
	// primitives of actions that have been written out
	written int
}

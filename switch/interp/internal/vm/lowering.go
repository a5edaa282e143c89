package vm

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
)

// Temporaries is the number of lanes for the intermediate results of an expression. An expression
// that needs more becomes a closure.
const Temporaries = 8

// lowering creates the steps of a pipeline's control flow from the end to the beginning, so that
// each step can refer to its successors.
type lowering struct {
	c     *reference.Compiler
	end   *step
	nodes map[bmv2json.Node]*step
	conds map[*bmv2json.Expr]expression.Condition
	first int // index of the first lane for temporaries
	used  int // number of temporaries in use
	// written counts the inlined primitives
	written int
}

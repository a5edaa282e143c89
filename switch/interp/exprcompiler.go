package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// The program is compiled once, at New, into closures over a packet's state: what is known of the
// program (which lane, which width, which constant) is bound in them, and what is left at run time
// is loads, arithmetic and stores. Most of what pipelines do takes no closure (code.go).
type (
	// a number in one lane; what its upper bits are is up to who compiled it
	numFn  func(*state) uint64
	wideFn func(*state, []uint64) // a number in as many lanes as are given, as two's complement
	boolFn func(*state) bool      // a condition
	hdrFn  func(*state) int       // a header's index, or -1 for an index outside of its stack
	doFn   func(*state)           // a primitive
)

// exprCompiler compiles the expressions of a program.
type exprCompiler struct {
	prog   *bmv2json.Program
	lay    *layout
	cells  []*registerArray // by Register.Index
	params []paramAt        // of the action that is compiled
}

// newExprCompiler makes the compiler of a program's expressions. Registers are read as they are in
// cells, by Register.Index.
func newExprCompiler(prog *bmv2json.Program, lay *layout, cells []*registerArray) *exprCompiler {
	return &exprCompiler{prog: prog, lay: lay, cells: cells}
}

// temp reserves lanes of scratch. Each wide operation has its own: nothing is shared, so nothing
// can be overwritten while in use.
func (c *exprCompiler) temp(lanes int) (from, to int) {
	from = c.lay.scratch
	c.lay.scratch += lanes
	return from, c.lay.scratch
}

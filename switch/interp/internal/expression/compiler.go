package expression

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// The types of the functions to which expressions and statements are compiled.
type (
	// Number returns a number in one lane. What its upper bits contain depends on the function that
	// compiled it.
	Number func(*packet.State) uint64
	// WideNumber writes a number in two's complement to all lanes of its argument.
	WideNumber func(*packet.State, []uint64)
	// Condition reports whether a condition is true.
	Condition func(*packet.State) bool
	// HeaderIndex returns the index of a header, or -1 for an element outside its stack.
	HeaderIndex func(*packet.State) int
	// Statement executes a primitive.
	Statement func(*packet.State)
)

// Compiler compiles the expressions of a program.
type Compiler struct {
	Source *bmv2json.Program
	Layout *packet.Layout
	// Params are the parameters of the action being compiled.
	Params []packet.Parameter

	registers []*arrays.Register // indexed by Register.Index
}

// New returns the compiler of a program's expressions. registers are the arrays that the
// expressions read, by Register.Index.
func New(prog *bmv2json.Program, lay *packet.Layout, registers []*arrays.Register) *Compiler {
	return &Compiler{Source: prog, Layout: lay, registers: registers}
}

// Scratch reserves scratch lanes. Each wide operation has its own scratch lanes, so no operation
// can overwrite lanes that another is using.
func (c *Compiler) Scratch(lanes int) (from, to int) {
	from = c.Layout.ScratchLanes
	c.Layout.ScratchLanes += lanes
	return from, c.Layout.ScratchLanes
}

package expression

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// What expressions and statements are compiled into.
type (
	// Number returns a number in one lane. The meaning of its upper bits depends on the function
	// that compiled it.
	Number func(*packet.State) uint64
	// WideNumber sets all lanes that it gets to a number, as two's complement.
	WideNumber func(*packet.State, []uint64)
	// Condition reports whether a condition is true.
	Condition func(*packet.State) bool
	// HeaderIndex gives a header's index, or -1 for an element outside of its stack.
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

	registers []*arrays.Register // by Register.Index
}

// New makes the compiler of a program's expressions, which read registers, by Register.Index.
func New(prog *bmv2json.Program, lay *packet.Layout, registers []*arrays.Register) *Compiler {
	return &Compiler{Source: prog, Layout: lay, registers: registers}
}

// Scratch reserves lanes of scratch. Each wide operation has its own. Because nothing is shared,
// nothing can be overwritten while in use.
func (c *Compiler) Scratch(lanes int) (from, to int) {
	from = c.Layout.ScratchLanes
	c.Layout.ScratchLanes += lanes
	return from, c.Layout.ScratchLanes
}

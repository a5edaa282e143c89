package expression

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// The program is compiled once, at New, into closures over a packet's state: what is known of the
// program (which lane, which width, which constant) is bound in them, and what is left at run time
// is loads, arithmetic and stores. Most of what pipelines do takes no closure (code.go).
type (
	// a number in one lane; what its upper bits are is up to who compiled it
	Number      func(*packet.State) uint64
	WideNumber  func(*packet.State, []uint64) // a number in as many lanes as are given, as two's complement
	Condition   func(*packet.State) bool      // a condition
	HeaderIndex func(*packet.State) int       // a header's index, or -1 for an index outside of its stack
	Statement   func(*packet.State)           // a primitive
)

// Compiler compiles the expressions of a program.
type Compiler struct {
	Source    *bmv2json.Program
	Layout    *packet.Layout
	registers []*arrays.Register // by Register.Index
	Params    []packet.Parameter // of the action that is compiled
}

// New makes the compiler of a program's expressions. Registers are read as they are in
// cells, by Register.Index.
func New(prog *bmv2json.Program, lay *packet.Layout, cells []*arrays.Register) *Compiler {
	return &Compiler{Source: prog, Layout: lay, registers: cells}
}

// Scratch reserves lanes of scratch. Each wide operation has its own: nothing is shared, so nothing
// can be overwritten while in use.
func (c *Compiler) Scratch(lanes int) (from, to int) {
	from = c.Layout.ScratchLanes
	c.Layout.ScratchLanes += lanes
	return from, c.Layout.ScratchLanes
}

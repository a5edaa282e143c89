package interp

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
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

// compiler is what compiling needs to know.
type compiler struct {
	prog     *bmv2json.Program
	p        *Pipeline
	lay      *layout
	scratch  int // lanes of scratch that the wide expressions use in all
	keyLanes int // lanes of the longest parser key
	params   []paramAt
	errs     map[string]uint64 // value of each error
	// by ExternInstance.Index: the lane of scratch of an InternetChecksum
	sums []int
}

// paramAt is where an action's parameter is in the lanes of a call.
type paramAt struct {
	lane, width int
}

// refusal is how the compiler gives up; New turns it into an error.
type refusal struct{ err error }

// refuse gives up on a construct that this engine cannot run.
func refuse(path, format string, args ...any) {
	panic(refusal{fmt.Errorf("%s: %s: %w", path, fmt.Sprintf(format, args...),
		target.ErrUnsupported)})
}

// temp reserves lanes of scratch. Each wide operation has its own: nothing is shared, so nothing
// can be overwritten while in use.
func (c *compiler) temp(lanes int) (from, to int) {
	from = c.scratch
	c.scratch += lanes
	return from, c.scratch
}

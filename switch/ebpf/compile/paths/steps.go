package paths

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

type stepKind int

// The kinds of steps.
const (
	StepEnd stepKind = iota
	// StepTest tests a condition without "and", "or" and "not". Next has the steps for true and for
	// false.
	StepTest
	StepSet       // sets a field to a constant
	StepPrimitive // runs a primitive; Next has one step
	StepTable
	// StepUnlocked begins to read registers without the lock. Next has the step that reads them
	// without the lock, and the step that reads them with the lock.
	StepUnlocked
	// StepValidate checks the registers' version. Next has the step for unchanged registers, and
	// the step for registers that were written meanwhile.
	StepValidate
	StepUndo
)

// Step is one operation on a packet's path, with the facts that are known at this point.
type Step struct {
	Kind  stepKind
	Facts ir.Facts
	Next  []*Step

	Expr      *bmv2json.Expr
	Dst       ir.Place // destination of StepSet
	Value     uint64
	Primitive *bmv2json.Primitive
	Path      string
	Params    *ir.Params // the action's parameters
	Constants [][]byte   // the action's parameters if they are known, instead of Params
	Table     *Outcomes
	Undo      *Unlocked // set for StepUnlocked and StepUndo
	Spoilt    bool      // tests: the step deliberately reads a wrong value

	reads []int // fields that the step reads, or ir.EveryField
	sets  int   // the field that the step always sets, or -1
	Dead  bool  // no later step reads the value that this step sets

	order  int    // position in the topological order
	Inside bool   // the packet has exclusive use of the registers at this step
	Needs  *Needs // the registers that a packet uses from here on; nil outside the locked section
}

// Outcomes are the steps that may follow a table.
type Outcomes struct {
	Plan  *memory.TablePlan
	Hit   []*Step          // steps for a hit, by action
	Known map[uint64]*Step // entry word -> step, for entries whose parameters are constants
	// steps for a miss, by the default entry's action; nil if they are the same as for a hit
	Missed  []*Step
	Without *Step // the step after a miss without a default entry
	Always  *Step // the step for a default entry that the program fixes
}

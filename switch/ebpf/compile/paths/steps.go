package paths

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

type stepKind int

// Kinds of steps.
const (
	StepEnd stepKind = iota
	// a condition without "and", "or" and "not": Next has the steps for true and for false
	StepTest
	StepSet       // a field gets a constant
	StepPrimitive // Next has one step
	StepTable
	// Next has the step that reads registers without the lock, and the one that reads them with it
	StepUnlocked
	StepValidate // Next has the steps for unchanged registers, and for registers that were written meanwhile
	StepUndo
)

// Step is one operation on a packet's path, together with the facts that are known there.
type Step struct {
	Kind  stepKind
	Facts ir.Facts
	Next  []*Step

	Expr      *bmv2json.Expr
	Dst       ir.Place // StepSet
	Value     uint64
	Primitive *bmv2json.Primitive
	Path      string
	Params    *ir.Params // of the action
	Constants [][]byte   // instead of Params, if the parameters are known
	Table     *Outcomes
	Undo      *Unlocked // StepUnlocked, StepUndo
	Spoilt    bool      // the step reads a wrong value on purpose, for tests

	reads []int // fields that the step reads, or ir.EveryField
	sets  int   // the one field that the step always sets; -1: none
	Dead  bool  // the value that it sets is never read

	order  int    // the step's position in the topological order
	Inside bool   // the packet has exclusive use of the registers here
	Needs  *Needs // registers that a packet uses from here on; nil outside the locked section
}

// Outcomes are the steps after a table.
type Outcomes struct {
	Plan    *memory.TablePlan
	Hit     []*Step          // by action
	Known   map[uint64]*Step // steps by entry word, for entries whose parameters are constants
	Missed  []*Step          // steps by the default entry's action; nil: the same as for a hit
	Without *Step            // the step if there is no default entry
	Always  *Step            // the step for the program's own constant default entry
}

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
	// a condition without "and", "or" and "not": Next is where it holds, and where not
	StepTest
	StepSet       // a field gets a constant
	StepPrimitive // Next is one
	StepTable
	StepUnlocked // Next is the step that reads registers without the lock, and the one that does with it
	StepValidate // Next is the step if registers were not written meanwhile, and the one if they were
	StepUndo
)

// Step is something that a packet comes by, knowing facts.
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
	Constants [][]byte   // instead
	Table     *Outcomes
	Undo      *Unlocked // StepUnlocked, StepUndo
	Spoilt    bool      // it reads a wrong value: for tests

	reads []int // fields, or ir.EveryField
	sets  int   // the one field that it always sets; -1 if there is none
	Dead  bool  // nobody reads what it sets

	order  int    // its place
	Inside bool   // a packet has the registers to itself here
	Needs  *Needs // registers taken from here on; nil outside
}

// Outcomes are the steps after a table.
type Outcomes struct {
	Plan    *memory.TablePlan
	Hit     []*Step          // by action
	Known   map[uint64]*Step // by the word of an entry whose parameters are constants
	Missed  []*Step          // by action of the default entry; nil if that is as hit
	Without *Step            // there is no default entry
	Always  *Step            // the default entry is the program's own
}

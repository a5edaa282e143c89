package vm

import (
	"slices"

	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// step is an instruction that has no place in the list yet.
type step struct {
	op      opcode
	a       uint16 // becomes the field a of the instruction
	b       uint32 // becomes the field to of the instruction, if that is a lane
	k       uint64
	value   expression.Number
	cond    expression.Condition
	do      expression.Statement
	effects *effects // effects of value, cond or do; nil if there are none
	table   *outcomes
	next    *step // the next step, or the false branch of a condition
	yes     *step // the true branch of a condition
	at      uint32
	placed  bool
}

// outcomes are the steps that may follow a table.
type outcomes struct {
	t            *matchtables.Table
	hit, miss    []*step // by Action.Index; nil for actions that the table does not have
	none, missed *step
}

// count returns the number of steps reachable from s that are not in seen.
func (s *step) count(seen map[*step]bool) int {
	if s == nil || seen[s] {
		return 0
	}
	seen[s] = true
	n := 1
	for _, x := range s.all() {
		n += x.count(seen)
	}
	return n
}

// all returns the successors of a step.
func (s *step) all() []*step {
	switch {
	case s.op == opTable:
		return slices.Concat(s.table.hit, s.table.miss, []*step{s.table.none, s.table.missed})
	case s.yes != nil:
		return []*step{s.next, s.yes}
	case s.next != nil:
		return []*step{s.next}
	}
	return nil
}

// sets returns the lane that a step sets, if it sets exactly one lane.
func (s *step) sets() (lane int, ok bool) {
	if s.op >= opSet && s.op <= opRead {
		return int(s.a), true
	}
	return 0, false
}

func (s *step) instr() instr { return instr{op: s.op, a: s.a, to: s.b, k: s.k} }

// asks adds the lanes that a step reads to lanes.
func (s *step) asks(lanes laneSet) {
	switch s.op {
	case opCopy, opMask, opAdd, opOr, opXor, opShl, opShr, opRead:
		lanes.add(int(s.b))
	case opAddLane, opSubLane, opAndLane, opOrLane, opXorLane:
		lanes.add(int(s.b))
		lanes.add(int(s.k))
	case opIfEqual, opIfLess, opIfIn, opCount:
		lanes.add(int(s.a))
	case opIfEqualLane, opIfLessLane:
		lanes.add(int(s.a))
		lanes.add(int(s.k))
	case opWrite:
		lanes.add(int(s.a))
		lanes.add(int(s.b))
	}
	switch {
	case s.effects == nil:
	case s.effects.unknown:
		lanes.fill()
	default:
		lanes.addRuns(s.effects.reads)
	}
}

// effects are what a closure may read or set: fields, as runs of lanes, and validity bits. They
// omit fields and bits that no other step uses.
type effects struct {
	reads, sets []packet.Run
	valid       []int // headers whose validity the closure may set
	// unknown is set if the closure may read and set everything.
	unknown bool
}

var anything = &effects{unknown: true}

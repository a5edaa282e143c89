package vm

import (
	"slices"

	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// step is an instruction before it has its place.
type step struct {
	op      opcode
	a       uint16 // as instr has it
	b       uint32 // as instr.to, where that is a lane
	k       uint64
	value   expression.Number
	cond    expression.Condition
	do      expression.Statement
	effects *effects // of value, cond and do; nil: none
	table   *outcomes
	next    *step // for what branches: where the condition does not hold
	yes     *step // where it does
	at      uint32
	placed  bool
}

// outcomes are where a packet continues after a table.
type outcomes struct {
	t            *matchtables.Table
	hit, miss    []*step // by Action.Index; nil for actions that are not the table's
	none, missed *step
}

// count is how many steps there are from one on.
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

// all are the steps that may come after one.
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

// sets is the one lane that a step sets and nothing else.
func (s *step) sets() (lane int, ok bool) {
	if s.op >= opSet && s.op <= opRead {
		return int(s.a), true
	}
	return 0, false
}

func (s *step) instr() instr { return instr{op: s.op, a: s.a, to: s.b, k: s.k} }

// asks adds the lanes that a step reads.
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

// effects are what a closure among the steps may read and set of a packet, so far as others ask for
// it: fields as runs of lanes, and the validity of headers.
type effects struct {
	reads, sets []packet.Run
	valid       []int // headers of which it may set the validity
	// nobody knows: it may read and set everything
	unknown bool
}

var anything = &effects{unknown: true}

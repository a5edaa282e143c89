package vm

import (
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// opcode says what an instruction does. A lane is a lane of the packet (packet.Layout).
type opcode uint16

const (
	opEnd opcode = iota
	opJump

	// Instructions that set lane[a]. a, to and k are the fields of instr.
	opSet     // lane[a] = k
	opCopy    // lane[a] = lane[to]
	opMask    // lane[a] = lane[to] & k
	opParam   // lane[a] = parameter[to] & k, with a parameter of the action
	opAdd     // lane[a] = lane[to] + k
	opOr      // lane[a] = lane[to] | k
	opXor     // lane[a] = lane[to] ^ k
	opShl     // lane[a] = lane[to] << k; k is at most 63
	opShr     // lane[a] = lane[to] >> k; k is at most 63
	opAddLane // lane[a] = lane[to] + lane[k]; the next operators have the same form
	opSubLane
	opAndLane
	opOrLane
	opXorLane
	opValue // lane[a] = the result of Code.values[k]
	opRead  // lane[a] = register[k][lane[to]], if the register cell exists

	// Conditional jumps. If the condition is true, execution continues at instruction to.
	opIfEqual     // condition: lane[a] == k
	opIfEqualLane // condition: lane[a] == lane[k]
	opIfLess      // condition: lane[a] < k
	opIfLessLane  // condition: lane[a] < lane[k]
	opIfIn        // condition: lane[a] < 64, and bit lane[a] of k is set
	opIfValid     // condition: header number a is valid
	opIf          // condition: Code.conds[k]
	opIfExit      // condition: the program has executed exit
	// Conditional jumps that jump if the condition is false.
	opUnlessEqual
	opUnlessEqualLane
	opUnlessLess
	opUnlessLessLane
	opUnlessIn
	opUnlessValid
	opUnless

	opWrite // register[k][lane[to]] = lane[a], if the register cell exists
	opCount // counts a packet in counter[k][lane[a]], if the counter cell exists
	opDo    // executes Code.do[k]
	opTable // applies the table Code.tables[k], whose result determines the next instruction

	// The next a instructions are of the same kind. They run in a loop without a switch.
	opSets
	opCopies
	opParams
)

// negated returns the jump with the opposite condition.
func (op opcode) negated() opcode { return op + opUnlessEqual - opIfEqual }

// branches reports whether an instruction is a jump with two successors.
func (op opcode) branches() bool { return op >= opIfEqual && op <= opIf }

// instr is one instruction of the byte code.
type instr struct {
	k  uint64
	to uint32
	a  uint16
	op opcode
}

// Code is the byte code of a pipeline's control flow.
type Code struct {
	list   []instr
	values []expression.Number
	conds  []expression.Condition
	do     []expression.Statement
	tables []*site

	registers []*arrays.Register
	counters  []*arrays.Counter
}

// site is a table at one place in the control flow. The fields that every lookup uses come first,
// because lookups mostly wait for memory.
type site struct {
	// If the key is one exact field of up to 64 bits: the table's map, the field's lane, and the
	// header that must be valid (-1 if none must be).
	words        *matchtables.WordMap
	lane, header int32
	quiet        bool // set if all entries have actions instead of members or groups
	records      bool // set if hits are recorded in entries
	t            *matchtables.Table
	// The next instruction after an entry's action, and after the default entry's action, indexed
	// by Action.Index.
	hit, miss []uint32
	// The next instruction if the entry has no action, and if the table has no default entry.
	none, missed uint32
}

// Run runs a packet through the control flow.
func (c *Code) Run(st *packet.State) {
	c.from(st)
	st.Exited = false
}

func (c *Code) from(st *packet.State) {
	list, w, pc := c.list, st.Lanes, 0
	for {
		in := &list[pc]
		pc++
		switch in.op {
		case opEnd:
			return
		case opJump:
			pc = int(in.to)
		case opSet:
			w[in.a] = in.k
		case opCopy:
			w[in.a] = w[in.to]
		case opMask:
			w[in.a] = w[in.to] & in.k
		case opParam:
			w[in.a] = st.Parameters[in.to] & in.k
		case opAdd:
			w[in.a] = w[in.to] + in.k
		case opOr:
			w[in.a] = w[in.to] | in.k
		case opXor:
			w[in.a] = w[in.to] ^ in.k
		case opShl:
			w[in.a] = w[in.to] << (in.k & 63)
		case opShr:
			w[in.a] = w[in.to] >> (in.k & 63)
		case opAddLane:
			w[in.a] = w[in.to] + w[in.k]
		case opSubLane:
			w[in.a] = w[in.to] - w[in.k]
		case opAndLane:
			w[in.a] = w[in.to] & w[in.k]
		case opOrLane:
			w[in.a] = w[in.to] | w[in.k]
		case opXorLane:
			w[in.a] = w[in.to] ^ w[in.k]
		case opValue:
			w[in.a] = c.values[in.k](st)
		case opRead:
			if cells, i := c.registers[in.k].Cells, w[in.to]; i < uint64(len(cells)) {
				w[in.a] = cells[i]
			}
		case opIfEqual:
			if w[in.a] == in.k {
				pc = int(in.to)
			}
		case opUnlessEqual:
			if w[in.a] != in.k {
				pc = int(in.to)
			}
		case opIfEqualLane:
			if w[in.a] == w[in.k] {
				pc = int(in.to)
			}
		case opUnlessEqualLane:
			if w[in.a] != w[in.k] {
				pc = int(in.to)
			}
		case opIfLess:
			if w[in.a] < in.k {
				pc = int(in.to)
			}
		case opUnlessLess:
			if w[in.a] >= in.k {
				pc = int(in.to)
			}
		case opIfLessLane:
			if w[in.a] < w[in.k] {
				pc = int(in.to)
			}
		case opUnlessLessLane:
			if w[in.a] >= w[in.k] {
				pc = int(in.to)
			}
		case opIfIn:
			if in.k>>w[in.a]&1 != 0 {
				pc = int(in.to)
			}
		case opUnlessIn:
			if in.k>>w[in.a]&1 == 0 {
				pc = int(in.to)
			}
		case opIfValid:
			if st.Valid[in.a] {
				pc = int(in.to)
			}
		case opUnlessValid:
			if !st.Valid[in.a] {
				pc = int(in.to)
			}
		case opIf:
			if c.conds[in.k](st) {
				pc = int(in.to)
			}
		case opUnless:
			if !c.conds[in.k](st) {
				pc = int(in.to)
			}
		case opIfExit:
			if st.Exited {
				pc = int(in.to)
			}
		case opWrite:
			if cells, i := c.registers[in.k].Cells, w[in.to]; i < uint64(len(cells)) {
				cells[i] = w[in.a]
			}
		case opCount:
			c.counters[in.k].Count(w[in.a], st.ReceivedLength)
		case opDo:
			c.do[in.k](st)
		case opTable:
			pc = int(c.tables[in.k].apply(st))
		case opSets:
			run := list[pc : pc+int(in.a)]
			for i := range run {
				w[run[i].a] = run[i].k
			}
			pc += len(run)
		case opCopies:
			run := list[pc : pc+int(in.a)]
			for i := range run {
				w[run[i].a] = w[run[i].to]
			}
			pc += len(run)
		case opParams:
			run, params := list[pc:pc+int(in.a)], st.Parameters
			for i := range run {
				w[run[i].a] = params[run[i].to] & run[i].k
			}
			pc += len(run)
		}
	}
}

// apply looks up a packet in the table, and returns the first instruction of the action that the
// packet's entry names.
func (s *site) apply(st *packet.State) uint32 {
	var e *matchtables.Entry
	if s.words != nil {
		key := uint64(0)
		if s.header < 0 || st.Valid[s.header] {
			key = st.Lanes[s.lane]
		}
		if e = s.words.Find(key); e != nil && s.quiet {
			st.Parameters = e.Own.Parameters
			return s.hit[e.Own.Index]
		}
	} else {
		e = s.t.Lookup(st)
	}
	if e == nil {
		if e = s.t.Default; e == nil {
			return s.missed
		}
		do := e.Call(st)
		if do == nil {
			return s.missed
		}
		st.Parameters = do.Parameters
		return s.miss[do.Index]
	}
	if s.records {
		s.t.RecordHit(st, e)
	}
	do := e.Call(st)
	if do == nil {
		return s.none
	}
	st.Parameters = do.Parameters
	return s.hit[do.Index]
}

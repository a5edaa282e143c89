package compile

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Plan is where everything is that a program keeps: the fields of one packet (the PHV), and what
// outlives a packet (the state).
//
// All state but hash tables and tries is one value of one BPF map, of which the program knows the
// address and the control plane has a mapping. So a register is read with a bounds check and a
// load, without any call; the control plane sees it without a system call; and while the program
// holds its lock it calls nothing.
type Plan struct {
	Prog   *bmv2json.Program
	Layout *ir.Layout
	std    standardFields

	StateBytes int
	// in the state: 0, or 1 while a packet has registers to itself; behind it the version
	// (unlocked.go)
	Lock      int
	meterLock int // the same of meters
	// in the state: how often the control plane has called Barrier; behind it EpochDropped and
	// OldestEpoch
	Epoch int
	// in the state: how packets get the registers (stripes.go), and how often one found the lock of
	// all of them taken
	Mode, Contended int
	taking          int // in the state: how many bytes of stripes the packet has that takes all
	Stripes         int // in the state
	Registers       []ArrayPlan
	Counters        []CounterPlan
	Meters          []ArrayPlan
	Tables          []*TablePlan // by Table.Index
	// one word for each multicast group id: 1 + where its replicas start, and how many there are
	Groups   int
	Replicas int

	PHVBytes      int
	keys          int // room for a key
	zeros         int // room for what fills a frame up
	snapshot      int // what egress changes, kept for the next replica
	saved         []span
	frame         int // the packet's first bytes, as received
	frameMax      int
	out           int // the headers, as they leave
	blocks        map[*bmv2json.Header]bool
	blockAt       map[*bmv2json.Header]int // where in the frame a block was, 4 bytes of the PHV
	undo          int                      // what is put back: see unlocked.go
	resting       []*resting               // blocks that stay in the frame
	restingFields map[int]restingField     // their fields, by where they are in the PHV

	scratch, scratchEnd int // words for arithmetic on wide values (wide.go)
	operations          map[*bmv2json.Primitive]*bmv2json.Expr
	read                readFields // by anything

	lateClock bool // the clock is read when a packet asks for it

	families []family // none: there is one lock
	members  []member // by Register.Index
	stripes  int      // of each family: a power of two
	held     int      // in the PHV: for each family a word for the stripe, and one for its version
	cells    int      // of the largest register
	// what metadata is assigned, by where it is, and whether it may get anything else
	assigned  map[int][]*bmv2json.Expr
	otherwise map[int]bool

	Requests requests
	// 2 bytes in the PHV: the learn list to send; 0 where the program sends none
	Messages []*bmv2json.Primitive // what the program says, by number
	// in the state: how many messages found the ring full
	MessagesLost int
	Digest       int
	ValueSets    []SetPlan      // by ValueSet.Index
	hashIn       int            // the bytes that are hashed
	hashMax      int            // how many there are at most
	crcTables    map[string]int // in the state
	customCRCs   map[*bmv2json.Calculation]int
}

// span is [off, off+size) of the PHV.
type span struct{ off, size int }

// ArrayPlan is where a register or meter array is, how large a cell is, and how far it is from one
// cell to the next.
type ArrayPlan struct {
	Off, Cell, size, Stride int
}

// At is where a cell is in the state.
func (a ArrayPlan) At(index int) int { return a.Off + index*a.Stride }

// What the engine itself keeps of a packet, at the PHV's start.
const (
	phvLen    = 0  // 4 bytes: the frame's length now
	phvHead   = 4  // 4 bytes: how much of the frame is headers
	phvPort   = 8  // 4 bytes: the port by which it came
	phvInLen  = 12 // 4 bytes: the frame's length as received
	phvAsked  = 16 // 8 bytes: 1 where the packet has asked for the time; see clock.go
	phvGroup  = 24 // 8 bytes: the multicast group's word
	phvHit    = 32 // 1 byte
	phvLocked = 33 // 1 byte
	phvAction = 34 // 2 bytes: 1 + the index of the action that a table has chosen
	// 4 bytes: what packet_length is in egress: as received, and what headers the program has added
	// and removed since
	phvLength = 36
	phvSpill  = 40 // 8 bytes: see widenBounds
	// 8 bytes: what the control plane's epoch was before the packet looked anything up
	phvEpoch   = 48
	phvCPU     = 56 // 8 bytes: the CPU that a counter is counted on
	phvVersion = 64 // 8 bytes: the registers' version when the packet began to read them
	phvFields  = 72
)

const (
	MaxGroups   = 1 << 16
	MaxReplicas = 1 << 16
	cpuSlack    = 16 // bytes after a buffer that an 8-byte access at its end may touch
	maxPHV      = 32000
)

// standardFields are the fields of v1model's standard metadata that the program has; the rest are
// zero.
type standardFields struct {
	ingressPort, egressSpec, egressPort, instanceType, packetLength, ingressTime, egressTime,
	mcastGroup, egressRid, checksumError, parserError,
	enqTimestamp, enqDepth, deqTimedelta, deqDepth, queue bmv2json.FieldRef
}

// standardHeaders are the metadata that the engine fills or reads.
var standardHeaders = []string{"standard_metadata", "intrinsic_metadata", "queueing_metadata"}

func findStandardFields(p *bmv2json.Program) standardFields {
	find := func(name string, also ...string) bmv2json.FieldRef {
		for _, h := range append([]string{"standard_metadata"}, also...) {
			if r := p.FieldNamed(h, name); !r.IsZero() {
				return r
			}
		}
		return bmv2json.FieldRef{}
	}
	return standardFields{
		ingressPort: find("ingress_port"), egressSpec: find("egress_spec"),
		egressPort: find("egress_port"), instanceType: find("instance_type"),
		packetLength:  find("packet_length"),
		ingressTime:   find("ingress_global_timestamp", "intrinsic_metadata"),
		egressTime:    find("egress_global_timestamp", "intrinsic_metadata"),
		mcastGroup:    find("mcast_grp", "intrinsic_metadata"),
		egressRid:     find("egress_rid", "intrinsic_metadata"),
		checksumError: find("checksum_error"),
		parserError:   find("parser_error"),
		enqTimestamp:  find("enq_timestamp", "queueing_metadata"),
		enqDepth:      find("enq_qdepth", "queueing_metadata"),
		deqTimedelta:  find("deq_timedelta", "queueing_metadata"),
		deqDepth:      find("deq_qdepth", "queueing_metadata"),
		queue:         find("qid", "queueing_metadata"),
	}
}

// allocate reserves state; what belongs together shares no cache line with the rest.
func (p *Plan) allocate(bytes int) int {
	at := p.StateBytes
	p.StateBytes = (at + bytes + 63) &^ 63
	return at
}

// NewPlan lays a program out: the PHV, the state, the tables. The error is [target.ErrUnsupported]
// for what this engine cannot run.
func NewPlan(prog *bmv2json.Program) (p *Plan, err error) {
	defer ir.Catch(&err)
	p = &Plan{Prog: prog, std: findStandardFields(prog), Layout: ir.NewLayout(prog, phvFields),
		operations: map[*bmv2json.Primitive]*bmv2json.Expr{}}
	if prog.PSA() {
		ir.Refuse("parsers", "a program for PSA, which the interpreter runs")
	}
	for _, f := range []struct {
		name string
		bmv2json.FieldRef
	}{{"egress_spec", p.std.egressSpec}, {"egress_port", p.std.egressPort}} {
		if f.IsZero() {
			ir.Refuse("headers",
				"a program without standard_metadata.%s (an architecture other than v1model)", f.name)
		}
	}
	checkPrimitives(prog)
	refusePriorities(prog)
	p.read = fieldsRead(prog, nil)
	p.Lock, p.meterLock, p.Epoch = p.allocate(16), p.allocate(8), p.allocate(32)
	p.Mode, p.Contended = p.Epoch+24, p.allocate(16)
	p.taking = p.Contended + 8
	p.planFamilies()
	p.planRegisters()
	p.planCounters()
	p.planMeters()
	keys := 8
	for _, t := range prog.Tables() {
		tp := p.planTable(t)
		p.Tables = append(p.Tables, tp)
		keys = max(keys, tp.KeyBytes)
	}
	p.planClock()
	p.Groups = p.allocate(8 * MaxGroups)
	p.Replicas = p.allocate(8 * MaxReplicas)

	at := p.Layout.End
	take := func(bytes int) int {
		from := at
		at = (at + bytes + 7) &^ 7
		return from
	}
	p.keys, p.zeros = take(keys), take(zerosAtEnd)
	p.blocks, p.blockAt = p.findBlocks(), map[*bmv2json.Header]int{}
	for _, h := range prog.Headers {
		if p.blocks[h] {
			p.blockAt[h] = take(4)
		}
	}
	p.undo = take(mostUndone)
	p.held = take(16 * len(p.families))
	head, out := 0, 0
	for _, h := range prog.Headers {
		if !h.Metadata && !p.blocks[h] {
			head += p.Layout.Types[h.Type].Bytes + p.Layout.Types[h.Type].VarbitMax
		}
	}
	for _, d := range prog.Deparsers {
		for _, h := range d.Order {
			if !p.blocks[h] {
				out += p.Layout.Types[h.Type].Bytes + p.Layout.Types[h.Type].VarbitMax
			}
		}
	}
	p.frameMax = max(64, head+slackOfParsers(prog))
	varbit := 0 // copied as a whole, whatever its length
	for _, l := range p.Layout.Types {
		varbit = max(varbit, l.VarbitMax+cpuSlack)
	}
	p.frame = take(p.frameMax + varbit + cpuSlack)
	p.out = take(out + varbit + cpuSlack)
	p.saved = p.egressWrites()
	size := 0
	for _, s := range p.saved {
		size += s.size
	}
	p.snapshot = take(size)
	p.planRequests(take)
	p.planResting(take)
	p.planDigests(take)
	p.planMessages()
	p.planHashes(take)
	p.planValueSets()
	p.planWide(take)
	p.PHVBytes = at
	if at > maxPHV {
		ir.Refuse("", "headers and metadata of %d bytes in all (at most %d)", at, maxPHV)
	}
	total, largest := p.StateBytes, 0
	var of *TablePlan
	for _, t := range p.Tables {
		if n := t.hashBytes(); n > largest {
			largest, of = n, t
		}
		total += t.hashBytes()
	}
	switch {
	case total < maxState:
	case of != nil && largest > p.StateBytes/2:
		ir.Refuse(of.Source.Path,
			"registers, counters and tables of %d MB in all (at most %d); the largest is "+
				"table %q of %d entries",
			total>>20, maxState>>20, of.Source.Name, of.Source.MaxSize)
	default:
		ir.Refuse("", "registers, counters and tables of %d MB in all (at most %d)", total>>20,
			maxState>>20)
	}
	return p, nil
}

// maxState bounds what a program takes of the kernel's memory, in bytes.
const maxState = 1 << 29

// hashBytes is about what the kernel takes for a table's entries when its map is made, whether or
// not they are there: an element's header, the key and the word, and a bucket.
func (t *TablePlan) hashBytes() int {
	if t.Kind != LookupHash {
		return 0
	}
	return max(t.Source.MaxSize, len(t.Source.ConstEntries),
		1) * (48 + (t.KeyBytes+7)&^7 + 8 + 2*16)
}

// maxAdvance is how far a parser may advance by a constant, in bytes, and what the buffer has for
// those that advance by what the packet says.
const maxAdvance = 256

// slackOfParsers is for what parsers look at without extracting it.
func slackOfParsers(prog *bmv2json.Program) int {
	n := 0
	for _, p := range prog.Parsers {
		for _, s := range p.States {
			for _, o := range s.Ops {
				switch {
				case o.Kind == bmv2json.ParserAdvance:
					n = max(n, maxAdvance)
				case o.Value != nil && o.Value.Op == bmv2json.OpLookahead:
					n = max(n, (o.Value.Offset+o.Value.Width+7)/8)
				}
			}
			for _, k := range s.Key {
				if k.Op == bmv2json.OpLookahead {
					n = max(n, (k.Offset+k.Width+7)/8)
				}
			}
		}
	}
	return n
}

// findBlocks finds the headers that are moved between packet and PHV on their own: large ones after
// which the parser only takes others of their kind.
func (p *Plan) findBlocks() map[*bmv2json.Header]bool {
	blocks := map[*bmv2json.Header]bool{}
	for _, h := range p.Prog.Headers {
		if !h.Metadata && h.Stack == nil && h.Union == nil && p.Layout.Types[h.Type].Block {
			blocks[h] = true
		}
	}
	if len(p.Prog.Parsers) == 0 || p.Prog.Parsers[0].Init == nil {
		return blocks
	}
	// A state that is reached after a block was taken, and what it reads.
	after := map[*bmv2json.ParseState]bool{}
	var follow func(s *bmv2json.ParseState, seen bool)
	visited := map[*bmv2json.ParseState]bool{}
	follow = func(s *bmv2json.ParseState, seen bool) {
		if s == nil || visited[s] && (!seen || after[s]) {
			return
		}
		visited[s] = true
		after[s] = after[s] || seen
		for _, o := range s.Ops {
			switch {
			case o.Kind == bmv2json.ParserExtract && o.Header != nil && blocks[o.Header]:
				seen = true
			case seen && (o.Kind == bmv2json.ParserExtract || o.Kind == bmv2json.ParserExtractVL ||
				o.Kind == bmv2json.ParserAdvance ||
				o.Value != nil && o.Value.Op == bmv2json.OpLookahead):
				clear(blocks)
			}
		}
		for _, k := range s.Key {
			if seen && k.Op == bmv2json.OpLookahead {
				clear(blocks)
			}
		}
		for _, tr := range s.Transitions {
			follow(tr.Next, seen)
		}
	}
	follow(p.Prog.Parsers[0].Init, false)
	return blocks
}

func pathOfState(s *bmv2json.ParseState) string {
	return fmt.Sprintf("%s (state %s)", s.Path,
		s.Name)
}

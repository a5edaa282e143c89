package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Plan is the layout of a program's data: the fields of one packet (the PHV), and the data that
// outlives a packet (the state).
//
// All state except hash tables and tries is one value of one BPF map. The program knows its
// address, and the control plane has mapped it. So the program reads a register with a bounds check
// and a load, without any call. The control plane reads it without a system call. While the program
// holds the lock, it makes no calls.
type Plan struct {
	Prog   *bmv2json.Program
	Layout *ir.Layout
	Std    analysis.StandardFields

	StateBytes int
	// Offset of the registers' lock in the state. The lock is 1 while a packet has exclusive use of
	// the registers, and otherwise 0. The version follows the lock (locking/unlocked.go).
	Lock      int
	MeterLock int // offset of the meters' lock in the state
	// Offset of a word in the state that counts the control plane's Barrier calls. The words
	// EpochDropped and OldestEpoch follow.
	Epoch int
	// Offsets of two words in the state. Mode is how packets lock the registers
	// (locking/stripes.go). Contended is how often a packet found the global lock taken.
	Mode, Contended int
	// Offset of a word in the state for a packet that is taking all stripes. The word is the total
	// size of the stripes that it already holds, in bytes.
	Taking    int
	Stripes   int // offset of the stripes of all register families in the state
	Registers []ArrayPlan
	Counters  []CounterPlan
	Meters    []ArrayPlan
	Tables    []*TablePlan // indexed by Table.Index
	// Offset of an array in the state, with one word for each multicast group id. The word contains
	// the number of replicas and where they start.
	Groups   int
	Replicas int

	PHVBytes int
	Keys     int // offset of the space for a table key in the PHV
	Zeros    int // offset of zeros in the PHV for padding frames
	Snapshot int // offset of a copy of the fields that egress changes, for the next replica
	Saved    []Span
	Frame    int // offset of the packet's first bytes as received
	FrameMax int
	Out      int // offset of the headers that leave
	Blocks   map[*bmv2json.Header]bool
	// offset of 4 bytes in the PHV that contain a block's offset in the frame
	BlockAt map[*bmv2json.Header]int
	Undo    int        // offset of values for undoing changes; see locking/unlocked.go
	Resting []*Resting // blocks that may rest in the frame
	// fields of the blocks in Resting, by their offset in the PHV
	RestingFields map[int]restingField

	// offsets of words in the PHV for arithmetic on wide values (ir/wide.go)
	Scratch, ScratchEnd int
	operations          map[*bmv2json.Primitive]*bmv2json.Expr
	fieldsRead          analysis.ReadFields // fields that any part of the program reads

	LateClock bool // set if the program reads the clock only when a packet needs it

	Families    []family // register families; empty if there is only one lock
	Members     []Member // indexed by Register.Index
	StripeCount int      // number of stripes of each register family, a power of two
	// offset of an array in the PHV, with a word for the stripe and a word for its version for each
	// register family
	held            int
	LargestRegister int // number of cells of the largest register
	// assigned has the values that are assigned to metadata, by the field's offset. otherwise tells
	// whether the field may get any other value.
	assigned  map[int][]*bmv2json.Expr
	otherwise map[int]bool

	Requests Requests
	Messages []*bmv2json.Primitive // the program's log messages by number
	// Offset of a word in the state that counts the messages that found the ring full.
	MessagesLost int
	// Offset of 2 bytes in the PHV with the id of the learn list to send, or 0 if the program sends
	// no digests.
	Digest     int
	ValueSets  []SetPlan      // indexed by ValueSet.Index
	HashIn     int            // offset of the bytes that are hashed
	HashMax    int            // largest number of bytes at HashIn
	CRCTables  map[string]int // offset of each CRC's table in the state
	customCRCs map[*bmv2json.Calculation]int
}

// Span is the part [off, off+size) of the PHV.
type Span struct{ Off, Size int }

// ArrayPlan describes where the state holds a register or meter array: its offset, the size of a
// cell, and the distance between cells.
type ArrayPlan struct {
	Off, Cell, Size, Stride int
}

// At returns the offset of a cell in the state.
func (a ArrayPlan) At(index int) int { return a.Off + index*a.Stride }

const (
	MaxGroups   = 1 << 16
	MaxReplicas = 1 << 16
	// Bytes reserved after a buffer, because an 8-byte access at the buffer's end may touch them.
	cpuSlack = 16
	maxPHV   = 32000
)

// allocate reserves space in the state and returns its offset. Each reservation has its own cache
// lines.
func (p *Plan) allocate(bytes int) int {
	at := p.StateBytes
	p.StateBytes = (at + bytes + 63) &^ 63
	return at
}

// NewPlan lays out a program's data: the PHV, the state and the tables. The error wraps
// [target.ErrUnsupported] for a program that this engine cannot run.
func NewPlan(prog *bmv2json.Program) (p *Plan, err error) {
	defer ir.Catch(&err)
	p = &Plan{Prog: prog, Std: analysis.FindStandardFields(prog), Layout: ir.NewLayout(prog, phvFields),
		operations: map[*bmv2json.Primitive]*bmv2json.Expr{}}
	p.refuseProgram()
	p.fieldsRead = analysis.FieldsRead(prog, nil)
	keys := p.planState()
	p.planPHV(keys)
	p.refuseSize()
	return p, nil
}

// refuseProgram refuses constructs that this engine cannot run, regardless of space.
func (p *Plan) refuseProgram() {
	prog := p.Prog
	if prog.PSA() {
		ir.Refuse("parsers", "a program for PSA, which the interpreter runs")
	}
	for _, f := range []struct {
		name string
		bmv2json.FieldRef
	}{{"egress_spec", p.Std.EgressSpec}, {"egress_port", p.Std.EgressPort}} {
		if f.IsZero() {
			ir.Refuse("headers",
				"a program without standard_metadata.%s (an architecture other than v1model)", f.name)
		}
	}
	analysis.CheckPrimitives(prog)
	analysis.RefusePriorities(prog)
}

// planState reserves space in the state for data that outlives a packet, except for data that is
// planned with the PHV. It returns the number of bytes of the longest key.
func (p *Plan) planState() (keys int) {
	p.Lock, p.MeterLock, p.Epoch = p.allocate(16), p.allocate(8), p.allocate(32)
	p.Mode, p.Contended = p.Epoch+24, p.allocate(16)
	p.Taking = p.Contended + 8
	p.planFamilies()
	p.planRegisters()
	p.planCounters()
	p.planMeters()
	keys = 8
	for _, t := range p.Prog.Tables() {
		tp := p.planTable(t)
		p.Tables = append(p.Tables, tp)
		keys = max(keys, tp.KeyBytes)
	}
	p.planClock()
	p.Groups = p.allocate(8 * MaxGroups)
	p.Replicas = p.allocate(8 * MaxReplicas)
	return keys
}

// planPHV reserves space in the PHV for a packet's other data, after its fields.
func (p *Plan) planPHV(keys int) {
	prog, at := p.Prog, p.Layout.End
	take := func(bytes int) int {
		from := at
		at = (at + bytes + 7) &^ 7
		return from
	}
	p.Keys, p.Zeros = take(keys), take(ZerosAtEnd)
	p.Blocks, p.BlockAt = p.findBlocks(), map[*bmv2json.Header]int{}
	for _, h := range prog.Headers {
		if p.Blocks[h] {
			p.BlockAt[h] = take(4)
		}
	}
	p.Undo = take(MostUndone)
	p.held = take(16 * len(p.Families))
	head, out := 0, 0
	for _, h := range prog.Headers {
		if !h.Metadata && !p.Blocks[h] {
			head += p.Layout.Types[h.Type].Bytes + p.Layout.Types[h.Type].VarbitMax
		}
	}
	for _, d := range prog.Deparsers {
		for _, h := range d.Order {
			if !p.Blocks[h] {
				out += p.Layout.Types[h.Type].Bytes + p.Layout.Types[h.Type].VarbitMax
			}
		}
	}
	p.FrameMax = max(64, head+slackOfParsers(prog))
	varbit := 0 // size of the varbit field, which is always copied completely
	for _, l := range p.Layout.Types {
		varbit = max(varbit, l.VarbitMax+cpuSlack)
	}
	p.Frame = take(p.FrameMax + varbit + cpuSlack)
	p.Out = take(out + varbit + cpuSlack)
	p.Saved = p.egressWrites()
	size := 0
	for _, s := range p.Saved {
		size += s.Size
	}
	p.Snapshot = take(size)
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
}

// refuseSize refuses a program that needs too much kernel memory.
func (p *Plan) refuseSize() {
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
}

// maxState bounds the kernel memory of a program, in bytes.
const maxState = 1 << 29

// hashBytes estimates the memory that the kernel allocates per entry of a hash table. The kernel
// allocates it for all possible entries when it creates the map. It includes an element's header,
// the key and the word, and a bucket.
func (t *TablePlan) hashBytes() int {
	if t.Kind != LookupHash {
		return 0
	}
	return max(t.Source.MaxSize, len(t.Source.ConstEntries),
		1) * (48 + (t.KeyBytes+7)&^7 + 8 + 2*16)
}

// MaxAdvance is the largest constant by which a parser may advance, in bytes. The buffer reserves
// this space for parsers that advance by a number from the packet.
const MaxAdvance = 256

// slackOfParsers returns how many bytes the buffer needs for data that parsers read without
// extracting it.
func slackOfParsers(prog *bmv2json.Program) int {
	n := 0
	for _, p := range prog.Parsers {
		for _, s := range p.States {
			for _, o := range s.Ops {
				switch {
				case o.Kind == bmv2json.ParserAdvance:
					n = max(n, MaxAdvance)
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

// ZerosAtEnd is the largest number of zeros that delivery.CutTail writes.
const ZerosAtEnd = 64

// MostUndone is the largest number of bytes of fields that a packet may save. It restores them if
// it must repeat its reads (locking/unlocked.go).
const MostUndone = 96

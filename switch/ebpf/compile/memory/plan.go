package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Plan is the layout of a program's data: the fields of one packet (the PHV), and the data that
// outlives a packet (the state).
//
// All state but hash tables and tries is one value of one BPF map, whose address the program knows
// and which the control plane has mapped. So a register is read with a bounds check and a load,
// without any call; the control plane sees it without a system call; and while the program holds
// the lock it makes no calls.
type Plan struct {
	Prog   *bmv2json.Program
	Layout *ir.Layout
	Std    analysis.StandardFields

	StateBytes int
	// in the state: 0, or 1 while a packet has exclusive use of the registers; after it the version
	// (locking/unlocked.go)
	Lock      int
	MeterLock int // the lock for meters
	// in the state: number of the control plane's calls of Barrier; after it EpochDropped and
	// OldestEpoch
	Epoch int
	// in the state: how packets lock the registers (locking/stripes.go), and how often a packet
	// found the one lock taken
	Mode, Contended int
	// in the state: how many bytes of stripes are held by a packet that is taking all stripes
	Taking    int
	Stripes   int // in the state: the stripes of all families
	Registers []ArrayPlan
	Counters  []CounterPlan
	Meters    []ArrayPlan
	Tables    []*TablePlan // by Table.Index
	// one word for each multicast group id: 1 + where its replicas start, and how many there are
	Groups   int
	Replicas int

	PHVBytes      int
	Keys          int // space for a table key
	Zeros         int // padding for frames
	Snapshot      int // fields that egress changes, kept for the next replica
	Saved         []Span
	Frame         int // the packet's first bytes, as received
	FrameMax      int
	Out           int // the headers, as they leave
	Blocks        map[*bmv2json.Header]bool
	BlockAt       map[*bmv2json.Header]int // offset of a block in the frame, 4 bytes of the PHV
	Undo          int                      // values to restore: see locking/unlocked.go
	Resting       []*Resting               // blocks that may rest in the frame
	RestingFields map[int]restingField     // their fields, by their place in the PHV

	Scratch, ScratchEnd int // words for arithmetic on wide values (ir/wide.go)
	operations          map[*bmv2json.Primitive]*bmv2json.Expr
	fieldsRead          analysis.ReadFields // fields that anything in the program reads

	LateClock bool // the clock is read only when a packet needs it

	Families        []family // register families; none: there is one lock
	Members         []Member // by Register.Index
	StripeCount     int      // stripes of each family, a power of two
	held            int      // in the PHV: for each family a word for the stripe, and one for its version
	LargestRegister int      // number of cells of the largest register
	// values assigned to metadata, by its place, and whether it may get any other value
	assigned  map[int][]*bmv2json.Expr
	otherwise map[int]bool

	Requests Requests
	// 2 bytes in the PHV: the learn list to send; 0 if the program sends none
	Messages []*bmv2json.Primitive // the program's messages, by number
	// in the state: number of messages that found the ring full
	MessagesLost int
	Digest       int
	ValueSets    []SetPlan      // by ValueSet.Index
	HashIn       int            // the bytes that are hashed
	HashMax      int            // largest number of bytes at HashIn
	CRCTables    map[string]int // in the state
	customCRCs   map[*bmv2json.Calculation]int
}

// Span is [off, off+size) of the PHV.
type Span struct{ Off, Size int }

// ArrayPlan is the place of a register or meter array, the size of a cell, and the distance between
// cells.
type ArrayPlan struct {
	Off, Cell, Size, Stride int
}

// At is the place of a cell in the state.
func (a ArrayPlan) At(index int) int { return a.Off + index*a.Stride }

const (
	MaxGroups   = 1 << 16
	MaxReplicas = 1 << 16
	// bytes reserved after a buffer, because an 8-byte access at its end may touch them
	cpuSlack = 16
	maxPHV   = 32000
)

// allocate reserves state; each reservation has its own cache lines.
func (p *Plan) allocate(bytes int) int {
	at := p.StateBytes
	p.StateBytes = (at + bytes + 63) &^ 63
	return at
}

// NewPlan lays a program out: the PHV, the state, the tables. The error is [target.ErrUnsupported]
// for a program that this engine cannot run.
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

// planState gives data that outlives a packet a place in the state, except for what is planned with
// the PHV. It returns how many bytes the longest key has.
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

// planPHV gives the other data of a packet a place after its fields.
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
	varbit := 0 // size of the varbit field, which is always copied as a whole
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

// refuseSize refuses a program that takes too much of the kernel's memory.
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

// hashBytes is roughly the memory that the kernel allocates per entry of a hash table when it
// creates the map, whether or not the entry exists: an element's header, the key and the word, and
// a bucket.
func (t *TablePlan) hashBytes() int {
	if t.Kind != LookupHash {
		return 0
	}
	return max(t.Source.MaxSize, len(t.Source.ConstEntries),
		1) * (48 + (t.KeyBytes+7)&^7 + 8 + 2*16)
}

// MaxAdvance is how far a parser may advance by a constant, in bytes. The buffer reserves as much
// for parsers that advance by a number from the packet.
const MaxAdvance = 256

// slackOfParsers is for bytes that parsers read without extracting them.
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

// ZerosAtEnd is how many zeros delivery.CutTail writes at most.
const ZerosAtEnd = 64

// MostUndone is how many bytes of fields a packet may save, to restore them if it must repeat its
// reads (locking/unlocked.go).
const MostUndone = 96

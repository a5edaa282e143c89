package compile

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Tables with ternary, optional or range keys: a list of entries in the order of their priority, of
// which the first that matches counts. Looking something up takes time in proportion to the entries
// before it, a few nanoseconds each.
//
// There are several copies of the list. A change writes one that no packet reads and then points
// the table at it; a packet goes on in the copy in which it has begun. Only when all have been
// written does a change wait for packets that may still be in the oldest.

// maxScanCopies and scanMemory bound the copies of a table's list.
const (
	maxScanCopies = 8
	scanMemory    = 4 << 20
)

// scanPlan is where a table's lists are. An entry is a pair of words for each word of the key
// (value and mask, or the two bounds of a range), then its word.
type scanPlan struct {
	words  int // of the key
	ranges []bool
	Entry  int // bytes
	Max    int // entries of one copy
	Copies int
	List   int // in the state
	Head   int // in the state: how many entries (32 bits), and the number of the first one
}

func (p *Plan) planScan(t *TablePlan) *scanPlan {
	s := &scanPlan{Max: max(t.Source.MaxSize, len(t.Source.ConstEntries), 1)}
	for i, k := range t.Source.Keys {
		n := ir.WordsOf(k.Width)
		if k.Kind == bmv2json.MatchRange && n > 1 {
			ir.Refuse(t.Source.Path, "a range over %d bits (key %s of table %s)", k.Width, k.Name,
				t.Source.Name)
		}
		t.Parts[i] = keyPart{At: s.words * 8, Size: n * 8}
		for range n {
			s.ranges = append(s.ranges, k.Kind == bmv2json.MatchRange)
		}
		s.words += n
	}
	t.KeyBytes = s.words * 8
	s.Entry = s.words*16 + 8
	s.Copies = max(2, min(maxScanCopies, scanMemory/(s.Entry*s.Max)))
	s.List = p.allocate(s.Entry * s.Max * s.Copies)
	s.Head = p.allocate(8)
	return s
}

// scanTable emits the lookup: the word goes to Entry.
func (t *translator) scanTable(tp *TablePlan, miss string) {
	s := tp.Scan
	for i := range tp.Source.Keys {
		n := ir.WordsOf(tp.Source.Keys[i].Width)
		for w := range n { // the most significant word first
			t.Store(code.PHV, t.keys+tp.Parts[i].At+(n-1-w)*8,
				t.Compute(t.KeyWord(&tp.Source.Keys[i], w), 0), 8)
		}
	}
	const frame = -24 // on the stack: the PHV, the first entry's number, the word found
	t.stateAddress(asm.R1, s.Head)
	t.Load(asm.R2, asm.R1, 0, 8)
	t.Emit(asm.Mov.Reg32(asm.R1, asm.R2), asm.RSh.Imm(asm.R2, 32))
	t.Store(asm.R10, frame, code.PHV, 8)
	t.Store(asm.R10, frame+8, asm.R2, 8)
	t.StoreConstant(asm.R10, frame+16, 0, 8)
	name := "scan." + tp.Source.Name
	t.LoadFunction(asm.R2, name)
	t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, frame), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnLoop)
	t.Load(code.Entry, asm.R10, frame+16, 8)
	t.Emit(asm.JEq.Imm(code.Entry, 0, miss))
	t.addFunction(name, func() {
		next := name + ".next"
		t.Emit(asm.Mov.Reg(asm.R6, asm.R2))
		t.Load(asm.R7, asm.R6, 0, 8)
		t.Load(asm.R8, asm.R6, 8, 8)
		t.Emit(asm.Add.Reg(asm.R8, asm.R1), asm.JGE.Imm(asm.R8, int32(s.Max*s.Copies), next),
			asm.Mul.Imm(asm.R8, int32(s.Entry)))
		t.stateAddress(asm.R1, s.List)
		t.Emit(asm.Add.Reg(asm.R8, asm.R1))
		for w := range s.words {
			t.Load(asm.R1, asm.R7, t.keys+w*8, 8)
			t.Load(asm.R2, asm.R8, w*16, 8)
			t.Load(asm.R3, asm.R8, w*16+8, 8)
			if s.ranges[w] {
				t.Emit(asm.JLT.Reg(asm.R1, asm.R2, next), asm.JGT.Reg(asm.R1, asm.R3, next))
			} else {
				t.Emit(asm.And.Reg(asm.R1, asm.R3), asm.JNE.Reg(asm.R1, asm.R2, next))
			}
		}
		t.Load(asm.R1, asm.R8, s.words*16, 8)
		t.Store(asm.R6, 16, asm.R1, 8)
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
		t.Bind(next)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}

package ebpf

import (
	"encoding/binary"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/target"
)

// Tables with ternary, optional or range keys: a list of entries in the order of their priority, of which the first that matches counts. Looking something up
// takes time in proportion to the entries before it, a few nanoseconds each.
//
// There are several copies of the list. A change writes one that no packet reads and then points the table at it; a packet goes on in the copy in which it has
// begun. Only when all have been written does a change wait for packets that may still be in the oldest.

// maxScanCopies and scanMemory bound the copies of a table's list.
const (
	maxScanCopies = 8
	scanMemory    = 4 << 20
)

// scanPlan is where a table's lists are. An entry is a pair of words for each word of the key (value and mask, or the two bounds of a range), then its word.
type scanPlan struct {
	words  int // of the key
	ranges []bool
	entry  int // bytes
	max    int // entries of one copy
	copies int
	list   int // in the state
	head   int // in the state: how many entries (32 bits), and the number of the first one
}

func (p *plan) planScan(t *tablePlan) *scanPlan {
	s := &scanPlan{max: max(t.src.MaxSize, len(t.src.ConstEntries), 1)}
	for i, k := range t.src.Keys {
		n := ir.WordsOf(k.Width)
		if k.Kind == bmv2json.MatchRange && n > 1 {
			ir.Refuse(t.src.Path, "a range over %d bits (key %s of table %s)", k.Width, k.Name, t.src.Name)
		}
		t.parts[i] = keyPart{at: s.words * 8, size: n * 8}
		for range n {
			s.ranges = append(s.ranges, k.Kind == bmv2json.MatchRange)
		}
		s.words += n
	}
	t.keyBytes = s.words * 8
	s.entry = s.words*16 + 8
	s.copies = max(2, min(maxScanCopies, scanMemory/(s.entry*s.max)))
	s.list = p.allocate(s.entry * s.max * s.copies)
	s.head = p.allocate(8)
	return s
}

// scanTable emits the lookup: the word goes to Entry.
func (t *translator) scanTable(tp *tablePlan, miss string) {
	s := tp.scan
	for i := range tp.src.Keys {
		n := ir.WordsOf(tp.src.Keys[i].Width)
		for w := range n { // the most significant word first
			t.Store(code.PHV, t.keys+tp.parts[i].at+(n-1-w)*8, t.Compute(t.keyValue(&tp.src.Keys[i], w), 0), 8)
		}
	}
	const frame = -24 // on the stack: the PHV, the first entry's number, the word found
	t.stateAddress(asm.R1, s.head)
	t.Load(asm.R2, asm.R1, 0, 8)
	t.Emit(asm.Mov.Reg32(asm.R1, asm.R2), asm.RSh.Imm(asm.R2, 32))
	t.Store(asm.R10, frame, code.PHV, 8)
	t.Store(asm.R10, frame+8, asm.R2, 8)
	t.StoreConstant(asm.R10, frame+16, 0, 8)
	name := "scan." + tp.src.Name
	t.LoadFunction(asm.R2, name)
	t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, frame), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnLoop)
	t.Load(code.Entry, asm.R10, frame+16, 8)
	t.Emit(asm.JEq.Imm(code.Entry, 0, miss))
	look := t.function(name, func() {
		next := name + ".next"
		t.Emit(asm.Mov.Reg(asm.R6, asm.R2))
		t.Load(asm.R7, asm.R6, 0, 8)
		t.Load(asm.R8, asm.R6, 8, 8)
		t.Emit(asm.Add.Reg(asm.R8, asm.R1), asm.JGE.Imm(asm.R8, int32(s.max*s.copies), next), asm.Mul.Imm(asm.R8, int32(s.entry)))
		t.stateAddress(asm.R1, s.list)
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
	t.functions = append(t.functions, look)
}

// scanList is the control plane's side of the lists.
type scanList struct {
	order   []*entry // as packets see them
	current int      // the copy that the table points at
	clean   int      // copies after the current one that no packet can be reading
}

// before says which of two entries that both match wins: the larger priority, then the older entry.
func (e *entry) before(o *entry) bool {
	return e.Priority > o.Priority || e.Priority == o.Priority && e.seq < o.seq
}

func (t *table) addToList(e *entry) {
	i, _ := slices.BinarySearchFunc(t.list.order, e, func(a, b *entry) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	t.list.order = slices.Insert(t.list.order, i, e)
}

func (t *table) removeFromList(e *entry) {
	i := slices.Index(t.list.order, e)
	t.list.order = slices.Delete(t.list.order, i, i+1)
}

// publishList makes packets see the list as it is now.
func (t *table) publishList() {
	s := t.scan
	if t.list.clean == 0 {
		waitForPackets()
		t.list.clean = s.copies - 1
	}
	t.list.clean--
	t.list.current = (t.list.current + 1) % s.copies
	first := t.list.current * s.max
	at := s.list + first*s.entry
	for _, e := range t.list.order {
		words := t.matchWords(e.Match)
		for i, w := range words {
			binary.NativeEndian.PutUint64(t.p.state.mem[at+i*8:], w)
		}
		binary.NativeEndian.PutUint64(t.p.state.mem[at+len(words)*8:], e.word)
		at += s.entry
	}
	t.p.state.store(s.head, uint64(len(t.list.order))|uint64(first)<<32)
}

// matchWords is a match as pairs of words.
func (t *table) matchWords(match []target.FieldMatch) (out []uint64) {
	for i, m := range match {
		k := t.src.Keys[i]
		values, masks := splitKey(m.Value, []int{len(m.Value) * 8}), splitKey(maskOf(&k, m), []int{len(m.Value) * 8})
		for w := range values {
			out = append(out, values[w], masks[w])
		}
	}
	return out
}

// maskOf is a match's mask; of a range the high bound.
func maskOf(k *bmv2json.Key, m target.FieldMatch) []byte {
	switch k.Kind {
	case bmv2json.MatchTernary, bmv2json.MatchOptional, bmv2json.MatchRange:
		return m.Mask
	}
	out := make([]byte, len(m.Value))
	bits := len(m.Value) * 8
	to := bits
	if k.Kind == bmv2json.MatchLPM {
		to = bits - k.Width + m.PrefixLen
	}
	for b := bits - k.Width; b < to; b++ {
		out[b/8] |= 0x80 >> (b % 8)
	}
	return out
}

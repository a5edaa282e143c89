package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Tables with ternary, optional or range keys are lists of entries in the order of their priority.
// The first matching entry wins. A lookup takes a few nanoseconds for each entry before the match.
//
// There are several copies of the list. A change writes a copy that no packet reads, and then
// points the table at this copy. A packet continues in the copy in which it began. A change waits
// for packets that may still be in the oldest copy only after all copies have been used.

// maxScanCopies and scanMemory bound the number and the size of the copies of a table's list.
const (
	maxScanCopies = 8
	scanMemory    = 4 << 20
)

// scanPlan describes the copies of a table's list. An entry has two words for each word of the key
// (value and mask, or the two bounds of a range), followed by the entry's word.
type scanPlan struct {
	Words  int // number of 64-bit words in the key
	Ranges []bool
	Entry  int // size of an entry in bytes
	Max    int // largest number of entries in one copy
	Copies int
	List   int // offset of the list's copies in the state
	// Offset of a word in the state with the number of entries (32 bits) and the index of the first
	// entry.
	Head int
}

func (p *Plan) planScan(t *TablePlan) *scanPlan {
	s := &scanPlan{Max: max(t.Source.MaxSize, len(t.Source.ConstEntries), 1)}
	for i, k := range t.Source.Keys {
		n := ir.WordsOf(k.Width)
		if k.Kind == bmv2json.MatchRange && n > 1 {
			ir.Refuse(t.Source.Path, "a range over %d bits (key %s of table %s)", k.Width, k.Name,
				t.Source.Name)
		}
		t.Parts[i] = KeyPart{At: s.Words * 8, Size: n * 8}
		for range n {
			s.Ranges = append(s.Ranges, k.Kind == bmv2json.MatchRange)
		}
		s.Words += n
	}
	t.KeyBytes = s.Words * 8
	s.Entry = s.Words*16 + 8
	s.Copies = max(2, min(maxScanCopies, scanMemory/(s.Entry*s.Max)))
	s.List = p.allocate(s.Entry * s.Max * s.Copies)
	s.Head = p.allocate(8)
	return s
}

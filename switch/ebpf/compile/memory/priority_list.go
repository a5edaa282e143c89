package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Tables with ternary, optional or range keys: a list of entries in the order of their priority;
// the first match counts. A lookup takes a few nanoseconds for each entry before the match.
//
// There are several copies of the list. A change writes one that no packet reads and then points
// the table at it; a packet continues in the copy in which it has begun. Only after it has used all
// copies does a change wait for packets that may still be in the oldest one.

// maxScanCopies and scanMemory bound the copies of a table's list.
const (
	maxScanCopies = 8
	scanMemory    = 4 << 20
)

// scanPlan says where a table's lists are. An entry is a pair of words for each word of the key
// (value and mask, or the two bounds of a range), then its word.
type scanPlan struct {
	Words  int // words of 64 bits in the key
	Ranges []bool
	Entry  int // bytes of an entry
	Max    int // entries of one copy
	Copies int
	List   int // in the state: the copies of the list
	Head   int // in the state: number of entries (32 bits), and the index of the first entry
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

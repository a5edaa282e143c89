package known

import (
	"cmp"
	"math"
	"slices"

	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// MostRanges is the largest number of key ranges of a known table.
const MostRanges = 64

// Table is the content of a table at some time.
type Table struct {
	Version uint32  // the table's version when it had this content
	Ranges  []Range // the ranges of all keys from 0 on, in order and without gaps
	// Entries maps an entry's word to the entry's parameters. The low 16 bits of the word name the
	// action.
	Entries map[uint64]Entry
}

// Entry has the parameters of an entry's action.
type Entry struct{ Params [][]byte }

// Range is the keys from From to the beginning of the next range, with the word of their entry. The
// word is 0 if they have no entry.
type Range struct {
	From, Word uint64
}

// Prefix is an entry of a table with one key. It matches the keys that share the first Bits bits.
type Prefix struct {
	Value uint64
	Bits  int
	Word  uint64
}

// RangesOf splits all keys of a width in bits into ranges according to prefixes. The longest
// matching prefix wins. An exact entry is a prefix as long as the key. RangesOf returns nil if
// there are more than MostRanges ranges.
func RangesOf(prefixes []Prefix, width int) []Range {
	if len(prefixes) > MostRanges {
		return nil
	}
	last := func(p Prefix) uint64 { return p.Value | ir.Ones(width-p.Bits) }
	starts := []uint64{0}
	for _, p := range prefixes {
		starts = append(starts, p.Value)
		if end := last(p); end < ir.Ones(width) && end < math.MaxUint64 {
			starts = append(starts, end+1)
		}
	}
	slices.Sort(starts)
	longest := slices.Clone(prefixes)
	slices.SortStableFunc(longest, func(a, b Prefix) int { return cmp.Compare(b.Bits, a.Bits) })
	var out []Range
	for _, from := range slices.Compact(starts) {
		var word uint64
		for _, p := range longest {
			if from >= p.Value && from <= last(p) {
				word = p.Word
				break
			}
		}
		if n := len(out); n == 0 || out[n-1].Word != word {
			out = append(out, Range{from, word})
		}
	}
	if len(out) > MostRanges {
		return nil
	}
	return out
}

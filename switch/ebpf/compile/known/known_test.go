package known

import (
	rand "math/rand/v2"
	"testing"

	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// TestRangesAreTheLongestPrefixes compares ranges with a search of all prefixes. It looks up the
// keys where a prefix begins or ends, and their neighbours.
func TestRangesAreTheLongestPrefixes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	made := 0
	for range 4000 {
		width := 1 + r.IntN(64)
		var prefixes []Prefix
		seen := map[[2]uint64]bool{}
		for range r.IntN(14) {
			p := Prefix{Bits: r.IntN(width + 1), Word: 1 + r.Uint64N(5)}
			p.Value = r.Uint64() & ir.Ones(width) &^ ir.Ones(width-p.Bits)
			if r.IntN(2) == 0 { // make a nested prefix
				p.Value &= 7 << max(width-3, 0)
				p.Value &^= ir.Ones(width - p.Bits)
			}
			if id := [2]uint64{p.Value, uint64(p.Bits)}; !seen[id] {
				seen[id], prefixes = true, append(prefixes, p)
			}
		}
		ranges := RangesOf(prefixes, width)
		if ranges == nil || ranges[0].From != 0 {
			t.Fatalf("%d prefixes make %v", len(prefixes), ranges)
		}
		made = max(made, len(ranges))
		keys := []uint64{0, ir.Ones(width)}
		for _, p := range prefixes {
			end := p.Value | ir.Ones(width-p.Bits)
			keys = append(keys, p.Value, p.Value-1, end, end+1)
		}
		for _, key := range keys {
			key &= ir.Ones(width)
			var want, got uint64
			bits := -1
			for _, p := range prefixes {
				if key&^ir.Ones(width-p.Bits) == p.Value && p.Bits > bits {
					want, bits = p.Word, p.Bits
				}
			}
			for i, x := range ranges {
				if i > 0 && (x.From <= ranges[i-1].From || x.Word == ranges[i-1].Word) {
					t.Fatalf("ranges out of order, or two that are one: %v", ranges)
				}
				if x.From <= key {
					got = x.Word
				}
			}
			if want != got {
				t.Fatalf("%d bits: key %#x of %+v: %d instead of %d: %v", width, key, prefixes, got,
					want, ranges)
			}
		}
	}
	if made < 10 {
		t.Errorf("at most %d ranges were made: the prefixes do not overlap", made)
	}
	if RangesOf(make([]Prefix, MostRanges+1), 32) != nil {
		t.Error("too many prefixes make ranges")
	}
}

package compile

import (
	"cmp"
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Known tables. What the control plane has put into a table is known, and changes seldom: a program
// that is translated anew with it needs no map for the table, but comparisons with constants. The
// key's values are ranges, each with the word of its entry, and a tree of comparisons finds the
// range: four of them for ten routes, where a longest-prefix trie takes a call and a walk.
//
// A change must be seen by the next packet, though, and translating takes a while. So each such
// table has a number in the state, which the control plane counts up before it changes the map. The
// code has the number for which it was made; where the table's is another one by now, the packet
// asks the map, as a program that was made without knowing anything does.
//
// ESwitch (Molnár et al., SIGCOMM 2016) chooses templates for tables by what is in them; Morpheus
// (Miano et al., ASPLOS 2022) makes programs anew behind running ones, and guards them by versions.

// MostKnown is how many ranges of keys a known table may have.
const MostKnown = 64

// Known is what a table holds.
type Known struct {
	Version uint32  // the table's number when it held that
	Ranges  []Range // in order, without gaps, from 0 on
	// its entries' parameters, by the entry's word, whose low 16 bits name the action
	Entries map[uint64]KnownEntry
}

// KnownEntry is what an entry gives its action.
type KnownEntry struct{ Params [][]byte }

// Range is the keys from From on, until the next range, and their word; 0: there is no entry.
type Range struct {
	From, Word uint64
}

// Knowable reports whether a program can be made for what the table holds: one key, exact or a
// prefix, of at most 64 bits.
func (t *TablePlan) Knowable() bool {
	if t.Source.Kind == bmv2json.TableIndirectWS {
		return false // what an entry does is not in its word
	}
	if t.Kind != LookupHash && t.Kind != LookupTrie || len(t.Source.Keys) != 1 {
		return false
	}
	k := t.Source.Keys[0]
	return k.Kind != bmv2json.MatchValid && !k.Field.IsValidity() && !ir.Wide(k.Width) &&
		k.Mask == nil
}

// Prefix is an entry of a table with one key: the keys that have its first Bits bits in common, and
// their word.
type Prefix struct {
	Value uint64
	Bits  int
	Word  uint64
}

// RangesOf are the ranges of keys of some width in bits that prefixes make, of which the longest
// one counts; nil where they are more than MostKnown. An exact entry is a prefix as long as the
// key.
func RangesOf(prefixes []Prefix, width int) []Range {
	if len(prefixes) > MostKnown {
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
	if len(out) > MostKnown {
		return nil
	}
	return out
}

// lookupKnown leaves the word of the key's entry in Entry and goes to found, or goes to miss; where
// the table has changed since, it goes on behind its code. Of entries whose word has a label it goes
// to that.
func (t *translator) lookupKnown(tp *TablePlan, known Known, labels map[uint64]string,
	found, miss string) {
	changed, join := t.NewLabel("changed"), t.NewLabel("known")
	key := &tp.Source.Keys[0]
	t.stateAddress(asm.R1, tp.Version)
	t.Load(asm.R1, asm.R1, 0, 8)
	t.Emit(asm.JNE.Imm32(asm.R1, int32(known.Version), changed))
	t.Compute(t.KeyWord(key, 0), 0)
	t.knownRange(known.Ranges, key.Width <= 32, labels, join, miss)
	// Which constant it was must not tell the paths apart for the verifier: it would follow each.
	t.Bind(join)
	t.Store(code.PHV, phvSpill, code.Entry, 8)
	t.Load(code.Entry, code.PHV, phvSpill, 8)
	t.Jump(found)
	t.Bind(changed)
}

// knownRange finds the range that R1 is in, one of ranges.
func (t *translator) knownRange(ranges []Range, narrow bool, labels map[uint64]string,
	found, miss string) {
	if len(ranges) == 1 {
		if ranges[0].Word == 0 {
			t.Jump(miss)
			return
		}
		if to, ok := labels[ranges[0].Word]; ok {
			t.Jump(to)
			return
		}
		t.LoadConstant(code.Entry, ranges[0].Word)
		t.Jump(found)
		return
	}
	middle, above := len(ranges)/2, t.NewLabel("above")
	if from := ranges[middle].From; narrow {
		t.Emit(asm.JGE.Imm32(asm.R1, int32(uint32(from)), above))
	} else {
		t.LoadConstant(asm.R2, from)
		t.Emit(asm.JGE.Reg(asm.R1, asm.R2, above))
	}
	t.knownRange(ranges[:middle], narrow, labels, found, miss)
	t.Bind(above)
	t.knownRange(ranges[middle:], narrow, labels, found, miss)
}

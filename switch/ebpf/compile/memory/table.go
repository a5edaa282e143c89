package memory

import (
	"cmp"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Tables. A lookup of any kind gives one 64-bit word, read in one load: an entry is there as a
// whole or not at all. The word is
//
//	bits 0 to 15    1 + the index of the action in the table's list; 0: no entry
//	bits 16 to 63   the action's parameters, if they fit (and nothing is counted)
//	                or the number of the entry's slot, in which the parameters and the counter are
//
// A slot is written before its word and is not reused before every packet that may have seen the
// word has ended (see runtime's slots).

// lookupKind is how a table finds the word of a key.
type lookupKind int

const (
	LookupNone  lookupKind = iota // no keys: the default entry
	LookupArray                   // an array with a word for each possible key
	LookupHash                    // a BPF hash table
	LookupTrie                    // a BPF longest-prefix trie
	LookupScan                    // a list in the order of priority (priority_list.go)
)

// String is the kind's name in docs/switch.md.
func (k lookupKind) String() string {
	return [...]string{"none", "array", "hash", "trie",
		"list"}[k]
}

// directBits is the widest key for which the table is an array with a word for each value.
const directBits = 12

// TablePlan is the kind of a table's lookup, and its place.
type TablePlan struct {
	Source    *bmv2json.Table
	Kind      lookupKind
	KeyBytes  int
	Parts     []KeyPart // by key
	Bits      int       // LookupArray: bits of the whole key
	Direct    int       // LookupArray: the array, in the state
	Scan      *scanPlan
	Inline    bool
	Slots     int // in the state: the entries' slots
	SlotSize  int
	SlotCount int
	Counter   int         // offset of the counter in the slot; -1: none
	Meter     int         // offset of the meter in the slot; -1: none
	Hit       int         // in the slot: time of the last hit; -1: entries have no idle timeout
	Default   int         // in the state: the word of the default entry
	Version   int         // in the state, of a Knowable table: incremented with each change
	Params    []ir.Params // by action of the table

	// For a table with a selector: the place of the group's word in a slot, and of the members'
	// words.
	GroupAt, Members, MemberCount int
}

// KeyPart is the place of a key field in the key.
type KeyPart struct {
	// bytes from the key's start; LookupArray: the number of bits by which the field is shifted
	// left
	At   int
	Size int // bytes
	// LookupTrie: bits by which the field is shifted left, so that a prefix starts on a byte
	Shift int
}

const slotCounter = 0 // the counter is at a slot's start

func (p *Plan) planTable(src *bmv2json.Table) *TablePlan {
	t := &TablePlan{Source: src, Counter: -1, Meter: -1, Hit: -1}
	t.planKeys()
	t.Default = p.allocate(16)
	t.Version = t.Default + 8 // in one cache line, because both seldom change
	// Parameters: in the word if those of every action fit alongside the action's number.
	t.Inline = !src.WithCounters && !src.SupportTimeout && src.DirectMeter == nil && src.Kind == bmv2json.TableSimple
	for _, a := range src.Actions {
		bits := 0
		for _, q := range a.Params {
			bits += q.Width
		}
		t.Inline = t.Inline && bits <= 48
	}
	from := 0
	if src.WithCounters {
		t.Counter, from = slotCounter, 16
	}
	if src.DirectMeter != nil {
		t.Meter, from = from, from+MeterBytes
	}
	if src.SupportTimeout {
		t.Hit, from = from, from+8
	}
	for _, a := range src.Actions {
		q := ir.Params{Inline: t.Inline, At: make([]int, len(a.Params)),
			Widths: make([]int, len(a.Params))}
		at := from
		if t.Inline {
			at = 16
		}
		for _, i := range bySize(a.Params) {
			w := a.Params[i].Width
			q.At[i], q.Widths[i] = at, w
			if t.Inline {
				at += w
			} else {
				at += ir.SlotSize(w)
			}
		}
		if !t.Inline {
			t.SlotSize = max(t.SlotSize, (at+7)&^7)
		}
		t.Params = append(t.Params, q)
	}
	if !t.Inline {
		// Twice the number of possible entries, up to a limit, because replaced entries cannot be
		// reused at once.
		n := max(src.MaxSize, len(src.ConstEntries)) + 1
		if src.Kind == bmv2json.TableIndirectWS {
			t.GroupAt = from
			t.SlotSize = max(t.SlotSize, from+8)
			t.planGroups(p)
			n += max(src.ActionProfile.MaxSize, leastMembers)
		}
		t.SlotCount = n + min(max(n, 64), 1024)
		t.Slots = p.allocate(t.SlotSize * t.SlotCount)
	}
	switch t.Kind {
	case LookupArray:
		t.Direct = p.allocate(8 << t.Bits)
	case LookupScan:
		t.Scan = p.planScan(t)
	}
	return t
}

// bySize orders parameters so that each is aligned.
func bySize(params []bmv2json.Param) []int {
	order := make([]int, len(params))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a,
		b int) int {
		return cmp.Compare(ir.SlotSize(params[b].Width),
			ir.SlotSize(params[a].Width))
	})
	return order
}

func (t *TablePlan) planKeys() {
	keys := t.Source.Keys
	t.Parts = make([]KeyPart, len(keys))
	// bmv2json accepts at most one prefix, as p4c and BMv2 do
	prefix, bits, masks := false, 0, false
	for _, k := range keys {
		switch k.Kind {
		case bmv2json.MatchExact, bmv2json.MatchValid:
		case bmv2json.MatchLPM:
			prefix = true
		default:
			masks = true
		}
		if !k.Field.IsValidity() && k.Field.Field.VL {
			ir.Refuse(t.Source.Path, "a key of variable length (%s)", k.Name)
		}
		bits += k.Width
	}
	switch {
	case len(keys) == 0:
		t.Kind = LookupNone
	case masks:
		t.Kind = LookupScan
	case prefix:
		// The exact fields first, so that they are part of every prefix.
		t.Kind, t.KeyBytes = LookupTrie, 4
		for pass := range 2 {
			for i, k := range keys {
				if (k.Kind == bmv2json.MatchLPM) != (pass == 1) {
					continue
				}
				n := (k.Width + 7) / 8
				if ir.Wide(k.Width) {
					n = ir.WordsOf(k.Width) * 8
				}
				t.Parts[i] = KeyPart{At: t.KeyBytes, Size: n, Shift: n*8 - k.Width}
				t.KeyBytes += n
			}
		}
		if t.KeyBytes > 4+256 {
			ir.Refuse(t.Source.Path, "a key of %d bytes (table %s)", t.KeyBytes, t.Source.Name)
		}
	case bits <= directBits:
		t.Kind, t.Bits = LookupArray, bits
		at := 0
		for i, k := range keys {
			t.Parts[i] = KeyPart{At: at, Size: ir.SlotSize(k.Width)}
			at += k.Width
		}
	default:
		t.Kind = LookupHash
		order := make([]int, len(keys))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a,
			b int) int {
			return cmp.Compare(ir.SlotSize(keys[b].Width),
				ir.SlotSize(keys[a].Width))
		})
		for _, i := range order {
			t.Parts[i] = KeyPart{At: t.KeyBytes, Size: ir.SlotSize(keys[i].Width)}
			t.KeyBytes += t.Parts[i].Size
		}
	}
}

// ConstantDefault reports whether the default entry is the one fixed in the program.
func (t *TablePlan) ConstantDefault() bool {
	d := t.Source.Default
	return d != nil && (d.ConstEntry || d.ConstAction && len(d.Action.Params) == 0)
}

// Knowable reports whether a program can be compiled for the table's content: one key, exact or a
// prefix, of at most 64 bits.
func (t *TablePlan) Knowable() bool {
	if t.Source.Kind == bmv2json.TableIndirectWS {
		return false // the word does not contain the entry's whole effect
	}
	if t.Kind != LookupHash && t.Kind != LookupTrie || len(t.Source.Keys) != 1 {
		return false
	}
	k := t.Source.Keys[0]
	return k.Kind != bmv2json.MatchValid && !k.Field.IsValidity() && !ir.Wide(k.Width) &&
		k.Mask == nil
}

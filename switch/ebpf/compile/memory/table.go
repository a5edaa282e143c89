package memory

import (
	"cmp"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Tables. Every kind of lookup yields one 64-bit word, which is read in one load. So an entry is
// present as a whole or not at all. The word consists of
//
//	bits 0 to 15    1 + the index of the action in the table's list; 0: no entry
//	bits 16 to 63   the action's parameters, if they fit (and nothing is counted)
//	                or the number of the entry's slot, in which the parameters and the counter are
//
// The control plane writes a slot before its word. It does not reuse the slot before every packet
// that may have seen the word has ended (see runtime's slots).

// lookupKind is the method by which a table finds the entry word of a key.
type lookupKind int

const (
	LookupNone  lookupKind = iota // a table without keys has only the default entry
	LookupArray                   // an array with one word for each possible key
	LookupHash                    // a BPF hash table
	LookupTrie                    // a BPF longest-prefix trie
	LookupScan                    // a list in the order of priority (priority_list.go)
)

// String returns the kind's name as docs/switch.md writes it.
func (k lookupKind) String() string {
	return [...]string{"none", "array", "hash", "trie",
		"list"}[k]
}

// directBits is the largest width of a key for which the table is an array with a word for each
// value.
const directBits = 12

// TablePlan describes how a table is looked up, and where its data is.
type TablePlan struct {
	Source    *bmv2json.Table
	Kind      lookupKind
	KeyBytes  int
	Parts     []KeyPart // indexed by key
	Bits      int       // LookupArray: width of the whole key in bits
	Direct    int       // LookupArray: offset of the array in the state
	Scan      *scanPlan
	Inline    bool
	Slots     int // offset of the entries' slots in the state
	SlotSize  int
	SlotCount int
	Counter   int // offset of the counter in the slot, or -1 if there is none
	Meter     int // offset of the meter in the slot, or -1 if there is none
	// offset of the time of the last hit in the slot, or -1 without idle timeouts
	Hit     int
	Default int // offset of the default entry's word in the state
	// For Knowable tables, the offset of the version in the state. Each change increments the
	// version.
	Version int
	Params  []ir.Params // indexed by action of the table

	// For a table with a selector: the offsets of the group's word in a slot and of the members'
	// words, and the number of members' words.
	GroupAt, Members, MemberCount int
}

// KeyPart describes where a field is in the table's key.
type KeyPart struct {
	// Offset in bytes from the key's start. For LookupArray, the number of bits by which the field
	// is shifted left.
	At   int
	Size int // size in bytes
	// For LookupTrie, the number of bits by which the field is shifted left, so that a prefix
	// starts on a byte.
	Shift int
}

const slotCounter = 0 // the counter is at the start of a slot

func (p *Plan) planTable(src *bmv2json.Table) *TablePlan {
	t := &TablePlan{Source: src, Counter: -1, Meter: -1, Hit: -1}
	t.planKeys()
	t.Default = p.allocate(16)
	t.Version = t.Default + 8 // both are in one cache line, because both rarely change
	// Parameters are in the word if, for every action, they fit next to the action's number.
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
		// Reserve twice as many slots as possible entries, up to a limit, because slots of replaced
		// entries cannot be reused at once.
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

// bySize orders parameters in such a way that each parameter is aligned.
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
	// bmv2json accepts at most one prefix key, as p4c and BMv2 do.
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
		// The exact fields come first, so that they are part of every prefix.
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

// ConstantDefault reports whether the program fixes the default entry.
func (t *TablePlan) ConstantDefault() bool {
	d := t.Source.Default
	return d != nil && (d.ConstEntry || d.ConstAction && len(d.Action.Params) == 0)
}

// Knowable reports whether a program can be compiled for the table's content. The table must have
// one key, exact or a prefix, of at most 64 bits.
func (t *TablePlan) Knowable() bool {
	if t.Source.Kind == bmv2json.TableIndirectWS {
		return false // the word does not describe everything that a hit does
	}
	if t.Kind != LookupHash && t.Kind != LookupTrie || len(t.Source.Keys) != 1 {
		return false
	}
	k := t.Source.Keys[0]
	return k.Kind != bmv2json.MatchValid && !k.Field.IsValidity() && !ir.Wide(k.Width) &&
		k.Mask == nil
}

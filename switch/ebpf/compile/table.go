package compile

import (
	"cmp"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Tables. A lookup of any kind gives one 64-bit word, read in one load: an entry is there as a
// whole or not at all. The word is
//
//	bits 0 to 15    1 + the index of the action in the table's list; 0: no entry
//	bits 16 to 63   the action's parameters, where they fit (and nothing is counted)
//	                or the number of the entry's slot, in which the parameters and the counter are
//
// A slot is written before its word is and not used again before every packet that may have seen
// the word is gone (see slots).

// lookupKind is how a table finds the word of a key.
type lookupKind int

const (
	lookupNone  lookupKind = iota // no keys: the default entry
	LookupArray                   // an array with a word for each possible key
	LookupHash                    // a BPF hash table
	LookupTrie                    // a BPF longest-prefix trie
	lookupScan                    // a list in the order of priority (scan.go)
)

func (k lookupKind) String() string {
	return [...]string{"none", "array", "hash", "trie",
		"list"}[k]
}

// directBits is the widest key for which there is a word for each value.
const directBits = 12

type TablePlan struct {
	Source    *bmv2json.Table
	Kind      lookupKind
	KeyBytes  int
	Parts     []keyPart // by key
	bits      int       // LookupArray: of the whole key
	Direct    int       // in the state
	Scan      *scanPlan
	Inline    bool
	Slots     int // in the state
	SlotSize  int
	SlotCount int
	Counter   int         // in the slot; -1: nothing is counted
	Meter     int         // in the slot; -1: there is none
	Hit       int         // in the slot: when the last packet hit; -1: entries have no idle timeout
	Default   int         // in the state: the word of the default entry
	Version   int         // in the state, of a Knowable table: counted up with each change
	Params    []ir.Params // by action of the table

	// Of a table with a selector: where a slot has its group's word, and the members' words.
	GroupAt, Members, MemberCount int
}

// keyPart is where a key field is in the key.
type keyPart struct {
	At    int // bytes from the key's start; LookupArray: bits to the left
	Size  int // bytes
	Shift int // LookupTrie: bits to the left, so that a prefix starts on a byte
}

const slotCounter = 0 // the counter is at a slot's start

func (p *Plan) planTable(src *bmv2json.Table) *TablePlan {
	t := &TablePlan{Source: src, Counter: -1, Meter: -1, Hit: -1}
	t.planKeys()
	t.Default = p.allocate(16)
	t.Version = t.Default + 8 // changes as seldom
	// Parameters: in the word if those of every action fit beside the action's number.
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
		// Twice as many as there can be entries, up to a point: those that have just been replaced
		// cannot be used yet.
		n := max(src.MaxSize, len(src.ConstEntries)) + 1
		if src.Kind == bmv2json.TableIndirectWS {
			t.GroupAt = from
			t.SlotSize = max(t.SlotSize, from+8)
			t.planGroups(p)
			n += max(src.Profile.MaxSize, leastMembers)
		}
		t.SlotCount = n + min(max(n, 64), 1024)
		t.Slots = p.allocate(t.SlotSize * t.SlotCount)
	}
	switch t.Kind {
	case LookupArray:
		t.Direct = p.allocate(8 << t.bits)
	case lookupScan:
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
	t.Parts = make([]keyPart, len(keys))
	prefix, bits, masks := false, 0, false // bmv2json takes one prefix at most, as p4c and BMv2 do
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
		t.Kind = lookupNone
	case masks:
		t.Kind = lookupScan
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
				t.Parts[i] = keyPart{At: t.KeyBytes, Size: n, Shift: n*8 - k.Width}
				t.KeyBytes += n
			}
		}
		if t.KeyBytes > 4+256 {
			ir.Refuse(t.Source.Path, "a key of %d bytes (table %s)", t.KeyBytes, t.Source.Name)
		}
	case bits <= directBits:
		t.Kind, t.bits = LookupArray, bits
		at := 0
		for i, k := range keys {
			t.Parts[i] = keyPart{At: at, Size: ir.SlotSize(k.Width)}
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
			t.Parts[i] = keyPart{At: t.KeyBytes, Size: ir.SlotSize(keys[i].Width)}
			t.KeyBytes += t.Parts[i].Size
		}
	}
}

// constantDefault reports whether the default entry is the one that stands in the program.
func (t *TablePlan) constantDefault() bool {
	d := t.Source.Default
	return d != nil && (d.ConstEntry || d.ConstAction && len(d.Action.Params) == 0)
}

// applyTable emits a table: lookup, action, and where to go on.
func (t *translator) applyTable(tp *TablePlan, next func(bmv2json.Node)) {
	src := tp.Source
	miss, run := t.NewLabel("miss"), t.NewLabel("run")
	t.readTimeFor(tp)
	constDefault := tp.constantDefault()
	if tp.Kind != lookupNone {
		t.Where = src.Path
		t.lookup(tp, nil, miss)
		if src.HitMiss {
			t.StoreConstant(code.PHV, phvHit, 1, 1)
		}
		t.Jump(run)
	}
	t.Bind(miss)
	after := func(i int) {
		if src.HitMiss {
			hit, missed := t.NewLabel("hit"), t.NewLabel("missed")
			if tp.Kind == lookupNone {
				next(src.Miss)
				return
			}
			t.Load(asm.R1, code.PHV, phvHit, 1)
			t.Emit(asm.JEq.Imm(asm.R1, 0, missed))
			t.Bind(hit)
			next(src.Hit)
			t.Bind(missed)
			next(src.Miss)
			return
		}
		next(src.Next[i])
	}
	noDefault := src.BaseDefaultNext
	if src.HitMiss {
		noDefault = src.Miss
	}
	switch {
	case constDefault:
		if src.HitMiss {
			t.StoreConstant(code.PHV, phvHit, 0, 1)
		}
		t.Constants = src.Default.Params
		if t.Constants == nil {
			t.Constants = [][]byte{}
		}
		t.runAction(src.Default.Action, t.pipeline.end)
		t.Constants = nil
		switch {
		case src.HitMiss:
			next(src.Miss)
		case src.Default.ActionIndex >= 0:
			next(src.Next[src.Default.ActionIndex])
		default:
			next(noDefault)
		}
		if tp.Kind == lookupNone {
			return
		}
	default:
		if src.HitMiss {
			t.StoreConstant(code.PHV, phvHit, 0, 1)
		}
		t.stateAddress(asm.R1, tp.Default)
		t.Load(code.Entry, asm.R1, 0, 8)
		has := t.NewLabel("default")
		t.Emit(asm.JNE.Imm(code.Entry, 0, has))
		next(noDefault)
		t.Bind(has)
		if !tp.Inline {
			t.slotAddress(tp, t.pipeline.end)
			t.Jump(run + ".chosen")
		}
	}
	t.Bind(run)
	if !tp.Inline {
		t.countHit(tp, miss)
		t.Bind(run + ".chosen")
		t.chooseMember(tp, run+".empty")
		t.Load(asm.R1, code.PHV, phvAction, 2)
	} else {
		t.Emit(asm.Mov.Reg(asm.R1, code.Entry), asm.And.Imm(asm.R1, 0xffff))
	}
	for i, a := range src.Actions {
		other := t.NewLabel("other")
		if i < len(src.Actions)-1 {
			t.Emit(asm.JNE.Imm(asm.R1, int32(i+1), other))
		}
		t.Params = &tp.Params[i]
		t.runAction(a, t.pipeline.end)
		t.Params = nil
		after(i)
		t.Bind(other)
	}
	t.Jump(t.pipeline.end) // a table without actions
	if src.Kind == bmv2json.TableIndirectWS {
		t.Bind(run + ".empty") // a group without members does nothing
		if src.HitMiss {
			missed := t.NewLabel("missed")
			t.Load(asm.R1, code.PHV, phvHit, 1)
			t.Emit(asm.JEq.Imm(asm.R1, 0, missed))
			next(src.Hit)
			t.Bind(missed)
		}
		next(noDefault)
	}
}

// countHit leaves the slot's address in Entry, as slotAddress does, and counts the packet in the
// entry's counter and meter, and notes the time of the hit.
func (t *translator) countHit(tp *TablePlan, bad string) {
	t.slotAddress(tp, bad)
	if tp.Counter >= 0 {
		t.addToCounter(code.Entry, tp.Counter)
	}
	if tp.Hit >= 0 {
		t.Call(asm.FnKtimeGetBootNs)
		t.Store(code.Entry, tp.Hit, asm.R0, 8)
	}
	if tp.Meter >= 0 {
		t.directMeter(tp)
	}
}

// slotAddress turns the word in Entry into its slot's address, leaving the action's number in
// phvAction. A word that points nowhere goes to bad.
func (t *translator) slotAddress(tp *TablePlan, bad string) {
	t.Store(code.PHV, phvAction, code.Entry, 2)
	t.Emit(asm.RSh.Imm(code.Entry, 16), asm.JGE.Imm(code.Entry, int32(tp.SlotCount), bad))
	if tp.SlotSize > 0 {
		t.Emit(asm.Mul.Imm(code.Entry, int32(tp.SlotSize)))
	}
	t.stateAddress(asm.R1, tp.Slots)
	t.Emit(asm.Add.Reg(code.Entry, asm.R1))
}

// lookup leaves the word of the key's entry in Entry, or goes to miss. An entry that is known to be in
// the table, and whose word has a label, goes there.
func (t *translator) lookup(tp *TablePlan, labels map[uint64]string, miss string) {
	if known, ok := t.maps.Known[tp.Source.Index]; ok {
		found := t.NewLabel("found")
		t.lookupKnown(tp, known, labels, found, miss)
		t.lookupMap(tp, miss)
		t.Bind(found)
		return
	}
	t.lookupMap(tp, miss)
}

// lookupMap asks the table's map.
func (t *translator) lookupMap(tp *TablePlan, miss string) {
	keys := tp.Source.Keys
	switch tp.Kind {
	case LookupArray:
		var index *ir.Value = ir.Const(0)
		for i := range keys {
			index = ir.Or(index, ir.Shl(t.KeyWord(&keys[i], 0), uint64(tp.Parts[i].At)))
		}
		t.Compute(index, 0)
		// for the verifier, which knows nothing of widths
		t.Emit(asm.And.Imm(asm.R1, int32(ir.Ones(tp.bits))), asm.LSh.Imm(asm.R1, 3))
		t.stateAddress(asm.R2, tp.Direct)
		t.Emit(asm.Add.Reg(asm.R2, asm.R1))
		t.Load(code.Entry, asm.R2, 0, 8)
		t.Emit(asm.JEq.Imm(code.Entry, 0, miss))
		return
	case lookupScan:
		t.scanTable(tp, miss)
		return
	case LookupHash:
		for i := range keys {
			p := tp.Parts[i]
			n := ir.WordsOf(keys[i].Width)
			for w := range n {
				v := t.KeyWord(&keys[i], w)
				if ir.Wide(keys[i].Width) {
					t.ComputeSwapped(v, 0)
					t.Store(code.PHV, t.keys+p.At+(n-1-w)*8, asm.R1, 8)
				} else {
					t.Store(code.PHV, t.keys+p.At, t.Compute(v, 0), p.Size)
				}
			}
		}
	case LookupTrie:
		t.StoreConstant(code.PHV, t.keys, int32((tp.KeyBytes-4)*8), 4)
		for i := range keys {
			t.trieKey(&keys[i], tp.Parts[i])
		}
	}
	t.Emit(asm.LoadMapPtr(asm.R1, t.maps.Lookups[tp.Source.Index]), asm.Mov.Reg(asm.R2, code.PHV),
		asm.Add.Imm(asm.R2, int32(t.keys)))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, miss))
	t.Load(code.Entry, asm.R0, 0, 8)
}

// trieKey stores a field big-endian, its first bit on a byte.
func (t *translator) trieKey(k *bmv2json.Key, p keyPart) {
	n := ir.WordsOf(k.Width)
	if ir.Wide(k.Width) {
		for w := range n {
			v := ir.Shl(t.KeyWord(k, w), uint64(p.Shift))
			if p.Shift > 0 && w > 0 {
				v = ir.Or(v, ir.Shr(t.KeyWord(k, w-1), uint64(64-p.Shift)))
			}
			t.ComputeSwapped(v, 0)
			at := t.keys + p.At + (n-1-w)*8 // not on a multiple of 8
			t.Store(code.PHV, at, asm.R1, 4)
			t.Emit(asm.RSh.Imm(asm.R1, 32))
			t.Store(code.PHV, at+4, asm.R1, 4)
		}
		return
	}
	t.Compute(ir.Shl(t.KeyWord(k, 0), uint64(p.Shift)), 0)
	t.storeBigEndian(code.PHV, t.keys+p.At, p.Size)
}

// storeBigEndian stores the low bytes of R1, byte by byte where their number is not a power of two.
// R1 does not survive.
func (t *translator) storeBigEndian(base asm.Register, off, size int) {
	switch size {
	case 2, 4, 8:
		if off%size == 0 {
			t.Emit(asm.HostTo(asm.BE, asm.R1, code.SizeOf(size)))
			t.Store(base, off, asm.R1, size)
			return
		}
	}
	for i := size - 1; i >= 0; i-- {
		t.Store(base, off+i, asm.R1, 1)
		if i > 0 {
			t.Emit(asm.RSh.Imm(asm.R1, 8))
		}
	}
}

package runtime

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/target"
)

// table is the control plane's side of a table.
type table struct {
	*memory.TablePlan
	p       *Pipeline
	byMatch map[string]*entry
	def     *entry // nil if there is no default entry
	slots   slots
	list    scanList
	know    knowing
	seq     int

	members map[uint32]uint64 // member id -> entry word, for members that groups use
	groups  map[uint32]extent // group id -> where the entry words of its members are
	// allocates space for the words of members; nil if the table has no groups
	shared *extents
}

// entry is a table entry of the control plane, with the 64-bit word that packets find when they
// look it up.
type entry struct {
	target.TableEntry
	word uint64
	seq  int
	age  target.Ageing
}

func newTable(p *Pipeline, tp *memory.TablePlan) *table {
	t := &table{TablePlan: tp, p: p, byMatch: map[string]*entry{}, slots: slots{size: tp.SlotCount}}
	if tp.Source.Kind == bmv2json.TableIndirectWS {
		t.members, t.groups = map[uint32]uint64{}, map[uint32]extent{}
		t.shared = newExtents(tp.MemberCount)
	}
	if tp.Scan != nil {
		t.list.clean = tp.Scan.Copies - 1
	}
	return t
}

// start inserts the program's const entries and its default entry.
func (t *table) start() error {
	if err := t.setDefault(nil); err != nil {
		return fmt.Errorf("the default entry of table %q: %w", t.Source.Name, err)
	}
	largest := 0
	for _, c := range t.Source.ConstEntries {
		largest = max(largest, c.Priority)
	}
	for i, c := range t.Source.ConstEntries {
		e := &target.TableEntry{IsConst: true, Action: &target.ActionCall{Action: c.Action.Name,
			Params: c.Params}}
		if t.Source.NeedsPriority() {
			// In BMv2 the smallest priority wins, but for package target the largest.
			e.Priority = largest + 1 - c.Priority
		}
		for _, m := range c.Match {
			e.Match = append(e.Match, target.FieldMatch{Value: m.Value, Mask: m.Mask,
				PrefixLen: m.PrefixLen})
		}
		// If two const entries have the same match, the first entry wins.
		if err := t.insert(e); err != nil && !errors.Is(err, target.ErrExists) {
			return fmt.Errorf("const entry %d of table %q: %w", i, t.Source.Name, err)
		}
	}
	if t.Scan != nil && len(t.list.order) > 0 {
		t.publishList()
	}
	return nil
}

// checkBytes checks that b is a value of width bits.
func checkBytes(b []byte, width int) error {
	if len(b) != (width+7)/8 {
		return fmt.Errorf("%d bytes instead of %d: %w", len(b), (width+7)/8, target.ErrInvalid)
	}
	if r := width & 7; r != 0 && b[0]>>r != 0 {
		return fmt.Errorf("0x%x does not fit %d bits: %w", b, width, target.ErrInvalid)
	}
	return nil
}

// canonical checks a match and returns its canonical form, in which bits after a prefix are 0. The
// second result is a string that identifies the match within the table.
func (t *table) canonical(match []target.FieldMatch, priority int) ([]target.FieldMatch, string,
	error) {
	if len(match) != len(t.Source.Keys) {
		return nil, "", fmt.Errorf("%d keys instead of %d: %w", len(match), len(t.Source.Keys),
			target.ErrInvalid)
	}
	if len(match) == 0 {
		return nil, "", fmt.Errorf("the table has no keys, only a default entry: %w",
			target.ErrInvalid)
	}
	out := make([]target.FieldMatch, len(match))
	var id []byte
	for i, m := range match {
		k := t.Source.Keys[i]
		width := k.Width
		if k.Kind == bmv2json.MatchValid {
			width = 1
		}
		if err := checkBytes(m.Value, width); err != nil {
			return nil, "", fmt.Errorf("key %q: %w", k.Name, err)
		}
		out[i].Value = slices.Clone(m.Value)
		switch k.Kind {
		case bmv2json.MatchTernary, bmv2json.MatchOptional, bmv2json.MatchRange:
			if err := checkBytes(m.Mask, width); err != nil {
				return nil, "", fmt.Errorf("key %q: mask: %w", k.Name, err)
			}
			out[i].Mask = slices.Clone(m.Mask)
			if k.Kind == bmv2json.MatchRange {
				if bytes.Compare(m.Value, m.Mask) > 0 {
					return nil, "", fmt.Errorf("key %q: the range from 0x%x to 0x%x is empty: %w",
						k.Name, m.Value, m.Mask, target.ErrInvalid)
				}
				break
			}
			for j := range out[i].Value {
				out[i].Value[j] &= m.Mask[j]
			}
		case bmv2json.MatchLPM:
			if m.PrefixLen < 0 || m.PrefixLen > k.Width {
				return nil, "", fmt.Errorf("key %q: a prefix of %d bits of %d: %w", k.Name,
					m.PrefixLen, k.Width, target.ErrInvalid)
			}
			out[i].PrefixLen = m.PrefixLen
			for b := m.PrefixLen; b < k.Width; b++ { // each bit after the prefix
				at := b + len(m.Value)*8 - k.Width
				out[i].Value[at/8] &^= 0x80 >> (at % 8)
			}
		}
		id = append(id, out[i].Value...)
		id = append(id, out[i].Mask...)
		id = append(id, byte(out[i].PrefixLen), byte(out[i].PrefixLen>>8))
	}
	if t.Source.NeedsPriority() {
		id = binary.BigEndian.AppendUint64(id, uint64(priority))
	}
	return out, string(id), nil
}

// key returns the lookup key of a match. For a direct table it returns the index.
func (t *table) key(match []target.FieldMatch) (key []byte, index uint64) {
	key = make([]byte, t.KeyBytes)
	prefix := 0
	for i, m := range match {
		k, part := t.Source.Keys[i], t.Parts[i]
		switch t.Kind {
		case memory.LookupArray:
			index |= new(big.Int).SetBytes(m.Value).Uint64() << part.At
		case memory.LookupHash:
			encodeCell(key[part.At:part.At+part.Size], m.Value)
		case memory.LookupTrie:
			v := new(big.Int).Lsh(new(big.Int).SetBytes(m.Value), uint(part.Shift))
			v.FillBytes(key[part.At : part.At+part.Size])
			if k.Kind == bmv2json.MatchLPM {
				prefix += m.PrefixLen
			} else {
				prefix += part.Size * 8
			}
		}
	}
	if t.Kind == memory.LookupTrie {
		binary.NativeEndian.PutUint32(key, uint32(prefix))
	}
	return key, index
}

// publish makes packets find an entry word when they look up a match, in one step. A word of 0
// removes the match.
func (t *table) publish(match []target.FieldMatch, word uint64) error {
	key, index := t.key(match)
	t.touch()
	if t.Kind == memory.LookupArray {
		t.p.State.Store(t.Direct+int(index)*8, word)
		return nil
	}
	m := t.p.lookups[t.Source.Index]
	if word == 0 {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("taking a key out: %w", err)
		}
		return nil
	}
	var value [8]byte
	binary.NativeEndian.PutUint64(value[:], word)
	if err := m.Update(key, value[:], ebpf.UpdateAny); err != nil {
		return fmt.Errorf("putting a key in: %w", err)
	}
	return nil
}

// bind checks an entry's action call and returns its 64-bit entry word (compile/memory/table.go).
// It allocates a slot if the word needs one.
func (t *table) bind(e *target.TableEntry) (uint64, error) {
	if t.Source.Kind != bmv2json.TableSimple {
		return t.bindIndirect(e)
	}
	if e.Action == nil || e.Member != nil || e.Group != nil {
		return 0, fmt.Errorf("an entry of this table has an action, not a member or group: %w",
			target.ErrInvalid)
	}
	return t.bindAction(e.Action)
}

// checkCall finds an action of a table and checks its parameters. The second result is its index.
func checkCall(src *bmv2json.Table, c *target.ActionCall) (*bmv2json.Action, int, error) {
	a, i := src.Action(c.Action)
	if a == nil {
		return nil, 0, fmt.Errorf("action %q is none of the table's: %w", c.Action,
			target.ErrInvalid)
	}
	if len(c.Params) != len(a.Params) {
		return nil, 0, fmt.Errorf("action %q with %d parameters instead of %d: %w", a.Name,
			len(c.Params), len(a.Params), target.ErrInvalid)
	}
	for j, b := range c.Params {
		if err := checkBytes(b, a.Params[j].Width); err != nil {
			return nil, 0, fmt.Errorf("action %q: parameter %q: %w", a.Name, a.Params[j].Name, err)
		}
	}
	return a, i, nil
}

// bindAction returns the 64-bit entry word for an action call (compile/memory/table.go).
func (t *table) bindAction(c *target.ActionCall) (uint64, error) {
	a, i, err := checkCall(t.Source, c)
	if err != nil {
		return 0, err
	}
	word, plan := uint64(i+1), t.Params[i]
	if t.Inline {
		for j, b := range c.Params {
			word |= new(big.Int).SetBytes(b).Uint64() << plan.At[j]
		}
		return word, nil
	}
	slot, ok := t.slots.allocate()
	if !ok {
		return 0, fmt.Errorf("no slot is free: %w", target.ErrFull)
	}
	mem := t.p.State.Mem[t.TablePlan.Slots+slot*t.SlotSize:][:t.SlotSize]
	clear(mem)
	for j, b := range c.Params {
		encodeCell(mem[plan.At[j]:plan.At[j]+ir.SlotSize(a.Params[j].Width)], b)
	}
	return word | uint64(slot)<<16, nil
}

// free releases the slot of an entry word that packets can no longer find.
func (t *table) free(word uint64) {
	if !t.Inline && word != 0 {
		t.slots.release(int(word >> 16))
	}
}

func copyEntry(e *target.TableEntry, match []target.FieldMatch) target.TableEntry {
	out := *e
	out.Match = match
	if e.Action != nil {
		a := target.ActionCall{Action: e.Action.Action,
			Params: make([][]byte, len(e.Action.Params))}
		for i, b := range e.Action.Params {
			a.Params[i] = slices.Clone(b)
		}
		out.Action = &a
	}
	return out
}

func (p *Pipeline) table(name string) (*table, error) {
	t := p.Prog.Table(name)
	if t == nil {
		return nil, fmt.Errorf("table %q: %w", name, target.ErrNotFound)
	}
	return p.control[t.Index], nil
}

// change calls do to change the table with this name.
func (p *Pipeline) change(what, name string, do func(*table) error) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	t, err := p.table(name)
	if err != nil {
		return err
	}
	if err := do(t); err != nil {
		return fmt.Errorf("%s table %q: %w", what, name, err)
	}
	return nil
}

// InsertEntry implements [target.Pipeline].
func (p *Pipeline) InsertEntry(name string, e *target.TableEntry) error {
	return p.change("inserting into", name, func(t *table) error {
		if t.Source.Const {
			return fmt.Errorf("its entries stand in the program: %w", target.ErrImmutable)
		}
		return t.insert(e)
	})
}

func (t *table) insert(e *target.TableEntry) error {
	match, id, err := t.canonical(e.Match, e.Priority)
	if err != nil {
		return err
	}
	if _, dup := t.byMatch[id]; dup {
		return target.ErrExists
	}
	if !e.IsConst && len(t.byMatch) >= t.Source.MaxSize {
		return fmt.Errorf("all %d entries are in use: %w", t.Source.MaxSize, target.ErrFull)
	}
	word, err := t.bind(e)
	if err != nil {
		return err
	}
	t.seq++
	out := &entry{TableEntry: copyEntry(e, match), word: word, seq: t.seq}
	if !t.Source.NeedsPriority() {
		out.Priority = 0
	}
	if t.Scan != nil {
		t.addToList(out)
		if !e.IsConst { // the program's const entries are published together
			t.publishList()
		}
	} else if err := t.publish(match, word); err != nil {
		t.free(word)
		return err
	}
	t.byMatch[id] = out
	return nil
}

// find returns the table's entry with the same match as e.
func (t *table) find(e *target.TableEntry) (*entry, string, error) {
	_, id, err := t.canonical(e.Match, e.Priority)
	if err != nil {
		return nil, "", err
	}
	have, ok := t.byMatch[id]
	if !ok {
		return nil, "", target.ErrNotFound
	}
	return have, id, nil
}

// ModifyEntry implements [target.Pipeline]. It does not change the entry's counter.
func (p *Pipeline) ModifyEntry(name string, e *target.TableEntry) error {
	return p.change("modifying an entry of", name, func(t *table) error {
		if t.Source.Const {
			return fmt.Errorf("its entries stand in the program: %w", target.ErrImmutable)
		}
		have, _, err := t.find(e)
		if err != nil {
			return err
		}
		if err := t.replaceWord(have, func() (uint64, error) { return t.bind(e) }); err != nil {
			return err
		}
		priority := have.Priority
		have.TableEntry = copyEntry(e, have.Match)
		have.Priority = priority
		return nil
	})
}

// replaceWord replaces the entry word that packets find. It keeps the entry's counter values.
func (t *table) replaceWord(have *entry, bind func() (uint64, error)) error {
	word, err := bind()
	if err != nil {
		return err
	}
	old := have.word
	have.word = word
	if t.Scan != nil {
		t.publishList()
	} else if err := t.publish(have.Match, word); err != nil {
		have.word = old
		t.free(word)
		return err
	}
	if t.Counter >= 0 || t.Hit >= 0 { // Wait for packets that still use the old slot.
		WaitForPackets()
	}
	t.noticeHit(have, old)
	if t.Counter >= 0 { // Copy the previous counter values.
		from, to := t.counterAt(old), t.counterAt(word)
		for _, off := range []int{0, 8} {
			atomic.AddUint64(t.p.State.word(to+off), t.p.State.Load(from+off))
		}
	}
	if t.TablePlan.Meter >= 0 {
		t.keepMeter(old, word)
	}
	t.free(old)
	return nil
}

// DeleteEntry implements [target.Pipeline].
func (p *Pipeline) DeleteEntry(name string, e *target.TableEntry) error {
	return p.change("deleting from", name, func(t *table) error {
		if t.Source.Const {
			return fmt.Errorf("its entries stand in the program: %w", target.ErrImmutable)
		}
		have, id, err := t.find(e)
		if err != nil {
			return err
		}
		if t.Scan != nil {
			t.removeFromList(have)
			t.publishList()
		} else if err := t.publish(have.Match, 0); err != nil {
			return err
		}
		t.free(have.word)
		delete(t.byMatch, id)
		delete(t.p.ages, have)
		return nil
	})
}

// Entries implements [target.Pipeline]. It returns entries in the order of their insertion.
func (p *Pipeline) Entries(name string) (out []target.TableEntry, err error) {
	err = p.change("reading", name, func(t *table) error {
		all := make([]*entry, 0, len(t.byMatch))
		for _, e := range t.byMatch {
			all = append(all, e)
		}
		slices.SortFunc(all, func(a, b *entry) int { return a.seq - b.seq })
		for _, e := range all {
			out = append(out, copyEntry(&e.TableEntry, slices.Clone(e.Match)))
		}
		return nil
	})
	return out, err
}

// SetDefault implements [target.Pipeline].
func (p *Pipeline) SetDefault(name string, e *target.TableEntry) error {
	return p.change("setting the default entry of", name, func(t *table) error {
		if e != nil {
			if len(e.Match) != 0 {
				return fmt.Errorf("with a match: %w", target.ErrInvalid)
			}
			if d := t.Source.Default; d != nil {
				switch {
				case d.ConstEntry:
					return fmt.Errorf("it stands in the program: %w", target.ErrImmutable)
				case d.ConstAction && (e.Action == nil || e.Action.Action != d.Action.Name):
					return fmt.Errorf("the program allows action %q only: %w", d.Action.Name,
						target.ErrImmutable)
				}
			}
		}
		return t.setDefault(e)
	})
}

// setDefault sets the default entry. If e is nil, it restores the default entry of the program.
func (t *table) setDefault(e *target.TableEntry) error {
	d := t.Source.Default
	own := e == nil
	if own && d != nil {
		e = &target.TableEntry{Action: &target.ActionCall{Action: d.Action.Name, Params: d.Params},
			IsConst: d.ConstEntry}
	}
	var word uint64
	var to *entry
	if e != nil {
		to = &entry{TableEntry: copyEntry(e, nil)}
		if d == nil || d.ActionIndex >= 0 {
			var err error
			if own {
				// The program's own default entry has an action, even if the table has an action
				// profile.
				word, err = t.bindAction(e.Action)
			} else {
				word, err = t.bind(e)
			}
			if err != nil {
				return err
			}
		}
		to.word = word
	}
	t.p.State.Store(t.TablePlan.Default, word)
	if t.def != nil {
		t.free(t.def.word)
	}
	t.def = to
	return nil
}

// Default implements [target.Pipeline].
func (p *Pipeline) Default(name string) (out *target.TableEntry, err error) {
	err = p.change("reading", name, func(t *table) error {
		if t.def != nil {
			e := copyEntry(&t.def.TableEntry, nil)
			e.IsConst = t.Source.Default != nil && t.Source.Default.ConstEntry
			out = &e
		}
		return nil
	})
	return out, err
}

// slotAt returns the offset in the state at which the slot that an entry's word names begins.
func (t *table) slotAt(word uint64) int { return t.TablePlan.Slots + int(word>>16)*t.SlotSize }

func (t *table) counterAt(word uint64) int { return t.slotAt(word) + t.Counter }

// DirectCounter implements [target.Pipeline].
func (p *Pipeline) DirectCounter(name string, e *target.TableEntry) (out target.CounterData,
	err error) {
	err = p.change("reading a counter of", name, func(t *table) error {
		at, err := t.directCounter(e)
		if err != nil {
			return err
		}
		out = target.CounterData{Packets: p.State.Load(at), Bytes: p.State.Load(at + 8)}
		return nil
	})
	return out, err
}

// SetDirectCounter implements [target.Pipeline].
func (p *Pipeline) SetDirectCounter(name string, e *target.TableEntry, d target.CounterData) error {
	return p.change("setting a counter of", name, func(t *table) error {
		at, err := t.directCounter(e)
		if err != nil {
			return err
		}
		p.State.Store(at, d.Packets)
		p.State.Store(at+8, d.Bytes)
		return nil
	})
}

func (t *table) directCounter(e *target.TableEntry) (int, error) {
	if !t.Source.WithCounters {
		return 0, fmt.Errorf("it has no direct counters: %w", target.ErrNotFound)
	}
	have, _, err := t.find(e)
	if err != nil {
		return 0, err
	}
	return t.counterAt(have.word), nil
}

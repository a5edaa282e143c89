package interp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// The control plane's side of tables. Pipeline.cp keeps control-plane calls apart from each other;
// Pipeline.dp keeps them apart from packets and is held only for the moment of change.

func (p *Pipeline) table(name string) (*table, error) {
	t := p.prog.Table(name)
	if t == nil {
		return nil, fmt.Errorf("table %q: %w", name, target.ErrNotFound)
	}
	return p.tables[t.Index], nil
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

// newEntry checks the match of e and puts it into lanes.
func (t *table) newEntry(e *target.TableEntry) (*entry, error) {
	if len(e.Match) != len(t.keys) {
		return nil, fmt.Errorf("%d keys instead of %d: %w", len(e.Match), len(t.keys),
			target.ErrInvalid)
	}
	if len(t.keys) == 0 {
		return nil, fmt.Errorf("the table has no keys, only a default entry: %w", target.ErrInvalid)
	}
	out := &entry{value: make([]uint64, t.lanes), mask: make([]uint64, t.lanes), isConst: e.IsConst}
	for i, k := range t.keys {
		m := e.Match[i]
		v, mask, err := k.lanesOfMatch(m)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", t.src.Keys[i].Name, err)
		}
		for j := range v {
			out.value[k.to+j] |= v[j] << k.shift
			out.mask[k.to+j] |= mask[j] << k.shift
		}
		if k.kind == bmv2json.MatchLPM {
			out.plen = m.PrefixLen
		}
		out.match = append(out.match, k.canonical(m, v, mask))
	}
	if t.src.NeedsPriority() {
		out.priority = e.Priority
	}
	return out, nil
}

// lanesOfMatch is the match's value under its mask, and the mask; of a range, the two bounds.
func (k *keySource) lanesOfMatch(m target.FieldMatch) (value, mask []uint64, err error) {
	if k.kind == bmv2json.MatchValid {
		if len(m.Value) != 1 || m.Value[0] > 1 {
			return nil, nil, fmt.Errorf("a validity is one byte, 0 or 1: %w", target.ErrInvalid)
		}
		return []uint64{uint64(m.Value[0])}, []uint64{1}, nil
	}
	if err := checkBytes(m.Value, k.width); err != nil {
		return nil, nil, err
	}
	value, mask = make([]uint64, k.lanes), make([]uint64, k.lanes)
	lanesFromBytes(value, m.Value)
	switch k.kind {
	case bmv2json.MatchExact:
		for i := range mask {
			mask[i] = ^uint64(0)
		}
		mask[k.lanes-1] = topMask(k.width)
		return value, mask, nil
	case bmv2json.MatchLPM:
		if m.PrefixLen < 0 || m.PrefixLen > k.width {
			return nil, nil, fmt.Errorf("a prefix of %d bits of %d: %w", m.PrefixLen, k.width,
				target.ErrInvalid)
		}
		for b := k.width - m.PrefixLen; b < k.width; b++ {
			mask[b>>6] |= 1 << (b & 63)
		}
	default:
		if err := checkBytes(m.Mask, k.width); err != nil {
			return nil, nil, fmt.Errorf("mask: %w", err)
		}
		lanesFromBytes(mask, m.Mask)
		if k.kind == bmv2json.MatchRange {
			if value[0] > mask[0] {
				return nil, nil, fmt.Errorf("the range from 0x%x to 0x%x is empty: %w", value[0],
					mask[0], target.ErrInvalid)
			}
			return value, mask, nil
		}
	}
	for i := range value {
		value[i] &= mask[i]
	}
	return value, mask, nil
}

// canonical is the match as it is given back: what the mask hides is 0.
func (k *keySource) canonical(m target.FieldMatch, value, mask []uint64) target.FieldMatch {
	switch k.kind {
	case bmv2json.MatchValid:
		return target.FieldMatch{Value: slices.Clone(m.Value)}
	case bmv2json.MatchExact:
		return target.FieldMatch{Value: bytesFromLanes(value, k.width)}
	case bmv2json.MatchLPM:
		return target.FieldMatch{Value: bytesFromLanes(value, k.width), PrefixLen: m.PrefixLen}
	}
	return target.FieldMatch{Value: bytesFromLanes(value, k.width),
		Mask: bytesFromLanes(mask, k.width)}
}

// id is what tells an entry from the others of its table: the match, and the priority where there
// is one.
func (e *entry) id() string {
	b := make([]byte, 0, 16*len(e.value)+16)
	for i := range e.value {
		b = binary.BigEndian.AppendUint64(b, e.value[i])
		b = binary.BigEndian.AppendUint64(b, e.mask[i])
	}
	return string(binary.BigEndian.AppendUint64(b, uint64(int64(e.priority))))
}

// lookupEntry finds the entry that e identifies.
func (t *table) lookupEntry(e *target.TableEntry) (*entry, error) {
	w, err := t.newEntry(e)
	if err != nil {
		return nil, err
	}
	have, ok := t.byMatch[w.id()]
	if !ok {
		return nil, target.ErrNotFound
	}
	return have, nil
}

// bind sets what an entry does.
func (t *table) bind(out *entry, e *target.TableEntry) error {
	if t.profile == nil {
		if e.Action == nil || e.Member != nil || e.Group != nil {
			return fmt.Errorf("an entry of this table has an action, not a member or group: %w",
				target.ErrInvalid)
		}
		var err error
		out.do, err = t.p.bindCall(t.src, e.Action)
		return err
	}
	switch {
	case e.Action != nil:
		return fmt.Errorf(
			"an entry of this table has a member or group of action profile %q, not an action: %w",
			t.profile.src.Name, target.ErrInvalid)
	case e.Member != nil && e.Group == nil:
		m, ok := t.profile.members[*e.Member]
		if !ok {
			return fmt.Errorf("member %d of action profile %q: %w", *e.Member, t.profile.src.Name,
				target.ErrNotFound)
		}
		out.member = m
	case e.Group != nil && e.Member == nil:
		if t.src.Kind != bmv2json.TableIndirectWS {
			return fmt.Errorf("a group, but action profile %q has no selector: %w",
				t.profile.src.Name, target.ErrInvalid)
		}
		g, ok := t.profile.groups[*e.Group]
		if !ok {
			return fmt.Errorf("group %d of action profile %q: %w", *e.Group, t.profile.src.Name,
				target.ErrNotFound)
		}
		out.group = g
	default:
		return fmt.Errorf("neither one member nor one group: %w", target.ErrInvalid)
	}
	return nil
}

// bindCall checks an action call against a table's actions.
func (p *Pipeline) bindCall(t *bmv2json.Table, a *target.ActionCall) (*call, error) {
	src, _ := t.Action(a.Action)
	if src == nil {
		return nil, fmt.Errorf("action %q is none of the table's: %w", a.Action, target.ErrInvalid)
	}
	return p.newCall(src, a.Params)
}

func (p *Pipeline) newCall(src *bmv2json.Action, params [][]byte) (*call, error) {
	if len(params) != len(src.Params) {
		return nil, fmt.Errorf("action %q with %d parameters instead of %d: %w", src.Name,
			len(params), len(src.Params), target.ErrInvalid)
	}
	act := p.actions[src.Index]
	c := &call{act: act, index: src.Index, params: make([]uint64, act.lanes)}
	for i, at := range act.params {
		if err := checkBytes(params[i], at.width); err != nil {
			return nil, fmt.Errorf("action %q: parameter %q: %w", src.Name, src.Params[i].Name, err)
		}
		lanesFromBytes(c.params[at.lane:at.lane+lanesOf(at.width)], params[i])
	}
	return c, nil
}

func (c *call) export() target.ActionCall {
	out := target.ActionCall{Action: c.act.src.Name, Params: [][]byte{}}
	for _, at := range c.act.params {
		out.Params = append(out.Params, bytesFromLanes(c.params[at.lane:at.lane+lanesOf(at.width)],
			at.width))
	}
	return out
}

func (e *entry) export() target.TableEntry {
	out := target.TableEntry{Priority: e.priority, IsConst: e.isConst}
	for _, m := range e.match {
		out.Match = append(out.Match, target.FieldMatch{Value: slices.Clone(m.Value),
			Mask: slices.Clone(m.Mask), PrefixLen: m.PrefixLen})
	}
	switch {
	case e.do != nil:
		a := e.do.export()
		out.Action = &a
	case e.member != nil:
		id := e.member.id
		out.Member = &id
	case e.group != nil:
		id := e.group.id
		out.Group = &id
	}
	return out
}

// retain counts the references to a member or group.
func (e *entry) retain(by int) {
	switch {
	case e.member != nil:
		e.member.refs += by
	case e.group != nil:
		e.group.refs += by
	}
}

// changeTable changes an entry. what is said of a change that fails.
func (p *Pipeline) changeTable(name, what string, change func(*table, *target.TableEntry) error,
	e *target.TableEntry) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	t, err := p.table(name)
	if err != nil {
		return err
	}
	if err := change(t, e); err != nil {
		return fmt.Errorf("%s %q: %w", what, name, err)
	}
	return nil
}

// InsertEntry implements [target.Pipeline].
func (p *Pipeline) InsertEntry(name string, e *target.TableEntry) error {
	return p.changeTable(name, "inserting into table", (*table).insert, e)
}

func (t *table) insert(e *target.TableEntry) error {
	if t.src.Const && !e.IsConst {
		return fmt.Errorf("its entries stand in the program: %w", target.ErrImmutable)
	}
	out, err := t.newEntry(e)
	if err != nil {
		return err
	}
	if _, dup := t.byMatch[out.id()]; dup {
		return target.ErrExists
	}
	if !e.IsConst && len(t.byMatch) >= t.src.MaxSize {
		return fmt.Errorf("all %d entries are in use: %w", t.src.MaxSize, target.ErrFull)
	}
	if err := t.bind(out, e); err != nil {
		return err
	}
	if t.meter != nil {
		out.meter = &meter{bytes: t.meter.Bytes}
	}
	out.seq = t.seq
	t.seq++
	out.handle = t.handles.take()
	t.byMatch[out.id()] = out
	t.p.dp.Lock()
	defer t.p.dp.Unlock()
	out.retain(1)
	t.find.insert(out)
	return nil
}

// ModifyEntry implements [target.Pipeline]. Counters and meters of the entry stay as they are.
func (p *Pipeline) ModifyEntry(name string, e *target.TableEntry) error {
	return p.changeTable(name, "modifying an entry of table", (*table).modify, e)
}

// changeable is the entry with e's match, where the control plane may change it.
func (t *table) changeable(e *target.TableEntry) (*entry, error) {
	if t.src.Const {
		return nil, fmt.Errorf("its entries stand in the program: %w", target.ErrImmutable)
	}
	return t.lookupEntry(e)
}

func (t *table) modify(e *target.TableEntry) error {
	have, err := t.changeable(e)
	if err != nil {
		return err
	}
	var to entry
	if err := t.bind(&to, e); err != nil {
		return err
	}
	t.p.dp.Lock()
	defer t.p.dp.Unlock()
	to.retain(1)
	have.retain(-1)
	have.do, have.member, have.group = to.do, to.member, to.group
	return nil
}

// DeleteEntry implements [target.Pipeline].
func (p *Pipeline) DeleteEntry(name string, e *target.TableEntry) error {
	return p.changeTable(name, "deleting from table", (*table).delete, e)
}

func (t *table) delete(e *target.TableEntry) error {
	have, err := t.changeable(e)
	if err != nil {
		return err
	}
	delete(t.byMatch, have.id())
	delete(t.p.ages, have)
	t.handles.release(have.handle)
	t.p.dp.Lock()
	defer t.p.dp.Unlock()
	have.retain(-1)
	t.find.remove(have)
	return nil
}

// Entries implements [target.Pipeline]. They come in the order of their insertion.
func (p *Pipeline) Entries(name string) ([]target.TableEntry, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	t, err := p.table(name)
	if err != nil {
		return nil, err
	}
	all := make([]*entry, 0, len(t.byMatch))
	for _, e := range t.byMatch {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	out := make([]target.TableEntry, len(all))
	for i, e := range all {
		out[i] = e.export()
	}
	return out, nil
}

// SetDefault implements [target.Pipeline].
func (p *Pipeline) SetDefault(name string, e *target.TableEntry) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	t, err := p.table(name)
	if err != nil {
		return err
	}
	if err := t.setDefault(e); err != nil {
		return fmt.Errorf("setting the default entry of table %q: %w", name, err)
	}
	return nil
}

func (t *table) setDefault(e *target.TableEntry) error {
	to := t.first
	if e != nil {
		if len(e.Match) != 0 {
			return fmt.Errorf("with a match: %w", target.ErrInvalid)
		}
		to = &entry{}
		if err := t.bind(to, e); err != nil {
			return err
		}
		if d := t.src.Default; d != nil {
			switch {
			case d.ConstEntry:
				return fmt.Errorf("it stands in the program: %w", target.ErrImmutable)
			case d.ConstAction && (to.do == nil || to.do.act.src.Name != d.Action.Name):
				return fmt.Errorf("the program allows action %q only: %w", d.Action.Name,
					target.ErrImmutable)
			}
		}
	}
	t.p.dp.Lock()
	defer t.p.dp.Unlock()
	if to != nil {
		to.retain(1)
	}
	if t.def != nil {
		t.def.retain(-1)
	}
	t.def = to
	return nil
}

// Default implements [target.Pipeline].
func (p *Pipeline) Default(name string) (*target.TableEntry, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	t, err := p.table(name)
	if err != nil {
		return nil, err
	}
	if t.def == nil {
		return nil, nil
	}
	out := t.def.export()
	d := t.src.Default
	out.IsConst = d != nil && d.ConstEntry
	return &out, nil
}

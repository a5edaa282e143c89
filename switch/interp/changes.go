package interp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

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
		out.do, err = bindCall(t.src, e.Action)
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
	t.packets.Lock()
	defer t.packets.Unlock()
	out.retain(1)
	t.find.insert(out)
	return nil
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
	t.packets.Lock()
	defer t.packets.Unlock()
	to.retain(1)
	have.retain(-1)
	have.do, have.member, have.group = to.do, to.member, to.group
	return nil
}

func (t *table) delete(e *target.TableEntry) error {
	have, err := t.changeable(e)
	if err != nil {
		return err
	}
	delete(t.byMatch, have.id())
	delete(t.idle, have)
	t.handles.release(have.handle)
	t.packets.Lock()
	defer t.packets.Unlock()
	have.retain(-1)
	t.find.remove(have)
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
			case d.ConstAction && (to.do == nil || to.do.src.Name != d.Action.Name):
				return fmt.Errorf("the program allows action %q only: %w", d.Action.Name,
					target.ErrImmutable)
			}
		}
	}
	t.packets.Lock()
	defer t.packets.Unlock()
	if to != nil {
		to.retain(1)
	}
	if t.def != nil {
		t.def.retain(-1)
	}
	t.def = to
	return nil
}

// reset puts the program's own entries in place.
func (t *table) reset() error {
	if d := t.src.Default; d != nil {
		do, err := newCall(d.Action, d.Params)
		if err != nil {
			return fmt.Errorf("%s.default_entry: %w", t.src.Path, err)
		}
		t.first = &entry{do: do}
		t.def = t.first
	}
	// BMv2's smallest priority wins, the contract's largest.
	largest := 0
	for _, e := range t.src.ConstEntries {
		largest = max(largest, e.Priority)
	}
	for _, e := range t.src.ConstEntries {
		te := &target.TableEntry{Action: &target.ActionCall{Action: e.Action.Name,
			Params: e.Params}, IsConst: true}
		if t.src.NeedsPriority() {
			te.Priority = largest + 1 - e.Priority
		}
		for _, m := range e.Match {
			te.Match = append(te.Match, target.FieldMatch{Value: m.Value, Mask: m.Mask,
				PrefixLen: m.PrefixLen})
		}
		if err := t.insert(te); err != nil {
			if errors.Is(err, target.ErrExists) {
				err = fmt.Errorf("the same match stands in an earlier entry: %w",
					target.ErrInvalid)
			}
			return fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	return nil
}

// entries are the table's entries in the order of their insertion.
func (t *table) entries() []target.TableEntry {
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
	return out
}

// defaultEntry is the table's default entry, or nil.
func (t *table) defaultEntry() *target.TableEntry {
	if t.def == nil {
		return nil
	}
	out := t.def.export()
	d := t.src.Default
	out.IsConst = d != nil && d.ConstEntry
	return &out
}

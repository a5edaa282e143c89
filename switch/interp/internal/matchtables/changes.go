package matchtables

import (
	"errors"
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/target"
)

// newEntry checks the match of e and converts it to lanes.
func (t *Table) newEntry(e *target.TableEntry) (*Entry, error) {
	if len(e.Match) != len(t.keys) {
		return nil, fmt.Errorf("%d keys instead of %d: %w", len(e.Match), len(t.keys),
			target.ErrInvalid)
	}
	if len(t.keys) == 0 {
		return nil, fmt.Errorf("the table has no keys, only a default entry: %w", target.ErrInvalid)
	}
	out := &Entry{value: make([]uint64, t.lanes), mask: make([]uint64, t.lanes), isConst: e.IsConst}
	for i, k := range t.keys {
		m := e.Match[i]
		v, mask, err := k.lanesOfMatch(m)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", t.Source.Keys[i].Name, err)
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
	if t.Source.NeedsPriority() {
		out.priority = e.Priority
	}
	return out, nil
}

// LookupEntry finds the entry that e identifies.
func (t *Table) LookupEntry(e *target.TableEntry) (*Entry, error) {
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

// bind sets an entry's action, member or group.
func (t *Table) bind(out *Entry, e *target.TableEntry) error {
	if t.actionProfile == nil {
		if e.Action == nil || e.Member != nil || e.Group != nil {
			return fmt.Errorf("an entry of this table has an action, not a member or group: %w",
				target.ErrInvalid)
		}
		var err error
		out.Own, err = bindCall(t.Source, e.Action)
		return err
	}
	switch {
	case e.Action != nil:
		return fmt.Errorf(
			"an entry of this table has a member or group of action profile %q, not an action: %w",
			t.actionProfile.src.Name, target.ErrInvalid)
	case e.Member != nil && e.Group == nil:
		m, ok := t.actionProfile.members[*e.Member]
		if !ok {
			return fmt.Errorf("member %d of action profile %q: %w", *e.Member, t.actionProfile.src.Name,
				target.ErrNotFound)
		}
		out.member = m
	case e.Group != nil && e.Member == nil:
		if t.Source.Kind != bmv2json.TableIndirectWS {
			return fmt.Errorf("a group, but action profile %q has no selector: %w",
				t.actionProfile.src.Name, target.ErrInvalid)
		}
		g, ok := t.actionProfile.groups[*e.Group]
		if !ok {
			return fmt.Errorf("group %d of action profile %q: %w", *e.Group, t.actionProfile.src.Name,
				target.ErrNotFound)
		}
		out.group = g
	default:
		return fmt.Errorf("neither one member nor one group: %w", target.ErrInvalid)
	}
	return nil
}

// Insert adds an entry.
func (t *Table) Insert(e *target.TableEntry) error {
	if t.Source.Const && !e.IsConst {
		return fmt.Errorf("its entries stand in the program: %w", target.ErrImmutable)
	}
	out, err := t.newEntry(e)
	if err != nil {
		return err
	}
	if _, dup := t.byMatch[out.id()]; dup {
		return target.ErrExists
	}
	if !e.IsConst && len(t.byMatch) >= t.Source.MaxSize {
		return fmt.Errorf("all %d entries are in use: %w", t.Source.MaxSize, target.ErrFull)
	}
	if err := t.bind(out, e); err != nil {
		return err
	}
	if t.meter != nil {
		out.Meter = arrays.NewMeter(t.meter.Bytes)
	}
	out.seq = t.seq
	t.seq++
	out.Handle = t.handles.take()
	t.byMatch[out.id()] = out
	t.packets.Lock()
	defer t.packets.Unlock()
	out.retain(1)
	t.find.insert(out)
	return nil
}

// changeable returns the entry with the same match as e. It returns an error if the control plane
// must not change the entry.
func (t *Table) changeable(e *target.TableEntry) (*Entry, error) {
	if t.Source.Const {
		return nil, fmt.Errorf("its entries stand in the program: %w", target.ErrImmutable)
	}
	return t.LookupEntry(e)
}

// Modify changes the action of the entry with the same match as e.
func (t *Table) Modify(e *target.TableEntry) error {
	have, err := t.changeable(e)
	if err != nil {
		return err
	}
	var to Entry
	if err := t.bind(&to, e); err != nil {
		return err
	}
	t.packets.Lock()
	defer t.packets.Unlock()
	to.retain(1)
	have.retain(-1)
	have.Own, have.member, have.group = to.Own, to.member, to.group
	return nil
}

// Delete removes the entry with the same match as e.
func (t *Table) Delete(e *target.TableEntry) error {
	have, err := t.changeable(e)
	if err != nil {
		return err
	}
	delete(t.byMatch, have.id())
	delete(t.idle, have)
	t.handles.release(have.Handle)
	t.packets.Lock()
	defer t.packets.Unlock()
	have.retain(-1)
	t.find.remove(have)
	return nil
}

// SetDefault sets the default entry. If e is nil, SetDefault restores the program's own default
// entry.
func (t *Table) SetDefault(e *target.TableEntry) error {
	to := t.first
	if e != nil {
		if len(e.Match) != 0 {
			return fmt.Errorf("with a match: %w", target.ErrInvalid)
		}
		to = &Entry{}
		if err := t.bind(to, e); err != nil {
			return err
		}
		if d := t.Source.Default; d != nil {
			switch {
			case d.ConstEntry:
				return fmt.Errorf("it stands in the program: %w", target.ErrImmutable)
			case d.ConstAction && (to.Own == nil || to.Own.Source.Name != d.Action.Name):
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
	if t.Default != nil {
		t.Default.retain(-1)
	}
	t.Default = to
	return nil
}

// Reset restores the program's own entries.
func (t *Table) Reset() error {
	if d := t.Source.Default; d != nil {
		do, err := newCall(d.Action, d.Params)
		if err != nil {
			return fmt.Errorf("%s.default_entry: %w", t.Source.Path, err)
		}
		t.first = &Entry{Own: do}
		t.Default = t.first
	}
	// In BMv2 the smallest priority wins, but for target.TableEntry the largest.
	largest := 0
	for _, e := range t.Source.ConstEntries {
		largest = max(largest, e.Priority)
	}
	for _, e := range t.Source.ConstEntries {
		te := &target.TableEntry{Action: &target.ActionCall{Action: e.Action.Name,
			Params: e.Params}, IsConst: true}
		if t.Source.NeedsPriority() {
			te.Priority = largest + 1 - e.Priority
		}
		for _, m := range e.Match {
			te.Match = append(te.Match, target.FieldMatch{Value: m.Value, Mask: m.Mask,
				PrefixLen: m.PrefixLen})
		}
		if err := t.Insert(te); err != nil {
			if errors.Is(err, target.ErrExists) {
				err = fmt.Errorf("the same match stands in an earlier entry: %w",
					target.ErrInvalid)
			}
			return fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	return nil
}

// Entries returns the table's entries in the order of their insertion.
func (t *Table) Entries() []target.TableEntry {
	all := make([]*Entry, 0, len(t.byMatch))
	for _, e := range t.byMatch {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *Entry) int {
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

// DefaultEntry returns the table's default entry, or nil.
func (t *Table) DefaultEntry() *target.TableEntry {
	if t.Default == nil {
		return nil
	}
	out := t.Default.export()
	d := t.Source.Default
	out.IsConst = d != nil && d.ConstEntry
	return &out
}

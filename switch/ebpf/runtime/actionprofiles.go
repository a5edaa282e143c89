package runtime

import (
	"fmt"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

func none(kind, name string) error {
	return fmt.Errorf("%s %q: %w", kind, name,
		target.ErrNotFound)
}

// actionProfile is an action profile or selector as the control plane sees it. The data for packets
// is in the tables (compile/memory/selector.go).
type actionProfile struct {
	src     *bmv2json.ActionProfile
	members map[uint32]target.ActionCall
	groups  map[uint32][]target.WeightedMember
}

func newActionProfile(src *bmv2json.ActionProfile) *actionProfile {
	return &actionProfile{src: src, members: map[uint32]target.ActionCall{},
		groups: map[uint32][]target.WeightedMember{}}
}

// extent says which of a table's members' words belong to a group.
type extent struct{ at, count int }

// buckets returns the members of a group in the order of their ids, each repeated as often as its
// weight says. The hash selects the n-th element, as in BMv2.
func buckets(members []target.WeightedMember) (out []uint32) {
	sorted := slices.Clone(members)
	slices.SortStableFunc(sorted, func(a, b target.WeightedMember) int {
		return int(int64(a.Member) - int64(b.Member))
	})
	for _, w := range sorted {
		for range w.Weight {
			out = append(out, w.Member)
		}
	}
	return out
}

// maxBuckets bounds the size of a group, because clients choose the weights.
const maxBuckets = 1 << 16

// bindIndirect returns the 64-bit entry word of an entry that names a member or a group
// (compile/memory/table.go).
func (t *table) bindIndirect(e *target.TableEntry) (uint64, error) {
	pr := t.p.actionProfiles[t.Source.ActionProfile.Index]
	switch {
	case e.Action != nil:
		return 0, fmt.Errorf(
			"an entry of this table has a member or group of action profile %q, not an action: %w",
			pr.src.Name, target.ErrInvalid)
	case e.Member != nil && e.Group == nil:
		m, ok := pr.members[*e.Member]
		if !ok {
			return 0, fmt.Errorf("member %d of action profile %q: %w", *e.Member, pr.src.Name,
				target.ErrNotFound)
		}
		return t.bindAction(&m)
	case e.Group != nil && e.Member == nil:
		if t.Source.Kind != bmv2json.TableIndirectWS {
			return 0, fmt.Errorf("a group, but action profile %q has no selector: %w",
				pr.src.Name, target.ErrInvalid)
		}
		if _, ok := pr.groups[*e.Group]; !ok {
			return 0, fmt.Errorf("group %d of action profile %q: %w", *e.Group, pr.src.Name,
				target.ErrNotFound)
		}
		slot, ok := t.slots.allocate()
		if !ok {
			return 0, fmt.Errorf("no slot is free: %w", target.ErrFull)
		}
		clear(t.p.State.Mem[t.TablePlan.Slots+slot*t.SlotSize:][:t.SlotSize])
		word := memory.GroupAction | uint64(slot)<<16
		t.setGroupOf(word, t.groups[*e.Group])
		return word, nil
	}
	return 0, fmt.Errorf("neither one member nor one group: %w", target.ErrInvalid)
}

// setGroupOf stores a group in the slot that an entry's word names.
func (t *table) setGroupOf(word uint64, g extent) {
	t.p.State.Store(t.TablePlan.Slots+int(word>>16)*t.SlotSize+t.GroupAt,
		memory.GroupWord(g.at, g.count))
}

func (p *Pipeline) actionProfile(name string) (*actionProfile, error) {
	src := p.Prog.ActionProfile(name)
	if src == nil {
		return nil, none("action profile", name)
	}
	return p.actionProfiles[src.Index], nil
}

// onActionProfile calls do with the action profile of that name.
func (p *Pipeline) onActionProfile(name string, do func(*actionProfile) error) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	pr, err := p.actionProfile(name)
	if err != nil {
		return err
	}
	if err := do(pr); err != nil {
		return fmt.Errorf("action profile %q: %w", name, err)
	}
	return nil
}

// tables returns the tables that use an action profile.
func (p *Pipeline) tables(pr *actionProfile) (out []*table) {
	for _, src := range pr.src.Tables {
		out = append(out, p.control[src.Index])
	}
	return out
}

// all returns a table's entries, including its default entry.
func (t *table) all() (out []*entry) {
	for _, e := range t.byMatch {
		out = append(out, e)
	}
	if t.def != nil {
		out = append(out, t.def)
	}
	return out
}

// SetMember implements [target.Pipeline].
func (p *Pipeline) SetMember(name string, id uint32, a *target.ActionCall, insert bool) error {
	return p.onActionProfile(name, func(pr *actionProfile) error {
		_, ok := pr.members[id]
		switch {
		case ok && insert:
			return fmt.Errorf("member %d: %w", id, target.ErrExists)
		case !ok && !insert:
			return fmt.Errorf("member %d: %w", id, target.ErrNotFound)
		case len(pr.src.Tables) == 0:
			return fmt.Errorf("no table uses the action profile, so it has no actions: %w",
				target.ErrInvalid)
		case insert && pr.src.MaxSize > 0 && len(pr.members) >= pr.src.MaxSize:
			return fmt.Errorf("all %d members are in use: %w", pr.src.MaxSize, target.ErrFull)
		}
		if _, _, err := checkCall(pr.src.Tables[0], a); err != nil {
			return fmt.Errorf("member %d: %w", id, err)
		}
		if ok {
			for _, t := range p.tables(pr) {
				if err := t.replaceMember(id, a); err != nil {
					return fmt.Errorf("member %d: %w", id, err)
				}
			}
		}
		call := copyEntry(&target.TableEntry{Action: a}, nil)
		pr.members[id] = *call.Action
		return nil
	})
}

// replaceMember changes a member's action in all groups and entries that use the member.
func (t *table) replaceMember(id uint32, a *target.ActionCall) error {
	if old, ok := t.members[id]; ok {
		word, err := t.bindAction(a)
		if err != nil {
			return err
		}
		t.members[id] = word
		for _, g := range t.groups {
			for i := range g.count {
				if at := t.Members + 8*(g.at+i); t.p.State.Load(at) == old {
					t.p.State.Store(at, word)
				}
			}
		}
		t.free(old)
	}
	for _, e := range t.byMatch {
		if e.Member != nil && *e.Member == id {
			if err := t.replaceWord(e, func() (uint64, error) { return t.bindAction(a) }); err != nil {
				return err
			}
		}
	}
	if d := t.def; d != nil && d.Member != nil && *d.Member == id {
		word, err := t.bindAction(a)
		if err != nil {
			return err
		}
		t.p.State.Store(t.TablePlan.Default, word)
		t.free(d.word)
		d.word = word
	}
	return nil
}

// DeleteMember implements [target.Pipeline]. It refuses to delete a member that an entry or a group
// uses.
func (p *Pipeline) DeleteMember(name string, id uint32) error {
	return p.onActionProfile(name, func(pr *actionProfile) error {
		if _, ok := pr.members[id]; !ok {
			return fmt.Errorf("member %d: %w", id, target.ErrNotFound)
		}
		used := false
		for _, g := range pr.groups {
			used = used || slices.ContainsFunc(g, func(w target.WeightedMember) bool {
				return w.Member == id
			})
		}
		for _, t := range p.tables(pr) {
			for _, e := range t.all() {
				used = used || e.Member != nil && *e.Member == id
			}
		}
		if used {
			return fmt.Errorf("member %d is in use: %w", id, target.ErrInvalid)
		}
		for _, t := range p.tables(pr) {
			if word, ok := t.members[id]; ok {
				t.free(word)
				delete(t.members, id)
			}
		}
		delete(pr.members, id)
		return nil
	})
}

// Members implements [target.Pipeline].
func (p *Pipeline) Members(name string) (out map[uint32]target.ActionCall, err error) {
	err = p.onActionProfile(name, func(pr *actionProfile) error {
		out = map[uint32]target.ActionCall{}
		for id, m := range pr.members {
			out[id] = *copyEntry(&target.TableEntry{Action: &m}, nil).Action
		}
		return nil
	})
	return out, err
}

// SetGroup implements [target.Pipeline].
func (p *Pipeline) SetGroup(name string, id uint32, members []target.WeightedMember,
	insert bool) error {
	return p.onActionProfile(name, func(pr *actionProfile) error {
		_, ok := pr.groups[id]
		switch {
		case pr.src.Selector == nil:
			return fmt.Errorf("it has no selector: %w", target.ErrInvalid)
		case ok && insert:
			return fmt.Errorf("group %d: %w", id, target.ErrExists)
		case !ok && !insert:
			return fmt.Errorf("group %d: %w", id, target.ErrNotFound)
		}
		total := 0
		for _, w := range members {
			if _, ok := pr.members[w.Member]; !ok {
				return fmt.Errorf("group %d: member %d: %w", id, w.Member, target.ErrNotFound)
			}
			if total += w.Weight; w.Weight < 1 || w.Weight > maxBuckets || total > maxBuckets {
				return fmt.Errorf("group %d: member %d with weight %d: %w", id, w.Member, w.Weight,
					target.ErrInvalid)
			}
		}
		for _, t := range p.tables(pr) {
			if err := t.setGroup(pr, id, buckets(members)); err != nil {
				return fmt.Errorf("group %d: %w", id, err)
			}
		}
		pr.groups[id] = slices.Clone(members)
		return nil
	})
}

// setGroup writes the words of a group's members into a table, and points the group's entries at
// these words.
func (t *table) setGroup(pr *actionProfile, id uint32, members []uint32) error {
	if t.shared == nil {
		return nil // the table uses the selector's profile but accepts only members
	}
	at := 0
	if len(members) > 0 {
		var ok bool
		if at, ok = t.shared.allocate(len(members)); !ok {
			return fmt.Errorf("%d members, with those of other groups more than %d: %w",
				len(members), t.MemberCount, target.ErrFull)
		}
	}
	for i, m := range members {
		word, ok := t.members[m]
		if !ok {
			call := pr.members[m]
			var err error
			if word, err = t.bindAction(&call); err != nil {
				t.shared.release(at)
				return err
			}
			t.members[m] = word
		}
		t.p.State.Store(t.Members+8*(at+i), word)
	}
	old := t.groups[id]
	t.groups[id] = extent{at, len(members)}
	for _, e := range t.all() {
		if e.Group != nil && *e.Group == id {
			t.setGroupOf(e.word, t.groups[id])
		}
	}
	if old.count > 0 {
		t.shared.release(old.at)
	}
	return nil
}

// DeleteGroup implements [target.Pipeline]. It refuses to delete a group that an entry uses.
func (p *Pipeline) DeleteGroup(name string, id uint32) error {
	return p.onActionProfile(name, func(pr *actionProfile) error {
		if _, ok := pr.groups[id]; !ok {
			return fmt.Errorf("group %d: %w", id, target.ErrNotFound)
		}
		for _, t := range p.tables(pr) {
			for _, e := range t.all() {
				if e.Group != nil && *e.Group == id {
					return fmt.Errorf("group %d is in use: %w", id, target.ErrInvalid)
				}
			}
		}
		for _, t := range p.tables(pr) {
			if g := t.groups[id]; g.count > 0 {
				t.shared.release(g.at)
			}
			delete(t.groups, id)
		}
		delete(pr.groups, id)
		return nil
	})
}

// Groups implements [target.Pipeline].
func (p *Pipeline) Groups(name string) (out map[uint32][]target.WeightedMember, err error) {
	err = p.onActionProfile(name, func(pr *actionProfile) error {
		out = maps.Clone(pr.groups)
		for id, g := range out {
			out[id] = slices.Clone(g)
		}
		return nil
	})
	return out, err
}

package matchtables

import (
	"fmt"
	"slices"
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/target"
)

// ActionProfile is an action profile or selector.
type ActionProfile struct {
	src     *bmv2json.ActionProfile
	calc    *calculation.Calculation // hash of the selector
	packets *sync.Mutex              // held while a packet is in the program
	members map[uint32]*member
	groups  map[uint32]*group
}

// NewActionProfile creates an empty action profile. selector is the hash of an action selector, or
// nil for an action profile.
func NewActionProfile(src *bmv2json.ActionProfile, selector *calculation.Calculation,
	packets *sync.Mutex) *ActionProfile {
	return &ActionProfile{src: src, calc: selector, packets: packets, members: map[uint32]*member{},
		groups: map[uint32]*group{}}
}

// maxBuckets bounds the size of a group, because the control plane could choose huge weights.
const maxBuckets = 1 << 16

// SetMember adds a member, or changes a member's action.
func (pr *ActionProfile) SetMember(id uint32, a *target.ActionCall, insert bool) error {
	have, ok := pr.members[id]
	switch {
	case ok && insert:
		return target.ErrExists
	case !ok && !insert:
		return target.ErrNotFound
	case len(pr.src.Tables) == 0:
		return fmt.Errorf("no table uses the action profile, so it has no actions: %w",
			target.ErrInvalid)
	case insert && pr.src.MaxSize > 0 && len(pr.members) >= pr.src.MaxSize:
		return fmt.Errorf("all %d members are in use: %w", pr.src.MaxSize, target.ErrFull)
	}
	do, err := bindCall(pr.src.Tables[0], a)
	if err != nil {
		return err
	}
	pr.packets.Lock()
	defer pr.packets.Unlock()
	if ok {
		have.do = do
	} else {
		pr.members[id] = &member{id: id, do: do}
	}
	return nil
}

// SetGroup adds a group, or changes a group's members.
func (pr *ActionProfile) SetGroup(id uint32, members []target.WeightedMember,
	insert bool) error {
	have, ok := pr.groups[id]
	switch {
	case pr.src.Selector == nil:
		return fmt.Errorf("the action profile has no selector: %w", target.ErrInvalid)
	case ok && insert:
		return target.ErrExists
	case !ok && !insert:
		return target.ErrNotFound
	}
	sorted := slices.Clone(members)
	slices.SortStableFunc(sorted, func(a,
		b target.WeightedMember) int {
		return int(int64(a.Member) - int64(b.Member))
	})
	var buckets []*member
	for _, w := range sorted {
		m, ok := pr.members[w.Member]
		switch {
		case !ok:
			return fmt.Errorf("member %d: %w", w.Member, target.ErrNotFound)
		case w.Weight < 1 || len(buckets)+w.Weight > maxBuckets:
			return fmt.Errorf("member %d with weight %d: %w", w.Member, w.Weight, target.ErrInvalid)
		}
		for range w.Weight {
			buckets = append(buckets, m)
		}
	}
	pr.packets.Lock()
	defer pr.packets.Unlock()
	if !ok {
		have = &group{id: id, calc: pr.calc}
		pr.groups[id] = have
	}
	for _, m := range buckets {
		m.refs++
	}
	for _, m := range have.buckets {
		m.refs--
	}
	have.members, have.buckets = slices.Clone(members), buckets
	return nil
}

// DeleteMember deletes a member. No entry or group may use it.
func (pr *ActionProfile) DeleteMember(id uint32) error {
	m, ok := pr.members[id]
	switch {
	case !ok:
		return fmt.Errorf("member %d of action profile %q: %w", id, pr.src.Name, target.ErrNotFound)
	case m.refs > 0:
		return fmt.Errorf("member %d of action profile %q is in use: %w", id, pr.src.Name,
			target.ErrInvalid)
	}
	delete(pr.members, id)
	return nil
}

// ListMembers returns each member's action.
func (pr *ActionProfile) ListMembers() map[uint32]target.ActionCall {
	out := map[uint32]target.ActionCall{}
	for id, m := range pr.members {
		out[id] = m.do.Export()
	}
	return out
}

// DeleteGroup deletes a group. No entry may use it.
func (pr *ActionProfile) DeleteGroup(id uint32) error {
	g, ok := pr.groups[id]
	switch {
	case !ok:
		return fmt.Errorf("group %d of action profile %q: %w", id, pr.src.Name, target.ErrNotFound)
	case g.refs > 0:
		return fmt.Errorf("group %d of action profile %q is in use: %w", id, pr.src.Name,
			target.ErrInvalid)
	}
	for _, m := range g.buckets {
		m.refs--
	}
	delete(pr.groups, id)
	return nil
}

// ListGroups returns the members of each group.
func (pr *ActionProfile) ListGroups() map[uint32][]target.WeightedMember {
	out := map[uint32][]target.WeightedMember{}
	for id, g := range pr.groups {
		out[id] = slices.Clone(g.members)
	}
	return out
}

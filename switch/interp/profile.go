package interp

import (
	"fmt"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// profile is an action profile or selector.
type profile struct {
	src     *bmv2json.ActionProfile
	calc    *calculation // of a selector
	members map[uint32]*member
	groups  map[uint32]*group
}

type member struct {
	id   uint32
	do   *call
	refs int // entries and groups that use it
}

// group is a group of members. Its buckets are in the order of the members' ids, a member as often
// as its weight says: the hash picks the n-th, as in BMv2, so the choice does not depend on the
// order in which the control plane wrote.
type group struct {
	id      uint32
	calc    *calculation
	members []target.WeightedMember
	buckets []*member
	refs    int
}

func (g *group) choose(st *state) *call {
	if len(g.buckets) == 0 {
		return nil
	}
	return g.buckets[g.calc.value(st)%uint64(len(g.buckets))].do
}

// maxBuckets bounds a group, whose weights come from outside.
const maxBuckets = 1 << 16

func (p *Pipeline) profile(name string) (*profile, error) {
	src := p.prog.Profile(name)
	if src == nil {
		return nil, fmt.Errorf("action profile %q: %w", name, target.ErrNotFound)
	}
	return p.profiles[src.Index], nil
}

// SetMember implements [target.Pipeline].
func (p *Pipeline) SetMember(name string, id uint32, a *target.ActionCall, insert bool) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.profile(name)
	if err != nil {
		return err
	}
	if err := p.setMember(pr, id, a, insert); err != nil {
		return fmt.Errorf("member %d of action profile %q: %w", id, name, err)
	}
	return nil
}

func (p *Pipeline) setMember(pr *profile, id uint32, a *target.ActionCall, insert bool) error {
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
	do, err := p.bindCall(pr.src.Tables[0], a)
	if err != nil {
		return err
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	if ok {
		have.do = do
	} else {
		pr.members[id] = &member{id: id, do: do}
	}
	return nil
}

// DeleteMember implements [target.Pipeline]. A member that an entry or a group uses stays.
func (p *Pipeline) DeleteMember(name string, id uint32) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.profile(name)
	if err != nil {
		return err
	}
	m, ok := pr.members[id]
	switch {
	case !ok:
		return fmt.Errorf("member %d of action profile %q: %w", id, name, target.ErrNotFound)
	case m.refs > 0:
		return fmt.Errorf("member %d of action profile %q is in use: %w", id, name,
			target.ErrInvalid)
	}
	delete(pr.members, id)
	return nil
}

// Members implements [target.Pipeline].
func (p *Pipeline) Members(name string) (map[uint32]target.ActionCall, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.profile(name)
	if err != nil {
		return nil, err
	}
	out := map[uint32]target.ActionCall{}
	for id, m := range pr.members {
		out[id] = m.do.export()
	}
	return out, nil
}

// SetGroup implements [target.Pipeline].
func (p *Pipeline) SetGroup(name string, id uint32, members []target.WeightedMember,
	insert bool) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.profile(name)
	if err != nil {
		return err
	}
	if err := p.setGroup(pr, id, members, insert); err != nil {
		return fmt.Errorf("group %d of action profile %q: %w", id, name, err)
	}
	return nil
}

func (p *Pipeline) setGroup(pr *profile, id uint32, members []target.WeightedMember,
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
	p.dp.Lock()
	defer p.dp.Unlock()
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

// DeleteGroup implements [target.Pipeline]. A group that an entry uses stays.
func (p *Pipeline) DeleteGroup(name string, id uint32) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.profile(name)
	if err != nil {
		return err
	}
	g, ok := pr.groups[id]
	switch {
	case !ok:
		return fmt.Errorf("group %d of action profile %q: %w", id, name, target.ErrNotFound)
	case g.refs > 0:
		return fmt.Errorf("group %d of action profile %q is in use: %w", id, name,
			target.ErrInvalid)
	}
	for _, m := range g.buckets {
		m.refs--
	}
	delete(pr.groups, id)
	return nil
}

// Groups implements [target.Pipeline].
func (p *Pipeline) Groups(name string) (map[uint32][]target.WeightedMember, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.profile(name)
	if err != nil {
		return nil, err
	}
	out := map[uint32][]target.WeightedMember{}
	for id, g := range pr.groups {
		out[id] = slices.Clone(g.members)
	}
	return out, nil
}

// SetMulticastGroup implements [target.Pipeline]. Group 0 is P4's "no multicast" and cannot be set.
func (p *Pipeline) SetMulticastGroup(id uint32, replicas []target.Replica) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	if id == 0 || id > 0xffff {
		return fmt.Errorf("multicast group %d: %w", id, target.ErrOutOfRange)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	if replicas == nil {
		if _, ok := p.groups[id]; !ok {
			return fmt.Errorf("multicast group %d: %w", id, target.ErrNotFound)
		}
		delete(p.groups, id)
		return nil
	}
	p.groups[id] = slices.Clone(replicas)
	return nil
}

// MulticastGroups implements [target.Pipeline].
func (p *Pipeline) MulticastGroups() map[uint32][]target.Replica {
	p.cp.Lock()
	defer p.cp.Unlock()
	out := maps.Clone(p.groups)
	for id, r := range out {
		out[id] = slices.Clone(r)
	}
	return out
}

// SetCloneSession implements [target.Pipeline]. Sessions are 0 to 32767, as in BMv2.
func (p *Pipeline) SetCloneSession(id uint32, s *target.CloneSession) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	if id > 0x7fff {
		return fmt.Errorf("clone session %d: %w", id, target.ErrOutOfRange)
	}
	if s != nil && s.TruncateTo < 0 {
		return fmt.Errorf("clone session %d: cut to %d bytes: %w", id, s.TruncateTo,
			target.ErrInvalid)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	if s == nil {
		if _, ok := p.sessions[id]; !ok {
			return fmt.Errorf("clone session %d: %w", id, target.ErrNotFound)
		}
		delete(p.sessions, id)
		return nil
	}
	c := *s
	c.Replicas = slices.Clone(s.Replicas)
	p.sessions[id] = c
	return nil
}

// CloneSessions implements [target.Pipeline].
func (p *Pipeline) CloneSessions() map[uint32]target.CloneSession {
	p.cp.Lock()
	defer p.cp.Unlock()
	out := maps.Clone(p.sessions)
	for id, s := range out {
		s.Replicas = slices.Clone(s.Replicas)
		out[id] = s
	}
	return out
}

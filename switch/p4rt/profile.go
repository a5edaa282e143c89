package p4rt

import (
	"slices"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/target"
)

// profileState is what the server keeps of an action profile or selector beside the engine.
type profileState struct {
	members map[uint32]*p4v1.ActionProfileMember
	groups  map[uint32]*p4v1.ActionProfileGroup
	// How often a member or group is referred to, by entries and (members) by groups: while it is,
	// it cannot be deleted.
	memberUses, groupUses map[uint32]int
	// A selector is programmed with one shots or with members and groups, never with both (section
	// 9.2.3).
	oneShots int
	byID     int // entries that name a member or group
	hidden   map[uint32]bool
}

func newProfileState() *profileState {
	return &profileState{
		members:    map[uint32]*p4v1.ActionProfileMember{},
		groups:     map[uint32]*p4v1.ActionProfileGroup{},
		memberUses: map[uint32]int{}, groupUses: map[uint32]int{}, hidden: map[uint32]bool{},
	}
}

// oneShot is a table entry's action set and the members and group that stand for it in the engine.
type oneShot struct {
	set     *p4v1.ActionProfileActionSet
	group   uint32
	members []uint32
}

func (c *config) profile(id uint32) (*profile, *profileState, error) {
	if id == 0 {
		return nil, nil, invalid("the action profile id is missing")
	}
	p := c.profiles[id]
	if p == nil {
		return nil, nil, c.unknown("action profile", id)
	}
	return p, c.profileStates[id], nil
}

func (c *config) writeMember(typ p4v1.Update_Type, m *p4v1.ActionProfileMember) error {
	p, st, err := c.profile(m.ActionProfileId)
	if err != nil {
		return err
	}
	if m.MemberId == 0 {
		return invalid("a member of action profile %s needs an id above 0", p.name)
	}
	exists := st.members[m.MemberId] != nil
	if typ == p4v1.Update_DELETE {
		switch {
		case !exists:
			return fail(codes.NotFound, "action profile %s has no member %d", p.name, m.MemberId)
		case st.memberUses[m.MemberId] > 0:
			return fail(codes.FailedPrecondition,
				"member %d of action profile %s is in use by %d groups or entries", m.MemberId,
				p.name, st.memberUses[m.MemberId])
		}
		if err := c.pipe.DeleteMember(p.name, m.MemberId); err != nil {
			return err
		}
		delete(st.members, m.MemberId)
		return nil
	}
	if typ == p4v1.Update_INSERT && st.oneShots > 0 {
		return invalid(
			"action selector %s is programmed with one shots; it cannot have members too", p.name)
	}
	if typ == p4v1.Update_INSERT && exists || st.hidden[m.MemberId] {
		return fail(codes.AlreadyExists, "action profile %s has a member %d", p.name, m.MemberId)
	}
	if typ == p4v1.Update_MODIFY && !exists {
		return fail(codes.NotFound, "action profile %s has no member %d", p.name, m.MemberId)
	}
	call, err := c.memberCall(p, m.Action)
	if err != nil {
		return err
	}
	if typ == p4v1.Update_INSERT && p.info.Size > 0 && int64(len(st.members)) >= p.info.Size {
		return fail(codes.ResourceExhausted, "action profile %s is full: it has %d members", p.name,
			p.info.Size)
	}
	if err := c.pipe.SetMember(p.name, m.MemberId, call, typ == p4v1.Update_INSERT); err != nil {
		return err
	}
	st.members[m.MemberId] = &p4v1.ActionProfileMember{ActionProfileId: p.id, MemberId: m.MemberId,
		Action: c.actionOf(call)}
	return nil
}

// memberCall checks an action for a member.
func (c *config) memberCall(p *profile, a *p4v1.Action) (*target.ActionCall, error) {
	if a == nil {
		return nil, invalid("a member of action profile %s needs an action", p.name)
	}
	if !p.allows(a.ActionId) {
		return nil,
			invalid("action %d is not one for the entries of the tables that use action profile %s",
				a.ActionId, p.name)
	}
	return c.call(a)
}

func (c *config) writeGroup(typ p4v1.Update_Type, g *p4v1.ActionProfileGroup) error {
	p, st, err := c.profile(g.ActionProfileId)
	if err != nil {
		return err
	}
	if !p.info.WithSelector {
		return invalid("action profile %s has no selector, so it has no groups", p.name)
	}
	if g.GroupId == 0 {
		return invalid("a group of action selector %s needs an id above 0", p.name)
	}
	old := st.groups[g.GroupId]
	if typ == p4v1.Update_DELETE {
		switch {
		case old == nil:
			return fail(codes.NotFound, "action selector %s has no group %d", p.name, g.GroupId)
		case st.groupUses[g.GroupId] > 0:
			return fail(codes.FailedPrecondition,
				"group %d of action selector %s is in use by %d entries", g.GroupId, p.name,
				st.groupUses[g.GroupId])
		}
		if err := c.pipe.DeleteGroup(p.name, g.GroupId); err != nil {
			return err
		}
		st.countGroup(old, -1)
		delete(st.groups, g.GroupId)
		return nil
	}
	switch {
	case typ == p4v1.Update_INSERT && st.oneShots > 0:
		return invalid("action selector %s is programmed with one shots; it cannot have groups too",
			p.name)
	case typ == p4v1.Update_INSERT && old != nil:
		return fail(codes.AlreadyExists, "action selector %s has a group %d", p.name, g.GroupId)
	case typ == p4v1.Update_MODIFY && old == nil:
		return fail(codes.NotFound, "action selector %s has no group %d", p.name, g.GroupId)
	case typ == p4v1.Update_MODIFY && old.MaxSize != g.MaxSize:
		return invalid(
			"max_size of group %d of action selector %s was set to %d and cannot become %d",
			g.GroupId, p.name, old.MaxSize, g.MaxSize)
	}
	if err := p.checkMaxSize(g.MaxSize); err != nil {
		return err
	}
	var members []target.WeightedMember
	var weights []int32
	for _, m := range g.Members {
		if err := checkWatch(m.GetWatchKind() != nil); err != nil {
			return err
		}
		if st.members[m.MemberId] == nil {
			return fail(codes.NotFound, "action selector %s has no member %d", p.name, m.MemberId)
		}
		if slices.ContainsFunc(members,
			func(o target.WeightedMember) bool { return o.Member == m.MemberId }) {
			return invalid("member %d is in the group twice; use its weight", m.MemberId)
		}
		members = append(members, target.WeightedMember{Member: m.MemberId, Weight: int(m.Weight)})
		weights = append(weights, m.Weight)
	}
	limit := int64(g.MaxSize)
	if err := p.checkWeights(weights, limit, codes.ResourceExhausted); err != nil {
		return err
	}
	if err := c.pipe.SetGroup(p.name, g.GroupId, members, typ == p4v1.Update_INSERT); err != nil {
		return err
	}
	if old != nil {
		st.countGroup(old, -1)
	}
	kept := proto.Clone(g).(*p4v1.ActionProfileGroup)
	st.groups[g.GroupId] = kept
	st.countGroup(kept, 1)
	return nil
}

func (st *profileState) countGroup(g *p4v1.ActionProfileGroup, by int) {
	for _, m := range g.Members {
		st.memberUses[m.MemberId] += by
	}
}

// checkMaxSize applies the rules on max_size (section 9.2.2).
func (p *profile) checkMaxSize(size int32) error {
	switch most := p.info.MaxGroupSize; {
	case size < 0:
		return invalid("max_size %d is negative", size)
	case most > 0 && size > most:
		return invalid("max_size %d exceeds the max_group_size %d of action selector %s", size,
			most, p.name)
	}
	return nil
}

// checkWeights checks the weights of a group or action set. limit is the group's own, 0 for none;
// to exceed it gives the code over.
func (p *profile) checkWeights(weights []int32, limit int64, over codes.Code) error {
	if limit == 0 {
		limit = int64(p.info.MaxGroupSize)
	}
	members, isMembers := p.info.SelectorSizeSemantics.(*p4cfg.ActionProfile_SumOfMembers_)
	var sum int64
	for _, w := range weights {
		if w <= 0 {
			return invalid("a weight is at least 1, not %d", w)
		}
		if isMembers {
			if most := members.SumOfMembers.GetMaxMemberWeight(); most > 0 && w > most {
				return invalid(
					"the weight %d exceeds the max_member_weight %d of action selector %s", w, most,
					p.name)
			}
			sum++
		} else {
			sum += int64(w)
		}
	}
	if limit > 0 && sum > limit {
		return fail(over, "a group of size %d exceeds the limit of %d of action selector %s", sum,
			limit, p.name)
	}
	return nil
}

func checkWatch(set bool) error {
	if set {
		return fail(codes.Unimplemented,
			"watch ports (watch_port, watch) are not implemented by this target")
	}
	return nil
}

// setIndirect fills in what an entry of an indirect table refers to.
func (c *config) setIndirect(t *table, a *p4v1.TableAction, e *target.TableEntry) (*oneShot,
	error) {
	p, st := t.profile, c.profileStates[t.profile.id]
	switch v := a.Type.(type) {
	case *p4v1.TableAction_ActionProfileMemberId:
		if st.oneShots > 0 {
			return nil,
				invalid(
					"action selector %s is programmed with one shots; table %s cannot refer to members too", p.name, t.name)
		}
		if st.members[v.ActionProfileMemberId] == nil {
			return nil, fail(codes.NotFound, "action profile %s has no member %d", p.name,
				v.ActionProfileMemberId)
		}
		e.Member = &v.ActionProfileMemberId
		return nil, nil
	case *p4v1.TableAction_ActionProfileGroupId:
		if !p.info.WithSelector {
			return nil,
				invalid("action profile %s of table %s has no selector, so it has no groups",
					p.name, t.name)
		}
		if st.oneShots > 0 {
			return nil,
				invalid(
					"action selector %s is programmed with one shots; table %s cannot refer to groups too", p.name, t.name)
		}
		if st.groups[v.ActionProfileGroupId] == nil {
			return nil, fail(codes.NotFound, "action selector %s has no group %d", p.name,
				v.ActionProfileGroupId)
		}
		e.Group = &v.ActionProfileGroupId
		return nil, nil
	case *p4v1.TableAction_ActionProfileActionSet:
		if !p.info.WithSelector {
			return nil,
				invalid(
					"action profile %s of table %s has no selector, so an entry cannot have an action set", p.name, t.name)
		}
		if st.byID > 0 || len(st.members) > 0 || len(st.groups) > 0 {
			return nil,
				invalid(
					"action selector %s is programmed with members and groups; table %s cannot use one shots too", p.name, t.name)
		}
		return c.makeOneShot(p, st, v.ActionProfileActionSet, e)
	default:
		return nil,
			invalid(
				"table %s is implemented by action profile %s: the entry needs a member, a group or an action set, not %s", t.name, p.name, oneofName(a))
	}
}

// makeOneShot creates the members and the group that an action set stands for.
func (c *config) makeOneShot(p *profile, st *profileState, set *p4v1.ActionProfileActionSet,
	e *target.TableEntry) (*oneShot, error) {
	var weights []int32
	var calls []*target.ActionCall
	kept := &p4v1.ActionProfileActionSet{}
	for _, a := range set.ActionProfileActions {
		if err := checkWatch(a.GetWatchKind() != nil); err != nil {
			return nil, err
		}
		call, err := c.memberCall(p, a.Action)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
		weights = append(weights, a.Weight)
		kept.ActionProfileActions = append(kept.ActionProfileActions,
			&p4v1.ActionProfileAction{Action: c.actionOf(call), Weight: a.Weight})
	}
	if err := p.checkWeights(weights, 0, codes.InvalidArgument); err != nil {
		return nil, err
	}
	shot := &oneShot{set: kept}
	undo := func(err error) (*oneShot, error) {
		c.forgetOneShot(p, st, shot)
		return nil, err
	}
	if p.info.Size > 0 && int64(len(st.hidden)+len(calls)) > p.info.Size {
		return nil, fail(codes.ResourceExhausted,
			"action selector %s is full: of its %d members %d are in use, and %d are needed",
			p.name, p.info.Size, len(st.hidden), len(calls))
	}
	var members []target.WeightedMember
	id := uint32(0)
	for i, call := range calls {
		for id++; st.hidden[id]; id++ {
			continue
		}
		if err := c.pipe.SetMember(p.name, id, call, true); err != nil {
			return undo(err)
		}
		st.hidden[id] = true
		shot.members = append(shot.members, id)
		members = append(members, target.WeightedMember{Member: id, Weight: int(weights[i])})
	}
	group := uint32(1)
	for st.groupUses[group] > 0 {
		group++
	}
	if err := c.pipe.SetGroup(p.name, group, members, true); err != nil {
		return undo(err)
	}
	shot.group = group
	st.groupUses[group]++
	st.oneShots++
	e.Group = &shot.group
	return shot, nil
}

// dropOneShot removes what makeOneShot created.
func (c *config) dropOneShot(t *table, shot *oneShot) {
	if shot == nil {
		return
	}
	st := c.profileStates[t.profile.id]
	c.forgetOneShot(t.profile, st, shot)
	st.oneShots--
}

func (c *config) forgetOneShot(p *profile, st *profileState, shot *oneShot) {
	if shot.group != 0 {
		_ = c.pipe.DeleteGroup(p.name, shot.group)
		delete(st.groupUses, shot.group)
	}
	for _, id := range shot.members {
		_ = c.pipe.DeleteMember(p.name, id)
		delete(st.hidden, id)
	}
}

// refer counts the references of an entry to members and groups.
func (c *config) refer(t *table, e *target.TableEntry, shot *oneShot, by int) {
	if t.profile == nil || shot != nil {
		return
	}
	st := c.profileStates[t.profile.id]
	switch {
	case e.Member != nil:
		st.memberUses[*e.Member] += by
		st.byID += by
	case e.Group != nil:
		st.groupUses[*e.Group] += by
		st.byID += by
	}
}

func (c *config) readMembers(q *p4v1.ActionProfileMember, emit func(*p4v1.Entity)) error {
	return c.eachProfile(q.ActionProfileId, func(p *profile, st *profileState) error {
		if q.ActionProfileId != 0 && q.MemberId != 0 && st.members[q.MemberId] == nil {
			return fail(codes.NotFound, "action profile %s has no member %d", p.name, q.MemberId)
		}
		for _, id := range sortedKeys(st.members) {
			if q.MemberId == 0 || q.MemberId == id {
				emit(&p4v1.Entity{Entity: &p4v1.Entity_ActionProfileMember{
					ActionProfileMember: st.members[id]}})
			}
		}
		return nil
	})
}

func (c *config) readGroups(q *p4v1.ActionProfileGroup, emit func(*p4v1.Entity)) error {
	return c.eachProfile(q.ActionProfileId, func(p *profile, st *profileState) error {
		if q.ActionProfileId != 0 && q.GroupId != 0 && st.groups[q.GroupId] == nil {
			return fail(codes.NotFound, "action profile %s has no group %d", p.name, q.GroupId)
		}
		for _, id := range sortedKeys(st.groups) {
			if q.GroupId == 0 || q.GroupId == id {
				emit(&p4v1.Entity{Entity: &p4v1.Entity_ActionProfileGroup{
					ActionProfileGroup: st.groups[id]}})
			}
		}
		return nil
	})
}

// eachProfile calls f with the profile of that id, or with all if it is 0.
func (c *config) eachProfile(id uint32, f func(*profile, *profileState) error) error {
	if _, ok := c.leftOut[id]; ok {
		return nil
	}
	if id != 0 {
		p, st, err := c.profile(id)
		if err != nil {
			return err
		}
		return f(p, st)
	}
	for _, p := range c.profileOrder {
		if err := f(p, c.profileStates[p.id]); err != nil {
			return err
		}
	}
	return nil
}

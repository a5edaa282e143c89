package p4rtserver

import (
	"slices"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// actionProfileState is the data that the server stores about an action profile or selector in
// addition to the engine's data.
type actionProfileState struct {
	members map[uint32]*p4v1.ActionProfileMember
	groups  map[uint32]*p4v1.ActionProfileGroup
	// The number of entries that refer to each group, and of entries and groups that refer to each
	// member. A member or group cannot be deleted while something refers to it.
	memberUses, groupUses map[uint32]int
	// The number of one-shot action sets. A selector is programmed either with one-shot action sets
	// or with members and groups (section 9.2.3).
	oneShots int
	byID     int // number of entries that name a member or group
	hidden   map[uint32]bool
}

func newActionProfileState() *actionProfileState {
	return &actionProfileState{
		members:    map[uint32]*p4v1.ActionProfileMember{},
		groups:     map[uint32]*p4v1.ActionProfileGroup{},
		memberUses: map[uint32]int{}, groupUses: map[uint32]int{}, hidden: map[uint32]bool{},
	}
}

// oneShot is the action set of a table entry, with the members and the group that implement the
// action set in the engine.
type oneShot struct {
	set     *p4v1.ActionProfileActionSet
	group   uint32
	members []uint32
}

func (c *config) actionProfile(id uint32) (*translate.ActionProfile, *actionProfileState, error) {
	if id == 0 {
		return nil, nil, translate.Invalidf("the action profile id is missing")
	}
	p := c.ActionProfiles[id]
	if p == nil {
		return nil, nil, c.Unknown("action profile", id)
	}
	return p, c.actionProfileStates[id], nil
}

func (c *config) writeMember(typ p4v1.Update_Type, m *p4v1.ActionProfileMember) error {
	p, st, err := c.actionProfile(m.ActionProfileId)
	if err != nil {
		return err
	}
	if m.MemberId == 0 {
		return translate.Invalidf("a member of action profile %s needs an id above 0", p.Name)
	}
	exists := st.members[m.MemberId] != nil
	if typ == p4v1.Update_DELETE {
		switch {
		case !exists:
			return translate.Errorf(codes.NotFound, "action profile %s has no member %d", p.Name, m.MemberId)
		case st.memberUses[m.MemberId] > 0:
			return translate.Errorf(codes.FailedPrecondition,
				"member %d of action profile %s is in use by %d groups or entries", m.MemberId,
				p.Name, st.memberUses[m.MemberId])
		}
		if err := c.pipe.DeleteMember(p.Name, m.MemberId); err != nil {
			return err
		}
		delete(st.members, m.MemberId)
		return nil
	}
	if typ == p4v1.Update_INSERT && st.oneShots > 0 {
		return translate.Invalidf(
			"action selector %s is programmed with one shots; it cannot have members too", p.Name)
	}
	if typ == p4v1.Update_INSERT && exists || st.hidden[m.MemberId] {
		return translate.Errorf(codes.AlreadyExists, "action profile %s has a member %d", p.Name, m.MemberId)
	}
	if typ == p4v1.Update_MODIFY && !exists {
		return translate.Errorf(codes.NotFound, "action profile %s has no member %d", p.Name, m.MemberId)
	}
	call, err := c.memberCall(p, m.Action)
	if err != nil {
		return err
	}
	if typ == p4v1.Update_INSERT && p.Info.Size > 0 && int64(len(st.members)) >= p.Info.Size {
		return translate.Errorf(codes.ResourceExhausted, "action profile %s is full: it has %d members", p.Name,
			p.Info.Size)
	}
	if err := c.pipe.SetMember(p.Name, m.MemberId, call, typ == p4v1.Update_INSERT); err != nil {
		return err
	}
	st.members[m.MemberId] = &p4v1.ActionProfileMember{ActionProfileId: p.ID, MemberId: m.MemberId,
		Action: c.ActionOf(call)}
	return nil
}

// memberCall checks and converts an action for a member.
func (c *config) memberCall(p *translate.ActionProfile, a *p4v1.Action) (*target.ActionCall, error) {
	if a == nil {
		return nil, translate.Invalidf("a member of action profile %s needs an action", p.Name)
	}
	if !p.Allows(a.ActionId) {
		return nil,
			translate.Invalidf("action %d is not one for the entries of the tables that use action profile %s",
				a.ActionId, p.Name)
	}
	return c.Call(a)
}

func (c *config) writeGroup(typ p4v1.Update_Type, g *p4v1.ActionProfileGroup) error {
	p, st, err := c.actionProfile(g.ActionProfileId)
	if err != nil {
		return err
	}
	if !p.Info.WithSelector {
		return translate.Invalidf("action profile %s has no selector, so it has no groups", p.Name)
	}
	if g.GroupId == 0 {
		return translate.Invalidf("a group of action selector %s needs an id above 0", p.Name)
	}
	old := st.groups[g.GroupId]
	if typ == p4v1.Update_DELETE {
		switch {
		case old == nil:
			return translate.Errorf(codes.NotFound, "action selector %s has no group %d", p.Name, g.GroupId)
		case st.groupUses[g.GroupId] > 0:
			return translate.Errorf(codes.FailedPrecondition,
				"group %d of action selector %s is in use by %d entries", g.GroupId, p.Name,
				st.groupUses[g.GroupId])
		}
		if err := c.deleteGroup(p, g.GroupId); err != nil {
			return err
		}
		st.countGroup(old, -1)
		delete(st.groups, g.GroupId)
		return nil
	}
	switch {
	case typ == p4v1.Update_INSERT && st.oneShots > 0:
		return translate.Invalidf("action selector %s is programmed with one shots; it cannot have groups too",
			p.Name)
	case typ == p4v1.Update_INSERT && old != nil:
		return translate.Errorf(codes.AlreadyExists, "action selector %s has a group %d", p.Name, g.GroupId)
	case typ == p4v1.Update_MODIFY && old == nil:
		return translate.Errorf(codes.NotFound, "action selector %s has no group %d", p.Name, g.GroupId)
	case typ == p4v1.Update_MODIFY && old.MaxSize != g.MaxSize:
		return translate.Invalidf(
			"max_size of group %d of action selector %s was set to %d and cannot become %d",
			g.GroupId, p.Name, old.MaxSize, g.MaxSize)
	}
	if err := p.CheckMaxSize(g.MaxSize); err != nil {
		return err
	}
	var members []watchedMember
	var weights []int32
	ports := sync.OnceValue(c.server.livePorts)
	kept := proto.CloneOf(g)
	for _, m := range kept.Members {
		if st.members[m.MemberId] == nil {
			return translate.Errorf(codes.NotFound, "action selector %s has no member %d", p.Name, m.MemberId)
		}
		if slices.ContainsFunc(members,
			func(o watchedMember) bool { return o.Member == m.MemberId }) {
			return translate.Invalidf("member %d is in the group twice; use its weight", m.MemberId)
		}
		to := watchedMember{WeightedMember: p.Weighted(m.MemberId, m.Weight)}
		switch w := m.WatchKind.(type) {
		case *p4v1.ActionProfileGroup_Member_WatchPort:
			w.WatchPort, err = c.watch(&to, w.WatchPort, ports)
		case *p4v1.ActionProfileGroup_Member_Watch:
			_, err = c.watch(&to, oldWatch(w.Watch), ports)
		}
		if err != nil {
			return err
		}
		members = append(members, to)
		weights = append(weights, m.Weight)
	}
	limit := int64(g.MaxSize)
	err = p.CheckWeights(weights, limit, p.SumOfMembers(), codes.ResourceExhausted)
	if err != nil {
		return err
	}
	if err := c.setGroup(p, g.GroupId, members, typ == p4v1.Update_INSERT); err != nil {
		return err
	}
	if old != nil {
		st.countGroup(old, -1)
	}
	st.groups[g.GroupId] = kept
	st.countGroup(kept, 1)
	return nil
}

func (st *actionProfileState) countGroup(g *p4v1.ActionProfileGroup, by int) {
	for _, m := range g.Members {
		st.memberUses[m.MemberId] += by
	}
}

// setIndirect sets the member, group or action set to which an entry of an indirect table refers.
func (c *config) setIndirect(t *translate.Table, a *p4v1.TableAction, e *target.TableEntry) (*oneShot,
	error) {
	p, st := t.ActionProfile, c.actionProfileStates[t.ActionProfile.ID]
	switch v := a.Type.(type) {
	case *p4v1.TableAction_ActionProfileMemberId:
		if st.oneShots > 0 {
			return nil,
				translate.Invalidf(
					"action selector %s is programmed with one shots; table %s cannot refer to members too", p.Name, t.Name)
		}
		if st.members[v.ActionProfileMemberId] == nil {
			return nil, translate.Errorf(codes.NotFound, "action profile %s has no member %d", p.Name,
				v.ActionProfileMemberId)
		}
		e.Member = &v.ActionProfileMemberId
		return nil, nil
	case *p4v1.TableAction_ActionProfileGroupId:
		if !p.Info.WithSelector {
			return nil,
				translate.Invalidf("action profile %s of table %s has no selector, so it has no groups",
					p.Name, t.Name)
		}
		if st.oneShots > 0 {
			return nil,
				translate.Invalidf(
					"action selector %s is programmed with one shots; table %s cannot refer to groups too", p.Name, t.Name)
		}
		if st.groups[v.ActionProfileGroupId] == nil {
			return nil, translate.Errorf(codes.NotFound, "action selector %s has no group %d", p.Name,
				v.ActionProfileGroupId)
		}
		e.Group = &v.ActionProfileGroupId
		return nil, nil
	case *p4v1.TableAction_ActionProfileActionSet:
		if !p.Info.WithSelector {
			return nil,
				translate.Invalidf(
					"action profile %s of table %s has no selector, so an entry cannot have an action set", p.Name, t.Name)
		}
		if st.byID > 0 || len(st.members) > 0 || len(st.groups) > 0 {
			return nil,
				translate.Invalidf(
					"action selector %s is programmed with members and groups; table %s cannot use one shots too", p.Name, t.Name)
		}
		return c.makeOneShot(p, st, v.ActionProfileActionSet, e)
	default:
		return nil,
			translate.Invalidf(
				"table %s is implemented by action profile %s: the entry needs a member, a group or an action set, not %s", t.Name, p.Name, translate.OneofName(a))
	}
}

// makeOneShot creates the members and the group that implement an action set.
func (c *config) makeOneShot(p *translate.ActionProfile, st *actionProfileState, set *p4v1.ActionProfileActionSet,
	e *target.TableEntry) (*oneShot, error) {
	sumOfMembers, err := p.SelectionOf(set)
	if err != nil {
		return nil, err
	}
	var weights []int32
	var calls []*target.ActionCall
	var members []watchedMember
	ports := sync.OnceValue(c.server.livePorts)
	kept := &p4v1.ActionProfileActionSet{ActionSelectionMode: set.ActionSelectionMode,
		SizeSemantics: set.SizeSemantics}
	for _, a := range set.ActionProfileActions {
		call, err := c.memberCall(p, a.Action)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
		weights = append(weights, a.Weight)
		m := watchedMember{WeightedMember: p.Weighted(0, a.Weight)}
		k := &p4v1.ActionProfileAction{Action: c.ActionOf(call), Weight: a.Weight}
		switch w := a.WatchKind.(type) {
		case *p4v1.ActionProfileAction_WatchPort:
			var port []byte
			port, err = c.watch(&m, w.WatchPort, ports)
			k.WatchKind = &p4v1.ActionProfileAction_WatchPort{WatchPort: port}
		case *p4v1.ActionProfileAction_Watch:
			_, err = c.watch(&m, oldWatch(w.Watch), ports)
			k.WatchKind = w
		}
		if err != nil {
			return nil, err
		}
		members = append(members, m)
		kept.ActionProfileActions = append(kept.ActionProfileActions, k)
	}
	if err := p.CheckWeights(weights, 0, sumOfMembers, codes.InvalidArgument); err != nil {
		return nil, err
	}
	shot := &oneShot{set: kept}
	undo := func(err error) (*oneShot, error) {
		c.forgetOneShot(p, st, shot)
		return nil, err
	}
	if p.Info.Size > 0 && int64(len(st.hidden)+len(calls)) > p.Info.Size {
		return nil, translate.Errorf(codes.ResourceExhausted,
			"action selector %s is full: of its %d members %d are in use, and %d are needed",
			p.Name, p.Info.Size, len(st.hidden), len(calls))
	}
	id := uint32(0)
	for i, call := range calls {
		for id++; st.hidden[id]; id++ {
			continue
		}
		if err := c.pipe.SetMember(p.Name, id, call, true); err != nil {
			return undo(err)
		}
		st.hidden[id] = true
		shot.members = append(shot.members, id)
		members[i].Member = id
	}
	group := uint32(1)
	for st.groupUses[group] > 0 {
		group++
	}
	if err := c.setGroup(p, group, members, true); err != nil {
		return undo(err)
	}
	shot.group = group
	st.groupUses[group]++
	st.oneShots++
	e.Group = &shot.group
	return shot, nil
}

// dropOneShot deletes what makeOneShot created.
func (c *config) dropOneShot(t *translate.Table, shot *oneShot) {
	if shot == nil {
		return
	}
	st := c.actionProfileStates[t.ActionProfile.ID]
	c.forgetOneShot(t.ActionProfile, st, shot)
	st.oneShots--
}

func (c *config) forgetOneShot(p *translate.ActionProfile, st *actionProfileState, shot *oneShot) {
	if shot.group != 0 {
		_ = c.deleteGroup(p, shot.group)
		delete(st.groupUses, shot.group)
	}
	for _, id := range shot.members {
		_ = c.pipe.DeleteMember(p.Name, id)
		delete(st.hidden, id)
	}
}

// refer adds by to the reference counts of the members and groups to which an entry refers.
func (c *config) refer(t *translate.Table, e *target.TableEntry, shot *oneShot, by int) {
	if t.ActionProfile == nil || shot != nil {
		return
	}
	st := c.actionProfileStates[t.ActionProfile.ID]
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
	return c.eachActionProfile(q.ActionProfileId, func(p *translate.ActionProfile, st *actionProfileState) error {
		if q.ActionProfileId != 0 && q.MemberId != 0 && st.members[q.MemberId] == nil {
			return translate.Errorf(codes.NotFound, "action profile %s has no member %d", p.Name, q.MemberId)
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
	return c.eachActionProfile(q.ActionProfileId, func(p *translate.ActionProfile, st *actionProfileState) error {
		if q.ActionProfileId != 0 && q.GroupId != 0 && st.groups[q.GroupId] == nil {
			return translate.Errorf(codes.NotFound, "action profile %s has no group %d", p.Name, q.GroupId)
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

// eachActionProfile calls f with the action profile that has this id. If the id is 0, it calls f
// with all action profiles.
func (c *config) eachActionProfile(id uint32, f func(*translate.ActionProfile, *actionProfileState) error) error {
	if _, ok := c.LeftOut[id]; ok {
		return nil
	}
	if id != 0 {
		p, st, err := c.actionProfile(id)
		if err != nil {
			return err
		}
		return f(p, st)
	}
	for _, p := range c.ProfileOrder {
		if err := f(p, c.actionProfileStates[p.ID]); err != nil {
			return err
		}
	}
	return nil
}

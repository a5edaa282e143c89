package bmthrift

import (
	"context"
	"slices"

	"github.com/netcraq/netcraq/switch/bmthrift/gen/standard"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Ids of members and groups begin at 1, as P4Runtime has it, handles at 0, as BMv2 has it.

func idOf(h standard.Handle) uint32      { return uint32(h) + 1 }
func handleOf(id uint32) standard.Handle { return standard.Handle(id - 1) }

// profile finds an action profile, and a table with its actions.
func (h *handler) profile(name string) (*bmv2json.ActionProfile, error) {
	p := h.prog.Profile(name)
	if p == nil {
		return nil, tableError(standard.TableCode_INVALID_ACTION_PROFILE_NAME,
			"there is no action profile %q", name)
	}
	return p, nil
}

// freeID is the smallest id that is not in use.
func freeID[V any](used map[uint32]V) uint32 {
	id := uint32(1)
	for {
		if _, ok := used[id]; !ok {
			return id
		}
		id++
	}
}

func memberCall(pr *bmv2json.ActionProfile, action string,
	data standard.ActionData) (*target.ActionCall, error) {
	if len(pr.Tables) == 0 {
		return nil, tableError(standard.TableCode_INVALID_ACTION_NAME,
			"no table uses action profile %s, so it has no actions", pr.Name)
	}
	return callOf(pr.Tables[0], action, data)
}

// BmMtActProfAddMember implements the call of that name.
func (h *handler) BmMtActProfAddMember(_ context.Context, cxt int32, profile, action string,
	data standard.ActionData) (handle standard.Handle, err error) {
	err = h.write(cxt, func(p target.Pipeline) error {
		pr, err := h.profile(profile)
		if err != nil {
			return err
		}
		call, err := memberCall(pr, action, data)
		if err != nil {
			return err
		}
		members, err := p.Members(profile)
		if err != nil {
			return err
		}
		id := freeID(members)
		handle = handleOf(id)
		return tableFailure(p.SetMember(profile, id, call, true),
			standard.TableCode_INVALID_MBR_HANDLE, standard.TableCode_ERROR)
	})
	return handle, h.refused("bm_mt_act_prof_add_member", err)
}

// BmMtActProfModifyMember implements the call of that name.
func (h *handler) BmMtActProfModifyMember(_ context.Context, cxt int32, profile string,
	member standard.Handle, action string, data standard.ActionData) error {
	return h.refused("bm_mt_act_prof_modify_member", h.write(cxt, func(p target.Pipeline) error {
		pr, err := h.profile(profile)
		if err != nil {
			return err
		}
		call, err := memberCall(pr, action, data)
		if err != nil {
			return err
		}
		return tableFailure(p.SetMember(profile, idOf(member), call, false),
			standard.TableCode_INVALID_MBR_HANDLE, standard.TableCode_ERROR)
	}))
}

// BmMtActProfDeleteMember implements the call of that name.
func (h *handler) BmMtActProfDeleteMember(_ context.Context, cxt int32, profile string,
	member standard.Handle) error {
	return h.refused("bm_mt_act_prof_delete_member", h.write(cxt, func(p target.Pipeline) error {
		if _, err := h.profile(profile); err != nil {
			return err
		}
		return tableFailure(p.DeleteMember(profile, idOf(member)),
			standard.TableCode_INVALID_MBR_HANDLE, standard.TableCode_MBR_STILL_USED)
	}))
}

// BmMtActProfCreateGroup implements the call of that name.
func (h *handler) BmMtActProfCreateGroup(_ context.Context, cxt int32,
	profile string) (handle standard.Handle, err error) {
	err = h.write(cxt, func(p target.Pipeline) error {
		groups, err := h.groups(p, profile)
		if err != nil {
			return err
		}
		id := freeID(groups)
		handle = handleOf(id)
		return tableFailure(p.SetGroup(profile, id, []target.WeightedMember{}, true),
			standard.TableCode_INVALID_GRP_HANDLE, standard.TableCode_ERROR)
	})
	return handle, h.refused("bm_mt_act_prof_create_group", err)
}

// groups are the groups of an action selector.
func (h *handler) groups(p target.Pipeline, profile string) (map[uint32][]target.WeightedMember,
	error) {
	pr, err := h.profile(profile)
	if err != nil {
		return nil, err
	}
	if pr.Selector == nil {
		return nil, tableError(standard.TableCode_NO_ACTION_PROFILE_SELECTION,
			"action profile %s has no selector, so it has no groups", profile)
	}
	return p.Groups(profile)
}

// BmMtActProfDeleteGroup implements the call of that name.
func (h *handler) BmMtActProfDeleteGroup(_ context.Context, cxt int32, profile string,
	group standard.Handle) error {
	return h.refused("bm_mt_act_prof_delete_group", h.write(cxt, func(p target.Pipeline) error {
		if _, err := h.groups(p, profile); err != nil {
			return err
		}
		return tableFailure(p.DeleteGroup(profile, idOf(group)),
			standard.TableCode_INVALID_GRP_HANDLE, standard.TableCode_GRP_STILL_USED)
	}))
}

// regroup changes the members of a group.
func (h *handler) regroup(call string, cxt int32, profile string, member, group standard.Handle,
	change func([]target.WeightedMember, int) ([]target.WeightedMember, error)) error {
	return h.refused(call, h.write(cxt, func(p target.Pipeline) error {
		groups, err := h.groups(p, profile)
		if err != nil {
			return err
		}
		members, err := p.Members(profile)
		if err != nil {
			return err
		}
		if _, ok := members[idOf(member)]; !ok {
			return tableError(standard.TableCode_INVALID_MBR_HANDLE,
				"action profile %s has no member with handle %d", profile, member)
		}
		now, ok := groups[idOf(group)]
		if !ok {
			return tableError(standard.TableCode_INVALID_GRP_HANDLE,
				"action profile %s has no group with handle %d", profile, group)
		}
		next, err := change(now, slices.IndexFunc(now,
			func(m target.WeightedMember) bool { return m.Member == idOf(member) }))
		if err != nil {
			return err
		}
		return tableFailure(p.SetGroup(profile, idOf(group), next, false),
			standard.TableCode_INVALID_MBR_HANDLE, standard.TableCode_ERROR)
	}))
}

// BmMtActProfAddMemberToGroup implements the call of that name.
func (h *handler) BmMtActProfAddMemberToGroup(_ context.Context, cxt int32, profile string,
	member, group standard.Handle) error {
	return h.regroup("bm_mt_act_prof_add_member_to_group", cxt, profile, member, group,
		func(now []target.WeightedMember, at int) ([]target.WeightedMember, error) {
			if at >= 0 {
				return nil, tableError(standard.TableCode_MBR_ALREADY_IN_GRP,
					"member %d is in group %d of action profile %s", member, group, profile)
			}
			return append(now, target.WeightedMember{Member: idOf(member), Weight: 1}), nil
		})
}

// BmMtActProfRemoveMemberFromGroup implements the call of that name.
func (h *handler) BmMtActProfRemoveMemberFromGroup(_ context.Context, cxt int32, profile string,
	member, group standard.Handle) error {
	return h.regroup("bm_mt_act_prof_remove_member_from_group", cxt, profile, member, group,
		func(now []target.WeightedMember, at int) ([]target.WeightedMember, error) {
			if at < 0 {
				return nil, tableError(standard.TableCode_MBR_NOT_IN_GRP,
					"member %d is not in group %d of action profile %s", member, group, profile)
			}
			return slices.Delete(now, at, at+1), nil
		})
}

// BmMtActProfGetMembers implements the call of that name.
func (h *handler) BmMtActProfGetMembers(_ context.Context, cxt int32,
	profile string) ([]*standard.Member, error) {
	out := []*standard.Member{}
	err := h.read(cxt, func(p target.Pipeline) error {
		if _, err := h.profile(profile); err != nil {
			return err
		}
		members, err := p.Members(profile)
		for id, call := range members {
			out = append(out, &standard.Member{MbrHandle: handleOf(id), ActionName: call.Action,
				ActionData: dataOf(&call)})
		}
		slices.SortFunc(out, func(a, b *standard.Member) int {
			return int(a.MbrHandle) - int(b.MbrHandle)
		})
		return err
	})
	return out, h.refused("bm_mt_act_prof_get_members", err)
}

// BmMtActProfGetMember implements the call of that name.
func (h *handler) BmMtActProfGetMember(ctx context.Context, cxt int32, profile string,
	member standard.Handle) (*standard.Member, error) {
	all, err := h.BmMtActProfGetMembers(ctx, cxt, profile)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.MbrHandle == member {
			return m, nil
		}
	}
	return nil, h.refused("bm_mt_act_prof_get_member",
		tableError(standard.TableCode_INVALID_MBR_HANDLE,
			"action profile %s has no member with handle %d", profile, member))
}

// BmMtActProfGetGroups implements the call of that name.
func (h *handler) BmMtActProfGetGroups(_ context.Context, cxt int32,
	profile string) ([]*standard.Group, error) {
	out := []*standard.Group{}
	err := h.read(cxt, func(p target.Pipeline) error {
		groups, err := h.groups(p, profile)
		for id, members := range groups {
			g := &standard.Group{GrpHandle: handleOf(id), MbrHandles: []standard.Handle{}}
			for _, m := range members {
				g.MbrHandles = append(g.MbrHandles, handleOf(m.Member))
			}
			out = append(out, g)
		}
		slices.SortFunc(out, func(a, b *standard.Group) int {
			return int(a.GrpHandle) - int(b.GrpHandle)
		})
		return err
	})
	return out, h.refused("bm_mt_act_prof_get_groups", err)
}

// BmMtActProfGetGroup implements the call of that name.
func (h *handler) BmMtActProfGetGroup(ctx context.Context, cxt int32, profile string,
	group standard.Handle) (*standard.Group, error) {
	all, err := h.BmMtActProfGetGroups(ctx, cxt, profile)
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		if g.GrpHandle == group {
			return g, nil
		}
	}
	return nil, h.refused("bm_mt_act_prof_get_group",
		tableError(standard.TableCode_INVALID_GRP_HANDLE,
			"action profile %s has no group with handle %d", profile, group))
}

package bmthrift

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// P4Runtime numbers members and groups from 1, while BMv2 numbers their handles from 0.

func idOf(h idl.Handle) uint32      { return uint32(h) + 1 }
func handleOf(id uint32) idl.Handle { return idl.Handle(id - 1) }

// actionProfile finds an action profile of the loaded program by its name.
func (h *handler) actionProfile(name string) (*bmv2json.ActionProfile, error) {
	p := h.prog.ActionProfile(name)
	if p == nil {
		return nil, refusal(idl.TableCodeInvalidActionProfileName,
			"there is no action profile %q", name)
	}
	return p, nil
}

// freeID returns the smallest unused id.
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
	data idl.ActionData) (*target.ActionCall, error) {
	if len(pr.Tables) == 0 {
		return nil, refusal(idl.TableCodeInvalidActionName,
			"no table uses action profile %s, so it has no actions", pr.Name)
	}
	return callOf(pr.Tables[0], action, data)
}

// BmMtActProfAddMember implements the Thrift call of the same name.
func (h *handler) BmMtActProfAddMember(cxt int32, profile, action string,
	data idl.ActionData) (handle idl.Handle, err error) {
	err = h.write(cxt, func(p target.Pipeline) error {
		pr, err := h.actionProfile(profile)
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
			idl.TableCodeInvalidMbrHandle, idl.TableCodeError)
	})
	return handle, err
}

// BmMtActProfModifyMember implements the Thrift call of the same name.
func (h *handler) BmMtActProfModifyMember(cxt int32, profile string,
	member idl.Handle, action string, data idl.ActionData) error {
	return h.write(cxt, func(p target.Pipeline) error {
		pr, err := h.actionProfile(profile)
		if err != nil {
			return err
		}
		call, err := memberCall(pr, action, data)
		if err != nil {
			return err
		}
		return tableFailure(p.SetMember(profile, idOf(member), call, false),
			idl.TableCodeInvalidMbrHandle, idl.TableCodeError)
	})
}

// BmMtActProfDeleteMember implements the Thrift call of the same name.
func (h *handler) BmMtActProfDeleteMember(cxt int32, profile string, member idl.Handle) error {
	return h.write(cxt, func(p target.Pipeline) error {
		if _, err := h.actionProfile(profile); err != nil {
			return err
		}
		return tableFailure(p.DeleteMember(profile, idOf(member)),
			idl.TableCodeInvalidMbrHandle, idl.TableCodeMbrStillUsed)
	})
}

// BmMtActProfCreateGroup implements the Thrift call of the same name.
func (h *handler) BmMtActProfCreateGroup(cxt int32, profile string) (handle idl.Handle, err error) {
	err = h.write(cxt, func(p target.Pipeline) error {
		groups, err := h.groups(p, profile)
		if err != nil {
			return err
		}
		id := freeID(groups)
		handle = handleOf(id)
		return tableFailure(p.SetGroup(profile, id, []target.WeightedMember{}, true),
			idl.TableCodeInvalidGrpHandle, idl.TableCodeError)
	})
	return handle, err
}

// groups returns the groups of an action selector.
func (h *handler) groups(p target.Pipeline, profile string) (map[uint32][]target.WeightedMember,
	error) {
	pr, err := h.actionProfile(profile)
	if err != nil {
		return nil, err
	}
	if pr.Selector == nil {
		return nil, refusal(idl.TableCodeNoActionProfileSelection,
			"action profile %s has no selector, so it has no groups", profile)
	}
	return p.Groups(profile)
}

// BmMtActProfDeleteGroup implements the Thrift call of the same name.
func (h *handler) BmMtActProfDeleteGroup(cxt int32, profile string, group idl.Handle) error {
	return h.write(cxt, func(p target.Pipeline) error {
		if _, err := h.groups(p, profile); err != nil {
			return err
		}
		return tableFailure(p.DeleteGroup(profile, idOf(group)),
			idl.TableCodeInvalidGrpHandle, idl.TableCodeGrpStillUsed)
	})
}

// regroup changes the member list of a group of an action selector.
func (h *handler) regroup(cxt int32, profile string, member, group idl.Handle,
	change func([]target.WeightedMember, int) ([]target.WeightedMember, error)) error {
	return h.write(cxt, func(p target.Pipeline) error {
		groups, err := h.groups(p, profile)
		if err != nil {
			return err
		}
		members, err := p.Members(profile)
		if err != nil {
			return err
		}
		if _, ok := members[idOf(member)]; !ok {
			return refusal(idl.TableCodeInvalidMbrHandle,
				"action profile %s has no member with handle %d", profile, member)
		}
		now, ok := groups[idOf(group)]
		if !ok {
			return refusal(idl.TableCodeInvalidGrpHandle,
				"action profile %s has no group with handle %d", profile, group)
		}
		next, err := change(now, slices.IndexFunc(now,
			func(m target.WeightedMember) bool { return m.Member == idOf(member) }))
		if err != nil {
			return err
		}
		return tableFailure(p.SetGroup(profile, idOf(group), next, false),
			idl.TableCodeInvalidMbrHandle, idl.TableCodeError)
	})
}

// BmMtActProfAddMemberToGroup implements the Thrift call of the same name.
func (h *handler) BmMtActProfAddMemberToGroup(cxt int32, profile string,
	member, group idl.Handle) error {
	return h.regroup(cxt, profile, member, group,
		func(now []target.WeightedMember, at int) ([]target.WeightedMember, error) {
			if at >= 0 {
				return nil, refusal(idl.TableCodeMbrAlreadyInGrp,
					"member %d is in group %d of action profile %s", member, group, profile)
			}
			return append(now, target.WeightedMember{Member: idOf(member), Weight: 1}), nil
		})
}

// BmMtActProfRemoveMemberFromGroup implements the Thrift call of the same name.
func (h *handler) BmMtActProfRemoveMemberFromGroup(cxt int32, profile string,
	member, group idl.Handle) error {
	return h.regroup(cxt, profile, member, group,
		func(now []target.WeightedMember, at int) ([]target.WeightedMember, error) {
			if at < 0 {
				return nil, refusal(idl.TableCodeMbrNotInGrp,
					"member %d is not in group %d of action profile %s", member, group, profile)
			}
			return slices.Delete(now, at, at+1), nil
		})
}

// BmMtActProfGetMembers implements the Thrift call of the same name.
func (h *handler) BmMtActProfGetMembers(cxt int32, profile string) (out []idl.Member, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		if _, err := h.actionProfile(profile); err != nil {
			return err
		}
		members, err := p.Members(profile)
		for id, call := range members {
			out = append(out, idl.Member{MbrHandle: handleOf(id), ActionName: call.Action,
				ActionData: dataOf(&call)})
		}
		slices.SortFunc(out, func(a, b idl.Member) int {
			return int(a.MbrHandle) - int(b.MbrHandle)
		})
		return err
	})
	return out, err
}

// BmMtActProfGetMember implements the Thrift call of the same name.
func (h *handler) BmMtActProfGetMember(cxt int32, profile string,
	member idl.Handle) (out idl.Member, err error) {
	all, err := h.BmMtActProfGetMembers(cxt, profile)
	if err != nil {
		return out, err
	}
	for _, m := range all {
		if m.MbrHandle == member {
			return m, nil
		}
	}
	return out, refusal(idl.TableCodeInvalidMbrHandle,
		"action profile %s has no member with handle %d", profile, member)
}

// BmMtActProfGetGroups implements the Thrift call of the same name.
func (h *handler) BmMtActProfGetGroups(cxt int32, profile string) (out []idl.Group, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		groups, err := h.groups(p, profile)
		for id, members := range groups {
			g := idl.Group{GrpHandle: handleOf(id)}
			for _, m := range members {
				g.MbrHandles = append(g.MbrHandles, handleOf(m.Member))
			}
			out = append(out, g)
		}
		slices.SortFunc(out, func(a, b idl.Group) int {
			return int(a.GrpHandle) - int(b.GrpHandle)
		})
		return err
	})
	return out, err
}

// BmMtActProfGetGroup implements the Thrift call of the same name.
func (h *handler) BmMtActProfGetGroup(cxt int32, profile string,
	group idl.Handle) (out idl.Group, err error) {
	all, err := h.BmMtActProfGetGroups(cxt, profile)
	if err != nil {
		return out, err
	}
	for _, g := range all {
		if g.GrpHandle == group {
			return g, nil
		}
	}
	return out, refusal(idl.TableCodeInvalidGrpHandle,
		"action profile %s has no group with handle %d", profile, group)
}

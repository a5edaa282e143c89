package translate

import (
	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/target"
)

// Call converts an Action of a request to the engine's form. By section 9.1.2 ("Action
// Specification"), each parameter must occur exactly once, and be in range.
func (s *Schema) Call(a *p4v1.Action) (*target.ActionCall, error) {
	act := s.actions[a.GetActionId()]
	if act == nil {
		return nil, Invalidf("there is no action %d", a.GetActionId())
	}
	out := &target.ActionCall{Action: act.name, Params: make([][]byte, len(act.params))}
	for _, p := range a.Params {
		i, ok := act.byID[p.ParamId]
		if !ok {
			return nil, Invalidf("action %s has no parameter %d", act.name, p.ParamId)
		}
		if out.Params[i] != nil {
			return nil, Invalidf("parameter %d (%s) of action %s is given twice", p.ParamId,
				act.params[i].name, act.name)
		}
		v, err := Widen(p.Value, act.params[i].width)
		if err != nil {
			return nil, Invalidf("parameter %d (%s) of action %s: %s", p.ParamId, act.params[i].name,
				act.name, status.Convert(err).Message())
		}
		out.Params[i] = v
	}
	for i, v := range out.Params {
		if v == nil {
			return nil, Invalidf("parameter %d (%s) of action %s is missing", act.params[i].id,
				act.params[i].name, act.name)
		}
	}
	if err := CheckRestrictions("action "+act.name, act.restrictions,
		&Subject{params: out.Params}); err != nil {
		return nil, err
	}
	return out, nil
}

// ActionOf is the inverse of Call.
func (s *Schema) ActionOf(c *target.ActionCall) *p4v1.Action {
	act := s.actionByName[c.Action]
	if act == nil {
		return nil // the P4Info does not contain the action
	}
	out := &p4v1.Action{ActionId: act.id}
	for i, p := range act.params {
		if i < len(c.Params) {
			out.Params = append(out.Params, &p4v1.Action_Param{ParamId: p.id,
				Value: Shorten(c.Params[i])})
		}
	}
	return out
}

// Permits checks that the table may run the action in an entry or, if asDefault is set, as its
// default action.
func (t *Table) Permits(s *Schema, id uint32, asDefault bool) error {
	ref := t.refs[id]
	switch {
	case ref == nil && s.actions[id] == nil:
		return Invalidf("there is no action %d", id)
	case ref == nil:
		return Invalidf("table %s does not have action %s", t.Name, s.actions[id].name)
	case asDefault && ref.Scope == p4cfg.ActionRef_TABLE_ONLY:
		return Errorf(codes.PermissionDenied,
			"action %s of table %s is for entries only, not for the default entry",
			s.actions[id].name, t.Name)
	case !asDefault && ref.Scope == p4cfg.ActionRef_DEFAULT_ONLY:
		return Errorf(codes.PermissionDenied, "action %s of table %s is for the default entry only",
			s.actions[id].name, t.Name)
	}
	return nil
}

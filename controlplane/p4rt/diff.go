package p4rt

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// MatchKey returns a map key that identifies an entry within its switch: its table, priority and
// match. Padding and the order of fields do not matter.
func MatchKey(te *v1.TableEntry) string {
	if te.IsDefaultAction {
		return fmt.Sprintf("%d default", te.TableId)
	}
	var fields []string
	for _, m := range te.Match {
		var s string
		switch m := m.FieldMatchType.(type) {
		case *v1.FieldMatch_Exact_:
			s = Value(m.Exact.Value).String()
		case *v1.FieldMatch_Lpm:
			s = fmt.Sprintf("%v/%d", Value(m.Lpm.Value), m.Lpm.PrefixLen)
		case *v1.FieldMatch_Ternary_:
			s = fmt.Sprintf("%v&%v", Value(m.Ternary.Value), Value(m.Ternary.Mask))
		case *v1.FieldMatch_Range_:
			s = fmt.Sprintf("%v..%v", Value(m.Range.Low), Value(m.Range.High))
		case *v1.FieldMatch_Optional_:
			s = Value(m.Optional.Value).String()
		}
		fields = append(fields, fmt.Sprintf("%d=%s", m.FieldId, s))
	}
	slices.Sort(fields)
	return fmt.Sprintf("%d %d %s", te.TableId, te.Priority, strings.Join(fields, " "))
}

// SameAction reports whether two entries have the same effect on packets that match them. Padding
// and the order of parameters do not matter.
func SameAction(a, b *v1.TableEntry) bool {
	return actionKey(a) == actionKey(b)
}

func actionKey(te *v1.TableEntry) string {
	a := te.GetAction().GetAction()
	if a == nil {
		return fmt.Sprint(te.GetAction())
	}
	var params []string
	for _, p := range a.Params {
		params = append(params, fmt.Sprintf("%d=%v", p.ParamId, Value(p.Value)))
	}
	slices.Sort(params)
	return fmt.Sprintf("%d %s", a.ActionId, strings.Join(params, " "))
}

// DiffEntries returns the updates that turn a switch's entries into the wanted entries. Insertions
// and modifications come first, in the order of want. Deletions follow, in the order of have. Equal
// entries need no update.
func DiffEntries(have, want []*v1.TableEntry) []*v1.Update {
	old := map[string]*v1.TableEntry{}
	for _, e := range have {
		old[MatchKey(e)] = e
	}
	var updates, deletions []*v1.Update
	for _, e := range want {
		k := MatchKey(e)
		switch h, ok := old[k]; {
		case e.IsDefaultAction && (!ok || !SameAction(h, e)):
			updates = append(updates, Modify(EntryEntity(e)))
		case !ok:
			updates = append(updates, Insert(EntryEntity(e)))
		case !SameAction(h, e):
			updates = append(updates, Modify(EntryEntity(e)))
		}
		delete(old, k)
	}
	for _, e := range have {
		if _, ok := old[MatchKey(e)]; ok && !e.IsDefaultAction {
			deletions = append(deletions, Delete(EntryEntity(&v1.TableEntry{TableId: e.TableId, Match: e.Match,
				Priority: e.Priority})))
		}
	}
	return append(updates, deletions...)
}

// DiffGroups returns the updates that turn a switch's multicast groups into the wanted groups.
// change has the insertions and modifications, and remove has the deletions.
func DiffGroups(have, want []Group) (change, remove []*v1.Update, err error) {
	old := map[uint32]Group{}
	for _, g := range have {
		old[g.ID] = g
	}
	for _, g := range want {
		e, err := EncodeGroup(g)
		if err != nil {
			return nil, nil, err
		}
		h, ok := old[g.ID]
		if !ok {
			change = append(change, Insert(e))
		} else if !slices.Equal(sortReplicas(slices.Clone(h.Replicas)), sortReplicas(slices.Clone(g.Replicas))) {
			change = append(change, Modify(e))
		}
		delete(old, g.ID)
	}
	for _, g := range have {
		if _, ok := old[g.ID]; ok {
			remove = append(remove, Delete(groupEntity(&v1.MulticastGroupEntry{MulticastGroupId: g.ID})))
		}
	}
	return change, remove, nil
}

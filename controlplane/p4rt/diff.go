package p4rt

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// MatchKey identifies an entry within its switch: table, priority and match as a map key. Padding
// and the order of fields do not matter. The key is not for people.
func MatchKey(te *v1.TableEntry) string {
	key := binary.BigEndian.AppendUint32(make([]byte, 0, 32), te.TableId)
	if te.IsDefaultAction {
		return string(append(key, "default"...))
	}
	key = binary.BigEndian.AppendUint32(key, uint32(te.Priority))
	match := te.Match
	byID := func(a, b *v1.FieldMatch) int { return cmp.Compare(a.FieldId, b.FieldId) }
	if !slices.IsSortedFunc(match, byID) {
		match = slices.SortedFunc(slices.Values(match), byID)
	}
	value := func(b []byte) { key = appendValue(key, b) }
	for _, m := range match {
		key = binary.BigEndian.AppendUint32(key, m.FieldId)
		switch m := m.FieldMatchType.(type) {
		case *v1.FieldMatch_Exact_:
			value(m.Exact.Value)
		case *v1.FieldMatch_Lpm:
			value(m.Lpm.Value)
			key = binary.BigEndian.AppendUint32(key, uint32(m.Lpm.PrefixLen))
		case *v1.FieldMatch_Ternary_:
			value(m.Ternary.Value)
			value(m.Ternary.Mask)
		case *v1.FieldMatch_Range_:
			value(m.Range.Low)
			value(m.Range.High)
		case *v1.FieldMatch_Optional_:
			value(m.Optional.Value)
		}
	}
	return string(key)
}

// appendValue appends a value's shortest form so that no other values give the same bytes.
func appendValue(key, value []byte) []byte {
	c := Value(value).Canonical()
	return append(binary.BigEndian.AppendUint16(key, uint16(len(c))), c...)
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
	params := a.Params
	byID := func(a, b *v1.Action_Param) int { return cmp.Compare(a.ParamId, b.ParamId) }
	if !slices.IsSortedFunc(params, byID) {
		params = slices.SortedFunc(slices.Values(params), byID)
	}
	key := binary.BigEndian.AppendUint32(make([]byte, 0, 64), a.ActionId)
	for _, p := range params {
		key = appendValue(binary.BigEndian.AppendUint32(key, p.ParamId), p.Value)
	}
	return string(key)
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

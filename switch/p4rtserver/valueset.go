package p4rtserver

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// writeValueSet replaces the members of a parser value set (section 9.6).
func (c *config) writeValueSet(typ p4v1.Update_Type, e *p4v1.ValueSetEntry) error {
	if err := onlyModify("value set", typ); err != nil {
		return err
	}
	v := c.ValueSets[e.ValueSetId]
	if v == nil {
		return c.Unknown("value set", e.ValueSetId)
	}
	if len(e.Members) > v.Size {
		return translate.Errorf(codes.ResourceExhausted, "value set %s has room for %d members, not %d", v.Name,
			v.Size, len(e.Members))
	}
	members := make([][]target.FieldMatch, 0, len(e.Members))
	seen := map[string]bool{}
	for _, m := range e.Members {
		match, err := translate.MatchOf("value set "+v.Name, v.Keys, m.Match)
		if err != nil {
			return err
		}
		k := translate.MatchKey(match, 0)
		if seen[k] {
			return translate.Errorf(codes.AlreadyExists, "a member of value set %s is given twice", v.Name)
		}
		seen[k] = true
		members = append(members, match)
	}
	return c.pipe.SetValueSet(v.Name, members)
}

func (c *config) readValueSets(q *p4v1.ValueSetEntry, emit func(*p4v1.Entity)) error {
	which, err := pick(c.Schema, "value set", q.ValueSetId, c.ValueSets, c.ValueSetOrder)
	if err != nil {
		return err
	}
	for _, v := range which {
		members, err := c.pipe.ValueSet(v.Name)
		if err != nil {
			return err
		}
		out := &p4v1.ValueSetEntry{ValueSetId: v.ID}
		for _, m := range members {
			out.Members = append(out.Members, &p4v1.ValueSetMember{Match: translate.FieldsOf(v.Keys, m)})
		}
		emit(&p4v1.Entity{Entity: &p4v1.Entity_ValueSetEntry{ValueSetEntry: out}})
	}
	return nil
}

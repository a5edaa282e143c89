package p4rt

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/target"
)

// writeValueSet replaces the members of a parser value set (section 9.6).
func (c *config) writeValueSet(typ p4v1.Update_Type, e *p4v1.ValueSetEntry) error {
	if err := onlyModify("value set", typ); err != nil {
		return err
	}
	v := c.valueSets[e.ValueSetId]
	if v == nil {
		return c.unknown("value set", e.ValueSetId)
	}
	if len(e.Members) > v.size {
		return fail(codes.ResourceExhausted, "value set %s has room for %d members, not %d", v.name,
			v.size, len(e.Members))
	}
	members := make([][]target.FieldMatch, 0, len(e.Members))
	seen := map[string]bool{}
	for _, m := range e.Members {
		match, err := matchOf("value set "+v.name, v.keys, m.Match)
		if err != nil {
			return err
		}
		k := matchKey(match, 0)
		if seen[k] {
			return fail(codes.AlreadyExists, "a member of value set %s is given twice", v.name)
		}
		seen[k] = true
		members = append(members, match)
	}
	return c.pipe.SetValueSet(v.name, members)
}

func (c *config) readValueSets(q *p4v1.ValueSetEntry, emit func(*p4v1.Entity)) error {
	which, err := pick(c.schema, "value set", q.ValueSetId, c.valueSets, c.valueSetOrder)
	if err != nil {
		return err
	}
	for _, v := range which {
		members, err := c.pipe.ValueSet(v.name)
		if err != nil {
			return err
		}
		out := &p4v1.ValueSetEntry{ValueSetId: v.id}
		for _, m := range members {
			out.Members = append(out.Members, &p4v1.ValueSetMember{Match: fieldsOf(v.keys, m)})
		}
		emit(&p4v1.Entity{Entity: &p4v1.Entity_ValueSetEntry{ValueSetEntry: out}})
	}
	return nil
}

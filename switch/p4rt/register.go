package p4rt

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// writeRegister writes one cell or, where the index is unset, all (section 9.7).
func (c *config) writeRegister(typ p4v1.Update_Type, e *p4v1.RegisterEntry) error {
	if err := onlyModify("register", typ); err != nil {
		return err
	}
	r := c.registers[e.RegisterId]
	if r == nil {
		return invalid("there is no register %d", e.RegisterId)
	}
	first, _, err := cells("register "+r.name, r.size, e.Index)
	if err != nil {
		return err
	}
	v, err := r.typ.decode(e.Data)
	if err != nil {
		return err
	}
	if e.Index == nil {
		return c.pipe.FillRegister(r.name, v)
	}
	return c.pipe.WriteRegister(r.name, first, v)
}

func (c *config) readRegisters(q *p4v1.RegisterEntry, emit func(*p4v1.Entity)) error {
	which, err := pick("register", q.RegisterId, c.registers, c.registerOrder)
	if err != nil {
		return err
	}
	for _, r := range which {
		index := q.Index
		if q.RegisterId == 0 {
			index = nil
		}
		first, count, err := cells("register "+r.name, r.size, index)
		if err != nil {
			return err
		}
		values, err := c.pipe.ReadRegisters(r.name, first, count)
		if err != nil {
			return err
		}
		for i, v := range values {
			data, _ := r.typ.encode([][]byte{v})
			emit(&p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{
				RegisterId: r.id, Index: &p4v1.Index{Index: int64(first + i)}, Data: data,
			}}})
		}
	}
	return nil
}

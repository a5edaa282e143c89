package p4rtserver

import (
	"bytes"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// writeRegister writes one cell or, if the index is unset, all cells (section 9.7).
func (c *config) writeRegister(typ p4v1.Update_Type, e *p4v1.RegisterEntry) error {
	if err := onlyModify("register", typ); err != nil {
		return err
	}
	r := c.Registers[e.RegisterId]
	if r == nil {
		return translate.Invalidf("there is no register %d", e.RegisterId)
	}
	first, _, err := cells("register "+r.Name, r.Size, e.Index)
	if err != nil {
		return err
	}
	v, err := r.Type.Decode(e.Data)
	if err != nil {
		return err
	}
	if e.Index == nil {
		return c.pipe.FillRegister(r.Name, v)
	}
	return c.pipe.WriteRegister(r.Name, first, v)
}

// adjacent returns how many entities from the first on read consecutive existing cells of one
// register. It returns at least 1.
func (c *config) adjacent(entities []*p4v1.Entity) int {
	first := entities[0].GetRegisterEntry()
	r := c.Registers[first.RegisterId]
	if r == nil || first.Index == nil || first.Index.Index < 0 {
		return 1
	}
	n := 1
	for ; n < len(entities) && first.Index.Index+int64(n) < int64(r.Size); n++ {
		q := entities[n].GetRegisterEntry()
		if q == nil || q.RegisterId != first.RegisterId || q.Index == nil ||
			q.Index.Index != first.Index.Index+int64(n) {
			break
		}
	}
	return n
}

// readRegisters reads the register cells that a request selects. If the request selects a single
// cell, readRegisters reads n cells from that cell on.
func (c *config) readRegisters(q *p4v1.RegisterEntry, n int, out *response) error {
	which, err := pick(c.Schema, "register", q.RegisterId, c.Registers, c.RegisterOrder)
	if err != nil {
		return err
	}
	for _, r := range which {
		index := q.Index
		if q.RegisterId == 0 {
			index = nil
		}
		first, count, err := cells("register "+r.Name, r.Size, index)
		if err != nil {
			return err
		}
		if n > 1 {
			count = n
		}
		values, err := c.pipe.AppendRegisters(nil, r.Name, first, count)
		if err != nil {
			return err
		}
		if r.Type.Kind == translate.KindBits {
			encodeCells(r, first, count, values, nil, out)
			continue
		}
		for i, v := range target.SplitCells(values, count) {
			data, _ := r.Type.Encode([][]byte{v})
			out.add(&p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{
				RegisterEntry: &p4v1.RegisterEntry{
					RegisterId: r.ID, Index: &p4v1.Index{Index: int64(first + i)}, Data: data,
				}}})
		}
	}
	return nil
}

// The numbers of the protobuf fields that lead from a ReadResponse to a cell's value
// (p4runtime.proto).
const (
	fieldEntities      = 1  // ReadResponse.entities, of type Entity
	fieldRegisterEntry = 11 // Entity.register_entry, of type RegisterEntry
	fieldRegisterID    = 1  // RegisterEntry.register_id
	fieldIndex         = 2  // RegisterEntry.index, of type Index
	fieldIndexIndex    = 1  // Index.index
	fieldData          = 3  // RegisterEntry.data, of type P4Data
	fieldBitstring     = 1  // P4Data.bitstring
)

// encodedBytes is the approximate size of one message of encodeCells. It is small, so that a client
// can decode one message while the next message is in transit.
const encodedBytes = 128 << 10

// encodeCells encodes cells of type bit<W> in protobuf's format. A controller reads a register of
// 65,536 cells at the end of a recovery, while a chain accepts no writes. With a protobuf library
// this would allocate six objects for each cell, and take ten times as long as reading the cells.
// values has count cells, one after the other. encodeCells skips cells for which same returns true.
// If same is nil, it skips no cells.
func encodeCells(r *translate.Register, first, count int, values []byte, same func(int) bool, out *response) {
	bytesField := func(number protowire.Number,
		n int) int {
		return protowire.SizeTag(number) + protowire.SizeBytes(n)
	}
	id := protowire.SizeTag(fieldRegisterID) + protowire.SizeVarint(uint64(r.ID))
	b := make([]byte, 0, encodedBytes+1<<10)
	for i := range count {
		if same != nil && same(i) {
			continue
		}
		v := values[i*len(values)/count : (i+1)*len(values)/count]
		// The canonical form has at least one byte.
		v = v[len(v)-1-len(bytes.TrimLeft(v[:len(v)-1], "\x00")):]
		n := uint64(first + i)
		index := protowire.SizeTag(fieldIndexIndex) + protowire.SizeVarint(n)
		if n == 0 {
			index = 0
		}
		data := bytesField(fieldBitstring, len(v))
		entry := id + bytesField(fieldIndex, index) + bytesField(fieldData, data)
		b = protowire.AppendTag(b, fieldEntities, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(bytesField(fieldRegisterEntry, entry)))
		b = protowire.AppendTag(b, fieldRegisterEntry, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(entry))
		b = protowire.AppendTag(b, fieldRegisterID, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(r.ID))
		b = protowire.AppendTag(b, fieldIndex, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(index))
		if n != 0 {
			b = protowire.AppendTag(b, fieldIndexIndex, protowire.VarintType)
			b = protowire.AppendVarint(b, n)
		}
		b = protowire.AppendTag(b, fieldData, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(data))
		b = protowire.AppendTag(b, fieldBitstring, protowire.BytesType)
		b = protowire.AppendBytes(b, v)
		if len(b) >= encodedBytes {
			out.addEncoded(b)
			b = b[:0]
		}
	}
	if len(b) > 0 {
		out.addEncoded(b)
	}
}

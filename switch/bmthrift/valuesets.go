package bmthrift

import (
	"math/big"
	"slices"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// setOf finds a parser value set by its name, and returns its members.
func (h *handler) setOf(p target.Pipeline, name string) (*bmv2json.ValueSet,
	[][]target.FieldMatch, error) {
	v := h.prog.ValueSet(name)
	if v == nil {
		return nil, nil, refusal(idl.ValueSetCodeInvalidParseVsetName,
			"there is no value set %q", name)
	}
	members, err := p.ValueSet(name)
	return v, members, err
}

// memberOf splits a value into the fields of the value set. The value contains the fields one after
// the other.
func memberOf(v *bmv2json.ValueSet, value []byte) ([]target.FieldMatch, error) {
	b := normalized(value, v.Width)
	if b == nil {
		return nil, refusal(idl.ValueSetCodeError,
			"%x is no value of the %d bits of value set %s", value, v.Width, v.Name)
	}
	rest := new(big.Int).SetBytes(b)
	out := make([]target.FieldMatch, len(v.Widths))
	for i := len(v.Widths) - 1; i >= 0; i-- {
		w := uint(v.Widths[i])
		mask := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), w), big.NewInt(1))
		out[i].Value = new(big.Int).And(rest, mask).FillBytes(make([]byte, bytesOf(int(w))))
		rest.Rsh(rest, w)
	}
	return out, nil
}

// valueOf joins the fields of a value set's member to one value.
func valueOf(v *bmv2json.ValueSet, member []target.FieldMatch) []byte {
	all := new(big.Int)
	for i, w := range v.Widths {
		all.Lsh(all, uint(w))
		all.Or(all, new(big.Int).SetBytes(member[i].Value))
	}
	return all.FillBytes(make([]byte, bytesOf(v.Width)))
}

func (h *handler) changeSet(cxt int32, name string,
	change func(*bmv2json.ValueSet, [][]target.FieldMatch) ([][]target.FieldMatch, error)) error {
	return h.write(cxt, func(p target.Pipeline) error {
		v, members, err := h.setOf(p, name)
		if err != nil {
			return err
		}
		next, err := change(v, members)
		if err != nil {
			return err
		}
		if err := p.SetValueSet(name, next); err != nil {
			return refusal(idl.ValueSetCodeError, "%v", err)
		}
		return nil
	})
}

func indexOf(v *bmv2json.ValueSet, members [][]target.FieldMatch, value []byte) int {
	return slices.IndexFunc(members, func(m []target.FieldMatch) bool {
		return slices.Equal(valueOf(v, m), normalized(value, v.Width))
	})
}

// BmParseVsetAdd implements the Thrift call of the same name. Adding an existing member changes
// nothing.
func (h *handler) BmParseVsetAdd(cxt int32, name string, value []byte) error {
	return h.changeSet(cxt, name, func(v *bmv2json.ValueSet,
		members [][]target.FieldMatch) ([][]target.FieldMatch, error) {
		m, err := memberOf(v, value)
		if err != nil || indexOf(v, members, value) >= 0 {
			return members, err
		}
		return append(members, m), nil
	})
}

// BmParseVsetRemove implements the Thrift call of the same name. Removing a missing member changes
// nothing.
func (h *handler) BmParseVsetRemove(cxt int32, name string, value []byte) error {
	return h.changeSet(cxt, name, func(v *bmv2json.ValueSet,
		members [][]target.FieldMatch) ([][]target.FieldMatch, error) {
		if _, err := memberOf(v, value); err != nil {
			return nil, err
		}
		if i := indexOf(v, members, value); i >= 0 {
			members = slices.Delete(members, i, i+1)
		}
		return members, nil
	})
}

// BmParseVsetGet implements the Thrift call of the same name.
func (h *handler) BmParseVsetGet(cxt int32, name string) (out [][]byte, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		v, members, err := h.setOf(p, name)
		for _, m := range members {
			out = append(out, valueOf(v, m))
		}
		return err
	})
	return out, err
}

// BmParseVsetClear implements the Thrift call of the same name.
func (h *handler) BmParseVsetClear(cxt int32, name string) error {
	return h.changeSet(cxt, name, func(*bmv2json.ValueSet,
		[][]target.FieldMatch) ([][]target.FieldMatch, error) {
		return nil, nil
	})
}

package paths

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

func (t *finder) keyFields(n *bmv2json.Table) (offs []int) {
	for _, k := range n.Keys {
		if !k.Field.IsValidity() {
			offs = append(offs, t.Layout.Field(k.Field).Off)
		}
		if !k.Field.Header.Metadata || k.Field.IsValidity() {
			offs = append(offs, t.Layout.Validity(k.Field.Header))
		}
	}
	return offs
}

// fieldsIn returns the offsets of the fields that expressions use.
func (t *finder) fieldsIn(list ...*bmv2json.Expr) (offs []int) {
	for _, e := range list {
		analysis.WalkExpr(e, func(x *bmv2json.Expr) {
			switch x.Op {
			case bmv2json.OpField:
				if x.Field.IsValidity() {
					offs = append(offs, t.Layout.Validity(x.Field.Header))
				} else {
					offs = append(offs, t.Layout.Field(x.Field).Off)
				}
			case bmv2json.OpHeader:
				offs = append(offs, t.FieldsOf(x.Header)...)
			case bmv2json.OpConst, bmv2json.OpBool, bmv2json.OpLocal, bmv2json.OpString,
				bmv2json.OpVector,
				bmv2json.OpCounterArray, bmv2json.OpMeterArray, bmv2json.OpRegisterArray,
				bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpMul, bmv2json.OpDiv, bmv2json.OpMod,
				bmv2json.OpShl, bmv2json.OpShr, bmv2json.OpBitAnd, bmv2json.OpBitOr,
				bmv2json.OpBitXor, bmv2json.OpBitNot, bmv2json.OpTwoCompMod, bmv2json.OpSatCast,
				bmv2json.OpUsatCast, bmv2json.OpTernary, bmv2json.OpBoolToData, bmv2json.OpEq,
				bmv2json.OpNe, bmv2json.OpLt, bmv2json.OpLe, bmv2json.OpGt, bmv2json.OpGe,
				bmv2json.OpAnd, bmv2json.OpOr, bmv2json.OpNot, bmv2json.OpDataToBool,
				bmv2json.OpValid:
			default:
				offs = append(offs, ir.EveryField)
			}
		})
	}
	return offs
}

// readBy returns the offsets of the fields that a primitive reads or may leave unchanged.
func (t *finder) readBy(q *bmv2json.Primitive) []int {
	switch q.Op {
	case "assign", "modify_field":
		if q.Args[0].Op == bmv2json.OpField {
			return t.fieldsIn(q.Args[1:]...)
		}
	case "register_read", "register_write", "count", "execute_meter", "_jump_if_zero", "_jump",
		"truncate", "add_header", "add_header_fast", "remove_header", "assign_header",
		"copy_header", "log_msg":
		return t.fieldsIn(q.Args...)
	case "mark_to_drop", "drop", "no_op", "exit":
		return nil
	}
	return []int{ir.EveryField}
}

// behind returns the facts that hold after a primitive, given the facts f before it.
func (t *finder) behind(q *bmv2json.Primitive, f ir.Facts) ir.Facts {
	field := func(e *bmv2json.Expr) ir.Facts {
		if e.Op == bmv2json.OpField && !e.Field.IsValidity() {
			return f.Without(t.Layout.Field(e.Field).Off)
		}
		return nil
	}
	header := func(e *bmv2json.Expr) (*bmv2json.Header, bool) {
		return e.Header, e.Op == bmv2json.OpHeader && e.Header.Stack == nil &&
			e.Header.Union == nil && !e.Header.Metadata
	}
	switch q.Op {
	case "assign", "modify_field", "register_read", "modify_field_with_hash_based_offset",
		"modify_field_rng_uniform":
		return field(q.Args[0])
	case "execute_meter":
		return field(q.Args[2])
	case "mark_to_drop", "drop":
		for _, r := range []bmv2json.FieldRef{t.Std.EgressSpec, t.Std.McastGroup} {
			t.FieldIf(r, func(p ir.Place) { f = f.Without(p.Off) })
		}
		return f
	case "add_header", "add_header_fast", "remove_header":
		if h, ok := header(q.Args[0]); ok {
			valid := uint64(1)
			if q.Op == "remove_header" {
				valid = 0
			}
			return f.Without(t.FieldsOf(h)...).With(t.Layout.Validity(h), valid)
		}
	case "assign_header", "copy_header":
		if h, ok := header(q.Args[0]); ok {
			return f.Without(t.FieldsOf(h)...)
		}
	case "register_write", "count", "no_op", "log_msg", "truncate", "_jump", "_jump_if_zero":
		return f
	}
	return nil // anything may have changed, so no fact is left
}

package analysis

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Primitives has the types of each primitive's arguments. The letters are d data, b data or bool, l
// a place to store a number, v a varbit field, h header, u header union, s stack, r register, c
// counter, k calculation, and m meter. The map is also the list of supported primitives, from which
// docs/switch.md is generated.
var Primitives = map[string]string{
	"assign": "lb", "modify_field": "lb", "assign_VL": "vv", "assign_header": "hh",
	"assign_union": "uu", "assign_header_stack": "ss", "assign_union_stack": "ss",
	"copy_header": "hh", "_jump": "d", "_jump_if_zero": "bd", "exit": "", "no_op": "",
	"assume": "b", "assert": "b", "log_msg": "*", "mark_to_drop": "h", "drop": "",
	"add_header": "h", "add_header_fast": "h", "remove_header": "h",
	"register_read": "lrd", "register_write": "rdd", "count": "cd", "push": "sd", "pop": "sd",
	"add_to_field": "ld", "subtract_from_field": "ld", "add": "ldd", "subtract": "ldd",
	"bit_xor": "ldd", "bit_or": "ldd", "bit_and": "ldd",
	"shift_left": "ldd", "shift_right": "ldd",
	"clone_ingress_pkt_to_egress": "dd", "clone_egress_pkt_to_egress": "dd", "resubmit": "d",
	"recirculate": "d", "truncate": "d",
	"modify_field_with_hash_based_offset": "ldkd", "modify_field_rng_uniform": "ldd",
	"execute_meter": "mdl", "generate_digest": "dd",
}

// CheckPrimitives refuses calls of primitives with wrong arguments, because planning relies on
// correct arguments. It does not refuse unsupported primitives, because their actions may be
// unused. Translation refuses them.
func CheckPrimitives(prog *bmv2json.Program) {
	check := func(p *bmv2json.Primitive) {
		if _, ok := Primitives[p.Op]; ok {
			CheckArgs(p)
		}
	}
	for _, a := range prog.Actions {
		for _, p := range a.Primitives {
			check(p)
		}
	}
	for _, parser := range prog.Parsers {
		for _, s := range parser.States {
			for _, o := range s.Ops {
				if o.Primitive != nil {
					check(o.Primitive)
				}
			}
		}
	}
}

// CheckArgs refuses a call of an unsupported primitive or with wrong arguments.
func CheckArgs(p *bmv2json.Primitive) {
	types, ok := Primitives[p.Op]
	if !ok {
		ir.Refuse(p.Path, "the primitive %q", p.Op)
	}
	if types == "*" {
		return
	}
	if len(p.Args) != len(types) {
		ir.Refuse(p.Path, "%s with %d arguments instead of %d", p.Op, len(p.Args), len(types))
	}
	for i, a := range p.Args {
		ok := false
		switch types[i] {
		case 'd':
			ok = a.Type == bmv2json.TypeData
		case 'b':
			ok = a.Type == bmv2json.TypeData || a.Type == bmv2json.TypeBool
		case 'l':
			ok = a.Op == bmv2json.OpField && !a.Field.IsValidity() || a.Op == bmv2json.OpAccessField
		case 'v':
			ok = a.Op == bmv2json.OpField && !a.Field.IsValidity() && a.Field.Field.VL
		case 'h':
			ok = a.Type == bmv2json.TypeHeader
		case 'u':
			ok = a.Type == bmv2json.TypeUnion
		case 's':
			ok = a.Op == bmv2json.OpStack || a.Op == bmv2json.OpUnionStack
		case 'r':
			ok = a.Op == bmv2json.OpRegisterArray
		case 'm':
			ok = a.Op == bmv2json.OpMeterArray && !a.Meter.Direct
		case 'k':
			ok = a.Op == bmv2json.OpCalculation
		case 'c':
			ok = a.Op == bmv2json.OpCounterArray && !a.Counter.Direct
		}
		if !ok {
			ir.Refuse(a.Path, "%s with a %q as argument %d", p.Op, a.Op, i)
		}
	}
}

// AssignedCondition returns the condition if an assignment to a field converts a condition to a
// number.
func AssignedCondition(p *bmv2json.Primitive) (cond *bmv2json.Expr, ok bool) {
	if p.Op != "assign" || p.Args[0].Op != bmv2json.OpField || ir.Wide(p.Args[0].Width) {
		return nil, false
	}
	switch src := p.Args[1]; {
	case src.Type == bmv2json.TypeBool:
		return src, true
	case src.Op == bmv2json.OpBoolToData:
		return src.Right, true
	}
	return nil, false
}

// RegisterOf returns the register that a primitive reads or writes, and the cell's index.
func RegisterOf(q *bmv2json.Primitive) (r *bmv2json.Register, index *bmv2json.Expr, ok bool) {
	switch {
	case q.Op == "register_read" && len(q.Args) == 3:
		return q.Args[1].Register, q.Args[2], true
	case q.Op == "register_write" && len(q.Args) == 3:
		return q.Args[0].Register, q.Args[1], true
	}
	return nil, nil, false
}

// ComputedInSteps reports whether an expression needs steps of wide arithmetic. The values of these
// steps exist only once the statement has begun.
func ComputedInSteps(e *bmv2json.Expr) (found bool) {
	ir.WideSteps(ir.NewOperand(e, 1), func(ir.Operand) { found = true })
	return found
}

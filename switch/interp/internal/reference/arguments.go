package reference

import (
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
)

// ArgumentTypes has the types of each primitive's arguments. The letters are d data, b data or
// bool, l a destination for data, v a varbit field, h header, s stack of headers or unions, u
// union, r register, c counter, m meter, k calculation, t string, p vector, and e extern object.
var ArgumentTypes = map[string]string{
	"assign": "lb", "modify_field": "lb", "assign_VL": "vv", "assign_header": "hh",
	"copy_header": "hh", "assign_union": "uu",
	"assign_header_stack": "ss", "assign_union_stack": "ss", "push": "sd", "pop": "sd",
	"_jump": "d", "_jump_if_zero": "bd", "exit": "", "no_op": "", "assume": "b", "assert": "b",
	"log_msg":      "tp",
	"mark_to_drop": "h", "drop": "", "add_header": "h", "remove_header": "h",
	"add_header_fast":             "h",
	"clone_ingress_pkt_to_egress": "dd", "clone_egress_pkt_to_egress": "dd", "resubmit": "d",
	"recirculate": "d", "generate_digest": "dd",
	"modify_field_with_hash_based_offset": "ldkd", "modify_field_rng_uniform": "ldd",
	"truncate":      "d",
	"execute_meter": "mdl", "count": "cd", "register_read": "lrd", "register_write": "rdd",
	"add_to_field": "ld", "subtract_from_field": "ld", "add": "ldd", "subtract": "ldd",
	"bit_xor": "ldd", "bit_or": "ldd", "bit_and": "ldd",
	"shift_left": "ldd", "shift_right": "ldd",
	"_Counter_count": "ed", "_Meter_execute": "edl", "_Random_read": "el",
	"_Hash_get_hash": "elp", "_Hash_get_hash_mod": "eldpd",
	"_InternetChecksum_clear": "e", "_InternetChecksum_add": "ep",
	"_InternetChecksum_subtract": "ep", "_InternetChecksum_get": "el",
	"_InternetChecksum_get_verify": "eld", "_InternetChecksum_get_state": "el",
	"_InternetChecksum_set_state": "ed",
}

func (c *Compiler) checkArgs(p *bmv2json.Primitive) {
	types, ok := ArgumentTypes[p.Op]
	if !ok {
		refusal.Panic(p.Path, "the primitive %q", p.Op)
	}
	if len(p.Args) != len(types) {
		refusal.Panic(p.Path, "%s with %d arguments instead of %d", p.Op, len(p.Args), len(types))
	}
	for i, a := range p.Args {
		ok := false
		switch types[i] {
		case 'd':
			ok = a.Type == bmv2json.TypeData
		case 'b':
			ok = a.Type == bmv2json.TypeData || a.Type == bmv2json.TypeBool
		case 'l':
			switch a.Op {
			case bmv2json.OpField:
				ok = !a.Field.IsValidity()
			case bmv2json.OpStackField, bmv2json.OpUnionStackField, bmv2json.OpAccessField:
				ok = true
			}
		case 'v':
			ok = a.Op == bmv2json.OpField && !a.Field.IsValidity() && a.Field.Field.VL
		case 'h':
			ok = a.Type == bmv2json.TypeHeader
		case 's':
			ok = a.Op == bmv2json.OpStack || a.Op == bmv2json.OpUnionStack
		case 'u':
			ok = a.Type == bmv2json.TypeUnion
		case 'r':
			ok = a.Op == bmv2json.OpRegisterArray
		case 'c':
			ok = a.Op == bmv2json.OpCounterArray && !a.Counter.Direct
		case 'm':
			ok = a.Op == bmv2json.OpMeterArray && !a.Meter.Direct
		case 'k':
			ok = a.Op == bmv2json.OpCalculation
		case 't':
			ok = a.Op == bmv2json.OpString
		case 'p':
			ok = a.Op == bmv2json.OpVector
		case 'e':
			ok = a.Op == bmv2json.OpExtern && strings.HasPrefix(p.Op, "_"+a.Extern.Type+"_")
		}
		if !ok {
			refusal.Panic(a.Path, "%s with a %q as argument %d", p.Op, a.Op, i)
		}
	}
}

func (c *Compiler) sameType(p *bmv2json.Primitive, same bool) {
	if !same {
		refusal.Panic(p.Path, "%s between different types", p.Op)
	}
}

package control

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// runAction emits an action's primitives. exit is the label to which the primitive "exit" jumps.
func (t *Control) runAction(a *bmv2json.Action, exit string) {
	labels := make([]string, len(a.Primitives)+1)
	for i := range labels {
		labels[i] = t.NewLabel("step")
	}
	for i, p := range a.Primitives {
		t.Where = p.Path
		t.Bind(labels[i])
		switch p.Op {
		case "_jump", "_jump_if_zero":
			to, ok := ir.ConstantOf(p.Args[len(p.Args)-1], int64(len(labels)))
			if !ok || to <= i {
				ir.Refuse(p.Path, "a jump backwards or to nowhere")
			}
			t.StartStatement(t.Operands(p)...)
			if p.Op == "_jump" {
				t.Jump(labels[to])
			} else {
				t.Branch(t.Truth(p.Args[0]), labels[i+1], labels[to], labels[i+1], 0)
			}
		default:
			t.primitive(p, exit)
		}
	}
	t.Bind(labels[len(a.Primitives)])
}

// primitive emits one call of a primitive.
func (t *Control) primitive(p *bmv2json.Primitive, exit string) {
	analysis.CheckArgs(p)
	arg := p.Args
	if p.Op == "assign" && t.Unread(arg[0]) {
		return
	}
	if cond, ok := analysis.AssignedCondition(p); ok {
		t.StartBranch(cond)
	} else {
		t.StartStatement(t.Operands(p)...)
	}
	switch p.Op {
	case "assign", "modify_field":
		src := arg[1]
		if src.Type == bmv2json.TypeBool {
			src = &bmv2json.Expr{Op: bmv2json.OpBoolToData, Right: src, Path: src.Path}
		}
		t.ToPlace(arg[0], func(dst ir.Place) { t.AssignTo(dst, src) })
	case "assign_header", "copy_header":
		list, index := t.HeadersOf(arg[1])
		t.ToHeader(arg[0], func(dst *bmv2json.Header) {
			t.Each(len(list), index, func(i int) { t.headers.AssignHeader(dst, list[i]) },
				func() { t.StoreConstant(code.PHV, t.Layout.Validity(dst), 0, 1) })
		})
	case "assign_union":
		t.headers.AssignUnion(t.UnionOf(arg[0]).Headers, t.UnionOf(arg[1]).Headers)
	case "assign_header_stack", "assign_union_stack":
		t.headers.AssignStack(p)
	case "assign_VL":
		t.headers.AssignVarbit(p)
	case "exit":
		if exit == "" {
			ir.Refuse(p.Path, "exit in a parser")
		}
		t.Jump(exit)
	case "no_op":
	case "log_msg":
		t.delivery.EmitMessage(p)
	case "assume", "assert":
		t.assert(arg[0], exit)
	case "mark_to_drop", "drop":
		t.MarkToDrop()
	case "add_header":
		t.ToHeader(arg[0], t.headers.AddHeader)
	case "add_header_fast":
		t.ToHeader(arg[0], t.headers.SetValid)
	case "remove_header":
		t.ToHeader(arg[0], t.headers.RemoveHeader)
	case "register_read":
		t.ToPlace(arg[0], func(dst ir.Place) { t.externs.ReadRegister(dst, arg[1].Register, arg[2]) })
	case "register_write":
		t.externs.WriteRegister(arg[0].Register, arg[1], arg[2])
	case "count":
		t.externs.Count(arg[0].Counter, arg[1])
	case "push", "pop":
		t.headers.ShiftStack(p)
	case "modify_field_with_hash_based_offset":
		t.hashes.EmitHash(p)
	case "modify_field_rng_uniform":
		t.externs.EmitRandom(p)
	case "execute_meter":
		t.externs.ExecuteMeter(p)
	case "generate_digest":
		if exit == "" {
			ir.Refuse(p.Path, "generate_digest in a parser")
		}
		t.delivery.GenerateDigest(p)
	case "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress", "resubmit", "recirculate",
		"truncate":
		if exit == "" {
			ir.Refuse(p.Path, "%s in a parser", p.Op)
		}
		t.delivery.EmitRequest(p)
	default: // the arithmetic primitives of P4_14
		t.AssignTo(t.PlaceOf(arg[0]), t.ArithmeticOf(p))
	}
}

// assert emits code that drops a packet if a condition is false.
func (t *Control) assert(cond *bmv2json.Expr, exit string) {
	ok, bad := t.NewLabel("ok"), t.NewLabel("bad")
	t.Branch(t.Truth(cond), ok, bad, bad, 0)
	t.Bind(bad)
	if exit == "" {
		t.Jump("ingress.drop")
	} else {
		t.MarkToDrop()
		t.Jump(exit)
	}
	t.Bind(ok)
}

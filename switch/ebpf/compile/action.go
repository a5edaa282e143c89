package compile

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// runAction emits an action's primitives. exit is where the primitive "exit" goes.
func (t *translator) runAction(a *bmv2json.Action, exit string) {
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
			t.beginStatement(t.wanted(p)...)
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

// primitives is what each primitive takes: d data, b data or bool, l a place to store a number, v a
// varbit field, h header, u header union, s stack, r register, c counter, k calculation, m meter.
// It is also the list of what this engine can do; docs/switch.md is made from it.
var primitives = map[string]string{
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

// checkPrimitives refuses calls with other arguments than their primitives take. What plans a
// program relies on them. A primitive that this engine does not have is refused where it is
// translated: nothing may use its action.
func checkPrimitives(prog *bmv2json.Program) {
	check := func(p *bmv2json.Primitive) {
		if _, ok := primitives[p.Op]; ok {
			checkArgs(p)
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

func checkArgs(p *bmv2json.Primitive) {
	types, ok := primitives[p.Op]
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

// primitive emits one call.
func (t *translator) primitive(p *bmv2json.Primitive, exit string) {
	checkArgs(p)
	arg := p.Args
	if p.Op == "assign" && t.unread(arg[0]) {
		return
	}
	if cond, ok := assignedCondition(p); ok {
		t.beginBranch(cond)
	} else {
		t.beginStatement(t.wanted(p)...)
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
			t.Each(len(list), index, func(i int) { t.assignHeader(dst, list[i]) },
				func() { t.StoreConstant(code.PHV, t.Layout.Validity(dst), 0, 1) })
		})
	case "assign_union":
		t.assignUnion(t.UnionOf(arg[0]).Headers, t.UnionOf(arg[1]).Headers)
	case "assign_header_stack", "assign_union_stack":
		t.assignStack(p)
	case "assign_VL":
		t.assignVarbit(p)
	case "exit":
		if exit == "" {
			ir.Refuse(p.Path, "exit in a parser")
		}
		t.Jump(exit)
	case "no_op":
	case "log_msg":
		t.say(p)
	case "assume", "assert":
		ok, bad := t.NewLabel("ok"), t.NewLabel("bad")
		t.Branch(t.Truth(arg[0]), ok, bad, bad, 0)
		t.Bind(bad)
		if exit == "" {
			t.Jump("ingress.drop")
		} else {
			t.markToDrop()
			t.Jump(exit)
		}
		t.Bind(ok)
	case "mark_to_drop", "drop":
		t.markToDrop()
	case "add_header":
		t.ToHeader(arg[0], t.addHeader)
	case "add_header_fast":
		t.ToHeader(arg[0], t.setValid)
	case "remove_header":
		t.ToHeader(arg[0], t.removeHeader)
	case "register_read":
		t.ToPlace(arg[0], func(dst ir.Place) { t.registerRead(dst, arg[1].Register, arg[2]) })
	case "register_write":
		t.registerWrite(arg[0].Register, arg[1], arg[2])
	case "count":
		t.count(arg[0].Counter, arg[1])
	case "push", "pop":
		t.shiftStack(p)
	case "modify_field_with_hash_based_offset":
		t.hash(p)
	case "modify_field_rng_uniform":
		t.random(p)
	case "execute_meter":
		t.executeMeter(p)
	case "generate_digest":
		if exit == "" {
			ir.Refuse(p.Path, "generate_digest in a parser")
		}
		t.generateDigest(p)
	case "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress", "resubmit", "recirculate",
		"truncate":
		if exit == "" {
			ir.Refuse(p.Path, "%s in a parser", p.Op)
		}
		t.request(p)
	default: // the arithmetic of P4_14
		t.AssignTo(t.PlaceOf(arg[0]), t.arithmeticOf(p))
	}
}

// unread reports whether an assignment to a place can be left out: it is metadata of the program's
// own that nothing reads.
func (p *Plan) unread(dst *bmv2json.Expr) bool {
	if dst.Op != bmv2json.OpField || dst.Field.IsValidity() || !dst.Field.Header.Metadata ||
		slices.Contains(standardHeaders, dst.Field.Header.Name) {
		return false
	}
	return !p.Reads(dst.Field)
}

// assignedCondition is the condition that an assignment to a field turns into a number.
func assignedCondition(p *bmv2json.Primitive) (cond *bmv2json.Expr, ok bool) {
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

func (t *translator) markToDrop() {
	t.setStandardConstant(t.std.egressSpec, t.DropPort)
	t.setStandardConstant(t.std.mcastGroup, 0)
}

// cell puts the address of a cell into R2; an index beyond the array goes to beyond.
func (t *translator) cell(a ArrayPlan, index *ir.Value, beyond string) {
	if k, ok := index.Constant(); ok {
		if k >= uint64(a.size) {
			t.Jump(beyond)
			return
		}
		t.stateAddress(asm.R2, a.At(int(k)))
		return
	}
	t.Compute(index, 0)
	if index.Max >= uint64(a.size) {
		t.Emit(asm.JGE.Imm(asm.R1, int32(a.size), beyond))
	} else { // true by the field's width, but the verifier knows no widths of what is in memory
		t.Emit(asm.JGT.Imm(asm.R1, int32(min(index.Max, uint64(a.size-1))), beyond))
	}
	switch {
	case a.Stride&(a.Stride-1) != 0:
		t.Emit(asm.Mul.Imm(asm.R1, int32(a.Stride)))
	case a.Stride > 1:
		t.Emit(asm.LSh.Imm(asm.R1, int32(log2(a.Stride))))
	}
	t.stateAddress(asm.R2, a.Off)
	t.Emit(asm.Add.Reg(asm.R2, asm.R1))
}

func log2(n int) (k int) {
	for n > 1 {
		n, k = n/2, k+1
	}
	return k
}

// registerRead reads a cell; one beyond the array leaves dst as it is.
func (t *translator) registerRead(dst ir.Place, r *bmv2json.Register, index *bmv2json.Expr) {
	end, a := t.NewLabel("read"), t.Registers[r.Index]
	if r.Size == 0 {
		return
	}
	t.cell(a, t.Index(index), end)
	switch {
	case !ir.Wide(r.Width) && !ir.Wide(dst.Width):
		t.Load(asm.R3, asm.R2, 0, a.Cell)
		switch {
		case r.Signed && r.Width < dst.Width && r.Width < 64:
			s := int32(64 - r.Width)
			t.Emit(asm.LSh.Imm(asm.R3, s), asm.ArSh.Imm(asm.R3, s))
			t.Mask(asm.R3, ir.Ones(dst.Width), 2)
		case r.Width > dst.Width:
			t.Mask(asm.R3, ir.Ones(dst.Width), 2)
		}
		t.Store(code.PHV, dst.Off, asm.R3, dst.Size)
	case r.Width == dst.Width:
		t.CopyWords(code.PHV, dst.Off, asm.R2, 0, a.Cell)
		t.hasRead(dst)
	default:
		ir.Refuse(t.Where, "reading a register of %d bits into a field of %d", r.Width, dst.Width)
	}
	t.Bind(end)
}

// registerWrite writes a cell, cut to its width; one beyond the array writes nothing.
func (t *translator) registerWrite(r *bmv2json.Register, index, src *bmv2json.Expr) {
	end, a := t.NewLabel("written"), t.Registers[r.Index]
	if r.Size == 0 {
		return
	}
	if ir.Wide(r.Width) {
		if src.Op == bmv2json.OpField && !src.Field.IsValidity() && src.Width == r.Width &&
			!src.Field.Field.VL {
			t.cell(a, t.Index(index), end)
			off := t.Layout.Field(src.Field).Off
			t.writeResting(off, a.Cell, end)
			t.CopyWords(asm.R2, 0, code.PHV, off, a.Cell)
			t.Bind(end)
			return
		}
		t.cell(a, t.Index(index), end)
		n := ir.WordsOf(r.Width)
		t.Emit(asm.Mov.Reg(asm.R0, asm.R2)) // the last register that values are computed in
		for i := range n {
			v := ir.And(t.Word(src, i), ir.Const(ir.Ones(min(64, r.Width-64*i))))
			if v.RegistersNeeded() >= len(ir.Registers) {
				ir.Refuse(t.Where, "an expression with too many intermediate values")
			}
			t.ComputeSwapped(v, 0)
			t.Store(asm.R0, (n-1-i)*8, asm.R1, 8)
		}
		t.Bind(end)
		return
	}
	v := ir.And(t.Word(src, 0), ir.Const(ir.Ones(r.Width)))
	t.cell(a, t.Index(index), end)
	if imm, ok := v.Immediate(); ok {
		t.StoreConstant(asm.R2, 0, imm, a.Cell)
	} else {
		if v.RegistersNeeded()+2 > len(ir.Registers) {
			ir.Refuse(t.Where, "an expression with too many intermediate values")
		}
		t.Store(asm.R2, 0, t.Compute(v, 2), a.Cell)
	}
	t.Bind(end)
}

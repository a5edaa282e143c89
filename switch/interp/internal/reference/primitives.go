package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// action compiles an action.
func (c *Compiler) action(src *bmv2json.Action) *Action {
	a := &Action{Source: src}
	a.Parameters, _ = packet.ParametersOf(src)
	c.Params = a.Parameters
	defer func() { c.Params = nil }()
	for _, p := range src.Primitives {
		do := c.primitive(p)
		switch p.Op {
		case "_jump", "_jump_if_zero": // p4c creates these primitives, so they are not traced
			a.jumps = true
		case "exit", "assert", "assume":
			a.Stops = true
			fallthrough
		default:
			do = c.tracedPrimitive(p, do)
		}
		a.Statements = append(a.Statements, do)
	}
	return a
}

// primitive compiles one primitive.
func (c *Compiler) primitive(p *bmv2json.Primitive) expression.Statement {
	c.checkArgs(p)
	arg := p.Args
	if len(arg) > 0 && arg[0].Op == bmv2json.OpExtern {
		return c.externCall(p)
	}
	switch p.Op {
	case "assign", "modify_field":
		return c.Assign(arg[0], arg[1])
	case "assign_VL":
		return c.AssignVarbit(arg[0], arg[1])
	case "assign_header", "copy_header", "assign_union", "assign_header_stack",
		"assign_union_stack", "push", "pop", "add_header", "add_header_fast", "remove_header":
		return c.headerPrimitive(p)
	case "_jump":
		to := c.Index(arg[0])
		return func(st *packet.State) { st.JumpTarget = int(min(to(st), maxStates)) }
	case "_jump_if_zero":
		cond, to := c.Truth(arg[0]), c.Index(arg[1])
		return func(st *packet.State) {
			if !cond(st) {
				st.JumpTarget = int(min(to(st), maxStates))
			}
		}
	case "exit":
		return func(st *packet.State) { st.Exited = true }
	case "no_op":
		return func(*packet.State) {}
	case "assert", "assume":
		cond, say, what := c.Truth(arg[0]), c.say, p.Op+" failed: "+p.Path
		return func(st *packet.State) {
			if !cond(st) {
				st.Dropped, st.Exited = true, true
				say(what)
			}
		}
	case "log_msg":
		return c.logMessage(p)
	case "mark_to_drop", "drop":
		c.onlyV1model(p)
		spec, group, port := c.EgressSpec, c.MulticastGroup, uint64(c.DropPort)
		return func(st *packet.State) {
			spec.Set(st, port)
			group.Set(st, 0)
		}
	case "truncate":
		n := c.Index(arg[0])
		return func(st *packet.State) { st.TruncateTo = int(min(uint64(st.TruncateTo), n(st))) }
	case "modify_field_with_hash_based_offset":
		return c.hash(p)
	case "modify_field_rng_uniform":
		return c.random(p)
	case "execute_meter":
		return c.executeMeter(p)
	case "count":
		return countAt(c.Counters[arg[0].Counter.Index], c.Index(arg[1]))
	case "register_read", "register_write":
		return c.registerAccess(p)
	case "add_to_field", "subtract_from_field", "add", "subtract", "bit_xor", "bit_or", "bit_and",
		"shift_left", "shift_right":
		return c.oldArithmetic(p)
	}
	return c.request(p)
}

// headerPrimitive compiles a primitive that changes whole headers, unions or stacks.
func (c *Compiler) headerPrimitive(p *bmv2json.Primitive) expression.Statement {
	arg := p.Args
	switch p.Op {
	case "assign_header", "copy_header":
		c.sameType(p, bmv2json.HeaderTypeOf(arg[0]) == bmv2json.HeaderTypeOf(arg[1]))
		d, s := c.HeaderIndex(arg[0]), c.HeaderIndex(arg[1])
		return func(st *packet.State) { st.AssignHeader(d(st), s(st)) }
	case "assign_union":
		d, s := c.Union(arg[0]), c.Union(arg[1])
		return func(st *packet.State) { st.AssignUnion(d(st), s(st)) }
	case "assign_header_stack", "assign_union_stack":
		return c.assignStack(p)
	case "push", "pop":
		return c.shiftStack(p)
	case "add_header":
		if h, dyn := c.Header(arg[0]); dyn == nil {
			return func(st *packet.State) { st.AddHeader(h) }
		}
		h := c.HeaderIndex(arg[0])
		return func(st *packet.State) { st.AddHeader(h(st)) }
	case "add_header_fast":
		h := c.HeaderIndex(arg[0])
		return func(st *packet.State) {
			if h := h(st); h >= 0 {
				st.SetValid(h)
			}
		}
	case "remove_header":
		h := c.HeaderIndex(arg[0])
		return func(st *packet.State) { st.RemoveHeader(h(st)) }
	}
	return nil
}

// oldArithmetic compiles the arithmetic primitives of P4_14 as the equivalent expressions.
func (c *Compiler) oldArithmetic(p *bmv2json.Primitive) expression.Statement {
	op := map[string]bmv2json.ExprOp{
		"add_to_field": bmv2json.OpAdd, "subtract_from_field": bmv2json.OpSub,
		"add": bmv2json.OpAdd, "subtract": bmv2json.OpSub,
		"bit_xor": bmv2json.OpBitXor, "bit_or": bmv2json.OpBitOr, "bit_and": bmv2json.OpBitAnd,
		"shift_left": bmv2json.OpShl, "shift_right": bmv2json.OpShr,
	}[p.Op]
	l, r := p.Args[0], p.Args[1]
	if len(p.Args) == 3 {
		l, r = p.Args[1], p.Args[2]
	}
	return c.Assign(p.Args[0], &bmv2json.Expr{Op: op, Left: l, Right: r, Path: p.Path})
}

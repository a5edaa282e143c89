package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// action is a compiled action.
type action struct {
	src    *bmv2json.Action
	code   []doFn
	jumps  bool
	stops  bool // the pipeline may end within it
	params []paramAt
}

// run executes the action with the parameters in st.params.
func (a *action) run(st *state) {
	if !a.jumps {
		for _, do := range a.code {
			do(st)
		}
		return
	}
	// Jumps only go forward in what p4c writes; going back is allowed by the format, so what one
	// call may execute is bounded.
	for pc, n := 0, 0; pc < len(a.code) && n < maxStates; n++ {
		st.jump = -1
		a.code[pc](st)
		pc++
		if st.jump >= 0 {
			pc = st.jump
		}
	}
}

func (c *compiler) action(src *bmv2json.Action) *action {
	a := &action{src: src}
	a.params, _ = paramsOf(src)
	c.params = a.params
	defer func() { c.params = nil }()
	for _, p := range src.Primitives {
		do := c.primitive(p)
		switch p.Op {
		case "_jump", "_jump_if_zero": // p4c's, not the program's: they are not traced
			a.jumps = true
		case "exit", "assert", "assume":
			a.stops = true
			fallthrough
		default:
			do = c.tracedPrimitive(p, do)
		}
		a.code = append(a.code, do)
	}
	return a
}

// primitive compiles one call.
func (c *compiler) primitive(p *bmv2json.Primitive) doFn {
	c.checkArgs(p)
	arg := p.Args
	if len(arg) > 0 && arg[0].Op == bmv2json.OpExtern {
		return c.externCall(p)
	}
	switch p.Op {
	case "assign", "modify_field":
		return c.assign(arg[0], arg[1])
	case "assign_VL":
		return c.assignVL(arg[0], arg[1])
	case "assign_header", "copy_header":
		c.sameType(p, bmv2json.HeaderTypeOf(arg[0]) == bmv2json.HeaderTypeOf(arg[1]))
		d, s := c.headerIndex(arg[0]), c.headerIndex(arg[1])
		return func(st *state) { st.assignHeader(d(st), s(st)) }
	case "assign_union":
		d, s := c.union(arg[0]), c.union(arg[1])
		return func(st *state) { st.assignUnion(d(st), s(st)) }
	case "assign_header_stack", "assign_union_stack":
		return c.assignStack(p)
	case "push", "pop":
		return c.shiftStack(p)
	case "_jump":
		to := c.index(arg[0])
		return func(st *state) { st.jump = int(min(to(st), maxStates)) }
	case "_jump_if_zero":
		cond, to := c.truth(arg[0]), c.index(arg[1])
		return func(st *state) {
			if !cond(st) {
				st.jump = int(min(to(st), maxStates))
			}
		}
	case "exit":
		return func(st *state) { st.exit = true }
	case "no_op":
		return func(*state) {}
	case "assert", "assume":
		cond, say, what := c.truth(arg[0]), c.say, p.Op+" failed: "+p.Path
		return func(st *state) {
			if !cond(st) {
				st.dropped, st.exit = true, true
				say(what)
			}
		}
	case "log_msg":
		return c.logMessage(p)
	case "mark_to_drop", "drop":
		c.onlyV1model(p)
		spec, group, port := c.egressSpec, c.mcastGrp, uint64(c.dropPort)
		return func(st *state) {
			spec.set(st, port)
			group.set(st, 0)
		}
	case "add_header":
		if h, dyn := c.header(arg[0]); dyn == nil {
			return func(st *state) { st.addHeader(h) }
		}
		h := c.headerIndex(arg[0])
		return func(st *state) { st.addHeader(h(st)) }
	case "add_header_fast":
		h := c.headerIndex(arg[0])
		return func(st *state) {
			if h := h(st); h >= 0 {
				st.setValid(h)
			}
		}
	case "remove_header":
		h := c.headerIndex(arg[0])
		return func(st *state) { st.removeHeader(h(st)) }
	case "truncate":
		n := c.index(arg[0])
		return func(st *state) { st.truncate = int(min(uint64(st.truncate), n(st))) }
	case "modify_field_with_hash_based_offset":
		return c.hash(p)
	case "modify_field_rng_uniform":
		return c.random(p)
	case "execute_meter":
		return c.executeMeter(p)
	case "count":
		return countAt(c.counters[arg[0].Counter.Index], c.index(arg[1]))
	case "register_read", "register_write":
		return c.registerAccess(p)
	case "add_to_field", "subtract_from_field", "add", "subtract", "bit_xor", "bit_or", "bit_and",
		"shift_left", "shift_right":
		return c.oldArithmetic(p)
	}
	return c.request(p)
}

package interp

import (
	"math/bits"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interval"
)

// action is a compiled action.
type action struct {
	src    *bmv2json.Action
	code   []doFn
	jumps  bool
	params []paramAt
	lanes  int // of the parameters of a call
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
	for _, p := range src.Params {
		a.params = append(a.params, paramAt{a.lanes, p.Width})
		a.lanes += lanesOf(p.Width)
	}
	c.params = a.params
	defer func() { c.params = nil }()
	for _, p := range src.Primitives {
		if p.Op == "_jump" || p.Op == "_jump_if_zero" {
			a.jumps = true
		}
		a.code = append(a.code, c.tracedPrimitive(p, c.primitive(p)))
	}
	return a
}

// argTypes says what each primitive takes: d data, b data or bool, l a place to store data, v a
// varbit field, h header, s stack of headers or unions, u union, r register, c counter, m meter, k
// calculation, t string, p vector, e extern object.
var argTypes = map[string]string{
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

func (c *compiler) checkArgs(p *bmv2json.Primitive) {
	types, ok := argTypes[p.Op]
	if !ok {
		refuse(p.Path, "the primitive %q", p.Op)
	}
	if len(p.Args) != len(types) {
		refuse(p.Path, "%s with %d arguments instead of %d", p.Op, len(p.Args), len(types))
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
			refuse(a.Path, "%s with a %q as argument %d", p.Op, a.Op, i)
		}
	}
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
		cond, what := c.truth(arg[0]), p.Op+" failed: "+p.Path
		return func(st *state) {
			if !cond(st) {
				st.dropped, st.exit = true, true
				st.p.log(what)
			}
		}
	case "log_msg":
		return c.logMessage(p)
	case "mark_to_drop", "drop":
		c.onlyV1model(p)
		std, port := &c.p.std, uint64(c.p.opts.DropPort)
		return func(st *state) {
			std.egressSpec.set(st, port)
			std.mcastGrp.set(st, 0)
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
		return countAt(c.p.counters[arg[0].Counter.Index], c.index(arg[1]))
	case "register_read", "register_write":
		return c.registerAccess(p)
	case "add_to_field", "subtract_from_field", "add", "subtract", "bit_xor", "bit_or", "bit_and",
		"shift_left", "shift_right":
		return c.oldArithmetic(p)
	}
	return c.request(p)
}

// countAt compiles counting a packet. An index beyond the array counts nothing.
func countAt(a *counterArray, idx numFn) doFn {
	return func(st *state) { a.count(st, idx(st)) }
}

// request compiles what is done with the packet only after the pipeline: clone, resubmit,
// recirculate, digest. The last request of a kind counts.
func (c *compiler) request(p *bmv2json.Primitive) doFn {
	c.onlyV1model(p)
	arg := p.Args
	switch p.Op {
	case "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress":
		c.checkFieldList(arg[1])
		s, fl := c.index(arg[0]), c.index(arg[1])
		return func(st *state) {
			st.cloning, st.session, st.cloneFL = true, uint32(s(st)&0x7fff),
				int(fl(st)&0xffff)
		}
	case "resubmit":
		c.checkFieldList(arg[0])
		fl := c.index(arg[0])
		return func(st *state) { st.resubmit = int(fl(st) & 0xffff) }
	case "recirculate":
		c.checkFieldList(arg[0])
		fl := c.index(arg[0])
		return func(st *state) { st.recirc = int(fl(st) & 0xffff) }
	default: // generate_digest
		if arg[1].Op == bmv2json.OpConst && (!arg[1].Const.IsInt64() ||
			c.prog.LearnList(int(arg[1].Const.Int64())) == nil) {
			refuse(arg[1].Path, "a digest of learn list %s, which there is not", arg[1].Const)
		}
		id := c.index(arg[1])
		return func(st *state) { st.digest = int(id(st) & 0xffff) }
	}
}

// checkFieldList refuses a list that there is not; 0 stands for the empty one.
func (c *compiler) checkFieldList(e *bmv2json.Expr) {
	if e.Op == bmv2json.OpConst && e.Const.Sign() != 0 &&
		(!e.Const.IsInt64() || c.prog.FieldList(int(e.Const.Int64())) == nil) {
		refuse(e.Path, "field list %s, which there is not", e.Const)
	}
}

func (c *compiler) sameType(p *bmv2json.Primitive, same bool) {
	if !same {
		refuse(p.Path, "%s between different types", p.Op)
	}
}

// truth compiles an argument that BMv2 takes as data and tests against 0.
func (c *compiler) truth(e *bmv2json.Expr) boolFn {
	if e.Type == bmv2json.TypeBool {
		return c.boolean(e)
	}
	return c.dataToBool(e)
}

// assign compiles dst = src, cut to dst's width.
func (c *compiler) assign(dst, src *bmv2json.Expr) doFn {
	if src.Type == bmv2json.TypeBool {
		src = &bmv2json.Expr{Op: bmv2json.OpBoolToData, Right: src, Path: src.Path}
	}
	if dst.Op == bmv2json.OpField && dst.Field.Field.VL {
		return c.assignVL(dst, src)
	}
	pl := c.placeOf(dst)
	lane, width, n := pl.lane, pl.width, pl.lanes()
	if n > 1 {
		return c.assignWide(pl, src)
	}
	mask := topMask(width)
	v := c.low(src, width)
	if dyn := pl.dyn; dyn != nil {
		return func(st *state) {
			x := v(st)
			if at := dyn(st); at >= 0 {
				st.w[at] = x & mask
			}
		}
	}
	if src.Op == bmv2json.OpConst {
		k := interval.Word(src.Const, 0) & mask
		return func(st *state) { st.w[lane] = k }
	}
	if from, ok := c.fixedLane(src); ok && src.Width <= width {
		return func(st *state) { st.w[lane] = st.w[from] }
	}
	return func(st *state) { st.w[lane] = v(st) & mask }
}

func (c *compiler) assignWide(pl place, src *bmv2json.Expr) doFn {
	lane, n, mask := pl.lane, pl.lanes(), topMask(pl.width)
	if pl.dyn == nil && src.Op == bmv2json.OpField && src.Width == pl.width {
		from := c.placeOf(src).lane
		return func(st *state) { copy(st.w[lane:lane+n], st.w[from:from+n]) }
	}
	v := c.wide(src, n)
	from, to := c.temp(n)
	dyn := pl.dyn
	return func(st *state) {
		t := st.scratch[from:to]
		v(st, t)
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		copy(st.w[at:at+n], t)
		st.w[at+n-1] &= mask
	}
}

func (c *compiler) assignVL(dst, src *bmv2json.Expr) doFn {
	if src.Op != bmv2json.OpField || src.Field.IsValidity() || !src.Field.Field.VL {
		refuse(src.Path, "a varbit field set from a %q", src.Op)
	}
	d, s, limit := dst.Field.Header.Index, src.Field.Header.Index, dst.Width/8
	return func(st *state) {
		if d != s {
			st.vl[d] = append(st.vl[d][:0], st.vl[s][:min(len(st.vl[s]), limit)]...)
		}
	}
}

func (st *state) assignUnion(dst, src []int) {
	for i := range min(len(dst), len(src)) {
		st.assignHeader(dst[i], src[i])
	}
}

// stackElems are the headers of each element of a stack: one, or the members of a union.
func (c *compiler) stackElems(e *bmv2json.Expr) (elems [][]int, next int) {
	if e.Op == bmv2json.OpStack {
		for _, h := range e.Stack.Headers {
			elems = append(elems, []int{h.Index})
		}
		return elems, c.stackNext(e.Stack)
	}
	for _, u := range e.UnionStack.Unions {
		var m []int
		for _, h := range u.Headers {
			m = append(m, h.Index)
		}
		elems = append(elems, m)
	}
	return elems, c.unionStackNext(e.UnionStack)
}

func (c *compiler) assignStack(p *bmv2json.Primitive) doFn {
	a, b := p.Args[0], p.Args[1]
	switch {
	case a.Op != b.Op, a.Op == bmv2json.OpStack && a.Stack.Type != b.Stack.Type,
		a.Op == bmv2json.OpUnionStack && a.UnionStack.Type != b.UnionStack.Type:
		c.sameType(p, false)
	}
	d, dn := c.stackElems(a)
	s, sn := c.stackElems(b)
	c.sameType(p, len(d) == len(s))
	return func(st *state) {
		st.next[dn] = st.next[sn]
		for i := range d {
			st.assignUnion(d[i], s[i])
		}
	}
}

// shiftStack compiles push_front and pop_front: elements move by the count, those that come free
// become invalid.
func (c *compiler) shiftStack(p *bmv2json.Primitive) doFn {
	elems, next := c.stackElems(p.Args[0])
	by := c.index(p.Args[1])
	move := func(st *state, dst, src int) {
		for m := range elems[dst] {
			st.moveHeader(elems[dst][m], elems[src][m])
		}
	}
	invalidate := func(st *state, i int) {
		for _, h := range elems[i] {
			st.valid[h] = false
		}
	}
	size := len(elems)
	if p.Op == "push" {
		return func(st *state) {
			n := int(min(by(st), uint64(size)))
			st.next[next] = min(size, st.next[next]+n)
			for i := size - 1; i >= n; i-- {
				move(st, i, i-n)
			}
			for i := range n {
				invalidate(st, i)
			}
		}
	}
	return func(st *state) {
		n := int(min(by(st), uint64(size)))
		st.next[next] -= min(st.next[next], n)
		for i := 0; i < size-n; i++ {
			move(st, i, i+n)
		}
		for i := size - n; i < size; i++ {
			invalidate(st, i)
		}
	}
}

// oldArithmetic compiles the primitives of P4_14 as the expressions that they are.
func (c *compiler) oldArithmetic(p *bmv2json.Primitive) doFn {
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
	return c.assign(p.Args[0], &bmv2json.Expr{Op: op, Left: l, Right: r, Path: p.Path})
}

// random compiles random(dst, lo, hi): a number of [lo, hi], both 64 bits at most; nothing is
// stored where lo > hi.
func (c *compiler) random(p *bmv2json.Primitive) doFn {
	lo, hi := c.index(p.Args[1]), c.index(p.Args[2])
	store := c.store64(p.Args[0])
	return func(st *state) {
		if a, b := lo(st), hi(st); a <= b {
			store(st, st.p.randomIn(a, b))
		}
	}
}

// randomIn is a number of [lo, hi].
func (p *Pipeline) randomIn(lo, hi uint64) uint64 {
	v := p.rand.Uint64()
	if span := hi - lo + 1; span != 0 {
		v, _ = bits.Mul64(v, span) // in [0, span)
	}
	return lo + v
}

// store64 compiles storing a number of 64 bits.
func (c *compiler) store64(dst *bmv2json.Expr) func(*state, uint64) {
	pl := c.placeOf(dst)
	lane, n, mask, dyn := pl.lane, pl.lanes(), topMask(pl.width), pl.dyn
	if n > 1 {
		mask = ^uint64(0)
	}
	return func(st *state, v uint64) {
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		st.w[at] = v & mask
		clear(st.w[at+1 : at+n])
	}
}

// registerAccess compiles reading or writing a cell. An index beyond the array reads and writes
// nothing.
func (c *compiler) registerAccess(p *bmv2json.Primitive) doFn {
	if p.Op == "register_write" {
		return c.registerWrite(p)
	}
	a, idx := c.p.registers[p.Args[1].Register.Index], c.index(p.Args[2])
	pl := c.placeOf(p.Args[0])
	lane, n, dyn := pl.lane, pl.lanes(), pl.dyn
	mask := topMask(pl.width)
	if dyn == nil && a.lanes == 1 && n == 1 && !a.signed {
		if a.width <= pl.width {
			mask = ^uint64(0)
		}
		return func(st *state) {
			if i := idx(st); i < uint64(len(a.cells)) {
				st.w[lane] = a.cells[i] & mask
			}
		}
	}
	width, signed, k := a.width, a.signed, a.lanes
	return func(st *state) {
		i := idx(st)
		if i >= uint64(a.size) {
			return
		}
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		copyExtended(st.w[at:at+n], a.cells[int(i)*k:(int(i)+1)*k], width, signed)
		st.w[at+n-1] &= mask
	}
}

func (c *compiler) registerWrite(p *bmv2json.Primitive) doFn {
	a, idx, src := c.p.registers[p.Args[0].Register.Index], c.index(p.Args[1]), p.Args[2]
	mask := topMask(a.width)
	if a.lanes == 1 {
		v := c.low(src, a.width)
		return func(st *state) {
			if i := idx(st); i < uint64(len(a.cells)) {
				a.cells[i] = v(st) & mask
			}
		}
	}
	k := a.lanes
	if pl, ok := c.samePlace(src, a.width); ok {
		return func(st *state) {
			if i := idx(st); i < uint64(a.size) {
				copy(a.cells[int(i)*k:(int(i)+1)*k], st.w[pl:pl+k])
			}
		}
	}
	v := c.wide(src, k)
	from, to := c.temp(k)
	return func(st *state) {
		i := idx(st)
		if i >= uint64(a.size) {
			return
		}
		t := st.scratch[from:to]
		v(st, t)
		t[k-1] &= mask
		copy(a.cells[int(i)*k:(int(i)+1)*k], t)
	}
}

// samePlace reports the lane of a field that is exactly width bits.
func (c *compiler) samePlace(e *bmv2json.Expr, width int) (int, bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || e.Width != width {
		return 0, false
	}
	return c.placeOf(e).lane, true
}

package interp

import (
	"math/bits"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interval"
)

// step is an instruction before it has its place.
type step struct {
	op      opcode
	a       uint16 // as instr has it
	b       uint32 // as instr.to, where that is a lane
	k       uint64
	value   numFn
	cond    boolFn
	do      doFn
	effects *effects // of value, cond and do; nil: none
	table   *outcomes
	next    *step // for what branches: where the condition does not hold
	yes     *step // where it does
	at      uint32
	placed  bool
}

// outcomes are where a packet goes on behind a table.
type outcomes struct {
	t            *table
	hit, miss    []*step // by Action.Index; nil for actions that are not the table's
	none, missed *step
}

// largestBody is the number of primitives up to which an action is written out at each place that
// it is run from.
const largestBody = 256

// mostWritten bounds the primitives of actions that are written out in all.
const mostWritten = 1 << 17

// temporaries are the lanes for what has been computed of an expression; one that needs more is
// left to a closure.
const temporaries = 8

// lowering makes steps of the control flow of a pipeline. They are made from the end: each is made
// knowing what comes behind it.
type lowering struct {
	c     *compiler
	end   *step
	nodes map[bmv2json.Node]*step
	conds map[*bmv2json.Expr]boolFn
	first int // lane of the temporaries
	used  int // of the temporaries
	// primitives of actions that have been written out
	written int
}

// lower makes the code of a pipeline, whose temporaries begin at lane first.
func lower(c *compiler, pl *bmv2json.Pipeline, first int) *code {
	l := &lowering{c: c, end: &step{op: opEnd}, nodes: map[bmv2json.Node]*step{},
		conds: map[*bmv2json.Expr]boolFn{}, first: first}
	s := l.node(pl.Init)
	if lanes := c.lay.lanes; s.count(map[*step]bool{})*lanes <= mostFacts {
		private := l.private(pl)
		zero := slices.Clone(private)
		for i := range temporaries {
			zero.remove(first + i)
		}
		s = thread(s, c.lay.widths(), len(c.lay.headers), zero)
		d := dead{private: private, done: map[*step]alive{}}
		s = d.at(s).step
	}
	out := placed(s)
	out.registers, out.counters = c.registers, c.counters
	return out
}

// mostFacts bounds the steps of a pipeline, times the lanes of a packet, up to which its paths are
// looked for.
const mostFacts = 1 << 26

// count is how many steps there are from one on.
func (s *step) count(seen map[*step]bool) int {
	if s == nil || seen[s] {
		return 0
	}
	seen[s] = true
	n := 1
	for _, x := range s.all() {
		n += x.count(seen)
	}
	return n
}

// node makes the steps from a node of the control flow on.
func (l *lowering) node(n bmv2json.Node) *step {
	if n == nil {
		return l.end
	}
	s := l.nodes[n]
	if s == nil {
		switch n := n.(type) {
		case *bmv2json.Conditional:
			s = l.conditional(n)
		case *bmv2json.ActionCall:
			s = l.action(l.c.actions[n.Action.Index], l.node(n.Next))
		case *bmv2json.Table:
			s = l.table(l.c.tables[n.Index])
		}
		l.nodes[n] = s
	}
	return s
}

func (l *lowering) conditional(n *bmv2json.Conditional) *step {
	yes, no := l.node(n.True), l.node(n.False)
	l.used = 0
	return l.cond(n.Expr, yes, no)
}

// table makes the steps of a table, of the actions that it may run, and of what comes behind them.
// A member of an action profile that several tables share may name an action object that p4c made
// for another of them; it is the same action by name.
func (l *lowering) table(t *table) *step {
	actions := l.c.actions
	if a := t.onlyAction(); a != nil {
		return l.action(actions[a.Index], l.node(t.afterMiss(0)))
	}
	out := &outcomes{t: t, hit: make([]*step, len(actions)), miss: make([]*step, len(actions)),
		missed: l.node(t.afterMiss(-1))}
	out.none = l.node(t.afterHit(-1))
	for i, a := range t.src.Actions {
		out.hit[a.Index] = l.action(actions[a.Index], l.node(t.afterHit(i)))
		out.miss[a.Index] = out.hit[a.Index]
		if t.src.HitMiss {
			out.miss[a.Index] = l.action(actions[a.Index], l.node(t.afterMiss(i)))
		}
	}
	if t.profile != nil {
		for _, b := range l.c.prog.Actions {
			if a, _ := t.src.Action(b.Name); a != nil && out.hit[b.Index] == nil {
				out.hit[b.Index], out.miss[b.Index] = out.hit[a.Index], out.miss[a.Index]
			}
		}
	}
	if d := t.src.Default; d != nil && out.miss[d.Action.Index] == nil {
		then := l.end
		if t.src.HitMiss {
			then = l.node(t.src.Miss)
		}
		out.miss[d.Action.Index] = l.action(actions[d.Action.Index], then)
	}
	return &step{op: opTable, table: out}
}

// action makes the steps of an action.
func (l *lowering) action(a *action, next *step) *step {
	if a.stops {
		next = &step{op: opIfExit, yes: l.end, next: next}
	}
	targets, ok := a.forward()
	l.written += len(a.code)
	if !ok || len(a.code) > largestBody || l.written > mostWritten {
		return &step{op: opDo, do: a.run, effects: anything, next: next}
	}
	l.c.params = a.params
	defer func() { l.c.params = nil }()
	at := make([]*step, len(a.code)+1)
	at[len(a.code)] = next
	for i := len(a.code) - 1; i >= 0; i-- {
		p := a.src.Primitives[i]
		switch {
		case p.Op == "_jump":
			at[i] = at[targets[i]]
		case p.Op == "_jump_if_zero":
			l.used = 0
			at[i] = l.truth(p.Args[0], at[i+1], at[targets[i]])
		default:
			at[i] = l.primitive(p, a.code[i], at[i+1])
		}
	}
	return at[0]
}

// forward says where the jumps of an action go; false where one goes back, or nobody knows where.
func (a *action) forward() (targets map[int]int, ok bool) {
	targets = map[int]int{}
	for i, p := range a.src.Primitives {
		if p.Op != "_jump" && p.Op != "_jump_if_zero" {
			continue
		}
		to := p.Args[len(p.Args)-1]
		if to.Op != bmv2json.OpConst || !to.Const.IsInt64() || to.Const.Int64() <= int64(i) {
			return nil, false
		}
		targets[i] = int(min(to.Const.Int64(), int64(len(a.code))))
	}
	return targets, true
}

// primitive makes the steps of a primitive; do is what it is compiled to.
func (l *lowering) primitive(p *bmv2json.Primitive, do doFn, next *step) *step {
	l.used = 0
	var s *step
	switch p.Op {
	case "no_op":
		return next
	case "assign", "modify_field":
		s = l.assign(p.Args[0], p.Args[1], next)
	case "mark_to_drop", "drop":
		s = next
		for _, f := range []stdField{l.c.mcastGrp, l.c.egressSpec} {
			v := uint64(0)
			if f == l.c.egressSpec {
				v = uint64(l.c.dropPort)
			}
			if f.mask != 0 {
				s = &step{op: opSet, a: uint16(f.lane), k: v & f.mask, next: s}
			}
		}
	case "count":
		s = l.withLane(p.Args[1], 64, func(lane int) *step {
			return &step{op: opCount, a: uint16(lane), k: uint64(p.Args[0].Counter.Index), next: next}
		})
	case "register_read":
		s = l.registerRead(p, next)
	case "register_write":
		s = l.registerWrite(p, next)
	}
	if s == nil {
		return &step{op: opDo, do: do, effects: l.effectsOf(p), next: next}
	}
	return s
}

// plainLane is the lane of a destination of at most 64 bits that is where it is.
func (l *lowering) plainLane(e *bmv2json.Expr) (lane int, mask uint64, ok bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || e.Field.Field.VL || e.Width > 64 {
		return 0, 0, false
	}
	return l.c.placeOf(e).lane, topMask(e.Width), true
}

// assign makes the steps of dst = src; nil where that takes a closure.
func (l *lowering) assign(dst, src *bmv2json.Expr, next *step) *step {
	if src.Type == bmv2json.TypeBool {
		src = &bmv2json.Expr{Op: bmv2json.OpBoolToData, Right: src, Path: src.Path}
	}
	lane, mask, ok := l.plainLane(dst)
	if !ok {
		return l.assignWide(dst, src, next)
	}
	if src.Op == bmv2json.OpConst {
		return &step{op: opSet, a: uint16(lane), k: interval.Word(src.Const, 0) & mask, next: next}
	}
	if from, ok := l.c.fixedLane(src); ok && src.Width > dst.Width {
		return &step{op: opMask, a: uint16(lane), b: uint32(from), k: mask, next: next}
	}
	if interval.Of(src).Within(interval.Unsigned(dst.Width)) {
		return l.store(lane, src, 64, next)
	}
	masked := &step{op: opMask, a: uint16(lane), b: uint32(lane), k: mask, next: next}
	return l.store(lane, src, dst.Width, masked)
}

// mostLanes is the number of lanes up to which an assignment is written lane by lane.
const mostLanes = 4

// assignWide is assign for a field of several lanes, from another or a constant.
func (l *lowering) assignWide(dst, src *bmv2json.Expr, next *step) *step {
	n := lanesOf(dst.Width)
	if dst.Op != bmv2json.OpField || dst.Field.IsValidity() || dst.Field.Field.VL || n > mostLanes {
		return nil
	}
	lane := l.c.placeOf(dst).lane
	switch {
	case src.Op == bmv2json.OpConst:
		for i := range n {
			k := interval.Word(src.Const, i)
			if i == n-1 {
				k &= topMask(dst.Width)
			}
			next = &step{op: opSet, a: uint16(lane + i), k: k, next: next}
		}
		return next
	case src.Op == bmv2json.OpField && !src.Field.IsValidity() && src.Width == dst.Width:
		from := l.c.placeOf(src).lane
		for i := range n {
			next = &step{op: opCopy, a: uint16(lane + i), b: uint32(from + i), next: next}
		}
		return next
	}
	return nil
}

func (l *lowering) registerRead(p *bmv2json.Primitive, next *step) *step {
	a := l.c.registers[p.Args[1].Register.Index]
	lane, _, ok := l.plainLane(p.Args[0])
	if !ok || a.lanes != 1 || a.signed || a.width > p.Args[0].Width {
		return nil
	}
	return l.withLane(p.Args[2], 64, func(i int) *step {
		return &step{op: opRead, a: uint16(lane), b: uint32(i),
			k: uint64(p.Args[1].Register.Index), next: next}
	})
}

func (l *lowering) registerWrite(p *bmv2json.Primitive, next *step) *step {
	r := p.Args[0].Register
	a, src := l.c.registers[r.Index], p.Args[2]
	if a.lanes != 1 || !interval.Of(src).Within(interval.Unsigned(a.width)) {
		return nil
	}
	return l.withLane(p.Args[1], 64, func(i int) *step {
		return l.withLane(src, 64, func(v int) *step {
			return &step{op: opWrite, a: uint16(v), b: uint32(i), k: uint64(r.Index), next: next}
		})
	})
}

// operand is the value of an expression: a constant, or what is in a lane behind the steps before.
type operand struct {
	konst  bool
	k      uint64
	lane   int
	before func(*step) *step // nil: there are none
}

func (o operand) then(s *step) *step {
	if s == nil || o.before == nil {
		return s
	}
	return o.before(s)
}

// operand finds a place for the low n bits of e, as compiler.low has them; false where all are
// taken.
func (l *lowering) operand(e *bmv2json.Expr, n int) (operand, bool) {
	if e.Op == bmv2json.OpConst {
		return operand{konst: true, k: interval.Word(e.Const, 0)}, true
	}
	if lane, ok := l.c.fixedLane(e); ok {
		return operand{lane: lane}, true
	}
	if l.used == temporaries {
		return operand{}, false
	}
	lane := l.first + l.used
	l.used++
	return operand{lane: lane, before: func(s *step) *step { return l.store(lane, e, n, s) }}, true
}

// withLane is for an operand that has to be in a lane. It gives nil where there are too many.
func (l *lowering) withLane(e *bmv2json.Expr, n int, use func(lane int) *step) *step {
	if fits, _ := interval.Of(e).FitsWord(); n == 64 && !fits {
		return nil
	}
	o, ok := l.operand(e, n)
	if !ok {
		return nil
	}
	if o.konst {
		if l.used == temporaries {
			return nil
		}
		lane, k := l.first+l.used, o.k
		l.used++
		o = operand{lane: lane, before: func(s *step) *step {
			return &step{op: opSet, a: uint16(lane), k: k, next: s}
		}}
	}
	return o.then(use(o.lane))
}

// store makes the steps that set a lane to the low n bits of e, as compiler.low has them. Until the
// last of them the lane is what it was.
func (l *lowering) store(lane int, e *bmv2json.Expr, n int, next *step) *step {
	if next == nil {
		return nil
	}
	a := uint16(lane)
	if from, ok := l.c.fixedLane(e); ok {
		if from == lane {
			return next
		}
		return &step{op: opCopy, a: a, b: uint32(from), next: next}
	}
	switch e.Op {
	case bmv2json.OpConst:
		return &step{op: opSet, a: a, k: interval.Word(e.Const, 0), next: next}
	case bmv2json.OpLocal:
		return &step{op: opParam, a: a, b: uint32(l.c.params[e.Index].lane), k: ^uint64(0), next: next}
	case bmv2json.OpField:
		if e.Field.IsValidity() {
			return l.truthValue(a, next, func(yes, no *step) *step {
				return &step{op: opIfValid, a: uint16(e.Field.Header.Index), yes: yes, next: no}
			})
		}
	case bmv2json.OpBoolToData:
		return l.truthValue(a, next, func(yes, no *step) *step { return l.cond(e.Right, yes, no) })
	case bmv2json.OpTernary:
		left, right := l.store(lane, e.Left, n, next), l.store(lane, e.Right, n, next)
		return l.cond(e.Cond, left, right)
	case bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpBitAnd, bmv2json.OpBitOr, bmv2json.OpBitXor:
		if s := l.binary(a, e, n, next); s != nil {
			return s
		}
	case bmv2json.OpBitNot:
		if o, ok := l.operand(e.Right, n); ok && !o.konst {
			return o.then(&step{op: opXor, a: a, b: uint32(o.lane), k: ^uint64(0), next: next})
		}
	case bmv2json.OpShl, bmv2json.OpShr:
		if s := l.shift(a, e, n, next); s != nil {
			return s
		}
	}
	return &step{op: opValue, a: a, value: l.c.low(e, n), effects: l.effectsOfExpr(e), next: next}
}

// truthValue makes the steps that set a lane to 1 where a condition holds, and to 0 where not.
func (l *lowering) truthValue(a uint16, next *step, cond func(yes, no *step) *step) *step {
	return cond(&step{op: opSet, a: a, k: 1, next: next}, &step{op: opSet, a: a, next: next})
}

// binary is store for what takes two operands, of which it needs no more than the low bits.
func (l *lowering) binary(a uint16, e *bmv2json.Expr, n int, next *step) *step {
	left, right := e.Left, e.Right
	if left.Op == bmv2json.OpConst && e.Op != bmv2json.OpSub {
		left, right = right, left
	}
	if e.Op == bmv2json.OpBitAnd && right.Op == bmv2json.OpConst {
		if m, ok := isMask(right.Const); ok {
			if m >= n || interval.Of(left).Within(interval.Unsigned(m)) { // it takes nothing away
				return l.store(int(a), left, n, next)
			}
			n = min(n, m)
		}
	}
	x, ok := l.operand(left, n)
	y, also := l.operand(right, n)
	if !ok || !also || x.konst {
		return nil
	}
	s := &step{a: a, b: uint32(x.lane), k: uint64(y.lane), next: next}
	if y.konst {
		s.k = y.k
		switch e.Op {
		case bmv2json.OpAdd:
			s.op = opAdd
		case bmv2json.OpSub:
			s.op, s.k = opAdd, -y.k
		case bmv2json.OpBitAnd:
			s.op = opMask
		case bmv2json.OpBitOr:
			s.op = opOr
		default:
			s.op = opXor
		}
		return x.then(s)
	}
	s.op = map[bmv2json.ExprOp]opcode{bmv2json.OpAdd: opAddLane, bmv2json.OpSub: opSubLane,
		bmv2json.OpBitAnd: opAndLane, bmv2json.OpBitOr: opOrLane, bmv2json.OpBitXor: opXorLane}[e.Op]
	return x.then(y.then(s))
}

// shift is store for shifts by what is known.
func (l *lowering) shift(a uint16, e *bmv2json.Expr, n int, next *step) *step {
	k, ok := shiftAmount(e.Right)
	if !ok || k >= 64 {
		return nil
	}
	op := opShl
	if e.Op == bmv2json.OpShr {
		// all of it is needed
		if fits, signed := interval.Of(e.Left).FitsWord(); !fits || signed {
			return nil
		}
		op, n = opShr, 64
	}
	x, ok := l.operand(e.Left, n)
	if !ok || x.konst {
		return nil
	}
	return x.then(&step{op: op, a: a, b: uint32(x.lane), k: k, next: next})
}

// truth is a condition that BMv2 takes as data and tests against 0.
func (l *lowering) truth(e *bmv2json.Expr, yes, no *step) *step {
	if e.Type != bmv2json.TypeBool {
		e = &bmv2json.Expr{Op: bmv2json.OpDataToBool, Type: bmv2json.TypeBool, Right: e, Path: e.Path}
	}
	return l.cond(e, yes, no)
}

// cond makes the steps of a condition. The right side of "and" and "or" is not evaluated where the
// left decides.
func (l *lowering) cond(e *bmv2json.Expr, yes, no *step) *step {
	defer func(used int) { l.used = used }(l.used)
	switch e.Op {
	case bmv2json.OpBool:
		if e.Bool {
			return yes
		}
		return no
	case bmv2json.OpNot:
		return l.cond(e.Right, no, yes)
	case bmv2json.OpAnd, bmv2json.OpOr:
		return l.several(e, yes, no)
	case bmv2json.OpTernary:
		return l.cond(e.Cond, l.cond(e.Left, yes, no), l.cond(e.Right, yes, no))
	case bmv2json.OpDataToBool:
		return l.notZero(e, yes, no)
	case bmv2json.OpValid:
		if h, dyn := l.c.header(e.Right); dyn == nil {
			return &step{op: opIfValid, a: uint16(h), yes: yes, next: no}
		}
	}
	if s := l.compare(e, yes, no); s != nil {
		return s
	}
	return l.closure(e, yes, no)
}

// compare is a comparison of numbers; nil where it is none, or of other numbers than lanes hold.
func (l *lowering) compare(e *bmv2json.Expr, yes, no *step) *step {
	switch e.Op {
	case bmv2json.OpEq, bmv2json.OpNe:
		if e.Left.Type != bmv2json.TypeData {
			return nil
		}
		if e.Op == bmv2json.OpNe {
			yes, no = no, yes
		}
		return l.equal(e, yes, no)
	case bmv2json.OpLt:
		return l.less(e.Left, e.Right, yes, no)
	case bmv2json.OpGe:
		return l.less(e.Left, e.Right, no, yes)
	case bmv2json.OpGt:
		return l.less(e.Right, e.Left, yes, no)
	case bmv2json.OpLe:
		return l.less(e.Right, e.Left, no, yes)
	}
	return nil
}

// closure is a condition as compiler.boolean has it.
func (l *lowering) closure(e *bmv2json.Expr, yes, no *step) *step {
	f := l.conds[e]
	if f == nil {
		f = l.c.boolean(e)
		l.conds[e] = f
	}
	return &step{op: opIf, cond: f, effects: l.effectsOfExpr(e), yes: yes, next: no}
}

// several makes the steps of "and" and "or" of any number of conditions. Those that ask one field
// for small numbers are one step.
func (l *lowering) several(e *bmv2json.Expr, yes, no *step) *step {
	var list []*bmv2json.Expr
	op := e.Op
	var flatten func(*bmv2json.Expr)
	flatten = func(x *bmv2json.Expr) {
		if x.Op == op {
			flatten(x.Left)
			flatten(x.Right)
			return
		}
		list = append(list, x)
	}
	flatten(e)
	same := bmv2json.OpEq
	if op == bmv2json.OpAnd {
		same = bmv2json.OpNe
	}
	type set struct {
		lane int
		k    uint64
	}
	sets := make([]set, len(list)) // k is 0 for what is no such condition
	for i, x := range list {
		if x.Op != same || x.Left.Type != bmv2json.TypeData {
			continue
		}
		f, k := x.Left, x.Right
		if f.Op == bmv2json.OpConst {
			f, k = k, f
		}
		if lane, ok := l.c.fixedLane(f); ok && k.Op == bmv2json.OpConst && k.Const.IsUint64() &&
			k.Const.Uint64() < 64 {
			sets[i] = set{lane, 1 << k.Const.Uint64()}
		}
	}
	next := no
	if op == bmv2json.OpAnd {
		next = yes
	}
	for i := len(list) - 1; i >= 0; i-- {
		if s := sets[i]; s.k != 0 {
			first := slices.IndexFunc(sets, func(o set) bool { return o.k != 0 && o.lane == s.lane })
			if first < i {
				sets[first].k |= s.k
				continue
			}
			one := &step{op: opIfIn, a: uint16(s.lane), k: s.k, yes: yes, next: next}
			if op == bmv2json.OpAnd {
				one.yes = no
			}
			if bits.OnesCount64(s.k) == 1 {
				one.op, one.k = opIfEqual, uint64(bits.TrailingZeros64(s.k))
			}
			next = one
			continue
		}
		if op == bmv2json.OpAnd {
			next = l.cond(list[i], next, no)
		} else {
			next = l.cond(list[i], yes, next)
		}
	}
	return next
}

// notZero makes the steps of a number that is taken as a condition.
func (l *lowering) notZero(e *bmv2json.Expr, yes, no *step) *step {
	v := e.Right
	switch {
	case v.Op == bmv2json.OpBoolToData:
		return l.cond(v.Right, yes, no)
	case v.Op == bmv2json.OpField && v.Field.IsValidity():
		return &step{op: opIfValid, a: uint16(v.Field.Header.Index), yes: yes, next: no}
	}
	if fits, _ := interval.Of(v).FitsWord(); fits {
		if o, ok := l.operand(v, 64); ok {
			if !o.konst {
				return o.then(&step{op: opIfEqual, a: uint16(o.lane), yes: no, next: yes})
			}
			if o.k != 0 {
				return yes
			}
			return no
		}
	}
	return l.closure(e, yes, no)
}

// equal makes the steps of an equality of numbers; nil where that takes a closure.
func (l *lowering) equal(e *bmv2json.Expr, yes, no *step) *step {
	left, right := e.Left, e.Right
	if _, vl := varbitOf(left); vl {
		return nil
	}
	if fits, _ := interval.Of(left).Hull(interval.Of(right)).FitsWord(); !fits {
		return nil
	}
	if left.Op == bmv2json.OpConst {
		left, right = right, left
	}
	x, ok := l.operand(left, 64)
	y, also := l.operand(right, 64)
	switch {
	case !ok || !also || x.konst:
		return nil
	case y.konst:
		return x.then(&step{op: opIfEqual, a: uint16(x.lane), k: y.k, yes: yes, next: no})
	}
	return x.then(y.then(&step{op: opIfEqualLane, a: uint16(x.lane), k: uint64(y.lane), yes: yes,
		next: no}))
}

// less makes the steps of left < right; nil where that takes a closure.
func (l *lowering) less(left, right *bmv2json.Expr, yes, no *step) *step {
	if left.Type != bmv2json.TypeData {
		return nil
	}
	if fits, signed := interval.Of(left).Hull(interval.Of(right)).FitsWord(); !fits || signed {
		return nil
	}
	x, ok := l.operand(left, 64)
	y, also := l.operand(right, 64)
	switch {
	case !ok || !also || x.konst && (y.konst || x.k == ^uint64(0)):
		return nil
	case y.konst:
		return x.then(&step{op: opIfLess, a: uint16(x.lane), k: y.k, yes: yes, next: no})
	case x.konst: // y is not less than the number behind
		return y.then(&step{op: opIfLess, a: uint16(y.lane), k: x.k + 1, yes: no, next: yes})
	}
	return x.then(y.then(&step{op: opIfLessLane, a: uint16(x.lane), k: uint64(y.lane), yes: yes,
		next: no}))
}

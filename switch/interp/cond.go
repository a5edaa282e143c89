package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interval"
)

// boolean compiles a condition. The right side of "and" and "or" is not evaluated where the left
// decides: BMv2 evaluates both, but nothing in an expression has an effect.
func (c *exprCompiler) boolean(e *bmv2json.Expr) boolFn {
	switch e.Op {
	case bmv2json.OpBool:
		v := e.Bool
		return func(*state) bool { return v }
	case bmv2json.OpNot:
		r := c.boolean(e.Right)
		return func(st *state) bool { return !r(st) }
	case bmv2json.OpAnd:
		l, r := c.boolean(e.Left), c.boolean(e.Right)
		return func(st *state) bool { return l(st) && r(st) }
	case bmv2json.OpOr:
		l, r := c.boolean(e.Left), c.boolean(e.Right)
		return func(st *state) bool { return l(st) || r(st) }
	case bmv2json.OpTernary:
		cond, l, r := c.boolean(e.Cond), c.boolean(e.Left), c.boolean(e.Right)
		return func(st *state) bool {
			if cond(st) {
				return l(st)
			}
			return r(st)
		}
	case bmv2json.OpDataToBool:
		return c.dataToBool(e.Right)
	case bmv2json.OpValid:
		return c.headerValid(e.Right)
	case bmv2json.OpValidUnion:
		members := c.union(e.Right)
		return func(st *state) bool {
			for _, h := range members(st) {
				if st.valid[h] {
					return true
				}
			}
			return false
		}
	case bmv2json.OpEq, bmv2json.OpNe:
		switch e.Left.Type {
		case bmv2json.TypeBool:
			l, r, ne := c.boolean(e.Left), c.boolean(e.Right), e.Op == bmv2json.OpNe
			return func(st *state) bool { return (l(st) == r(st)) != ne }
		case bmv2json.TypeHeader:
			return negate(c.headersEqual(e.Left, e.Right), e.Op == bmv2json.OpNe)
		case bmv2json.TypeUnion:
			return negate(c.unionsEqual(e.Left, e.Right), e.Op == bmv2json.OpNe)
		}
		if x, ok := varbitOf(e.Left); ok {
			if y, ok := varbitOf(e.Right); ok {
				ne := e.Op == bmv2json.OpNe
				return func(st *state) bool { return (string(st.vl[x]) == string(st.vl[y])) != ne }
			}
		}
	}
	return c.comparison(e)
}

func negate(f boolFn, not bool) boolFn {
	if !not {
		return f
	}
	return func(st *state) bool { return !f(st) }
}

func (c *exprCompiler) headerValid(e *bmv2json.Expr) boolFn {
	h, dyn := c.header(e)
	if dyn == nil {
		return func(st *state) bool { return st.valid[h] }
	}
	return func(st *state) bool {
		h := dyn(st)
		return h >= 0 && st.valid[h]
	}
}

func (c *exprCompiler) dataToBool(e *bmv2json.Expr) boolFn {
	if e.Op == bmv2json.OpField && e.Field.IsValidity() {
		h := e.Field.Header.Index
		return func(st *state) bool { return st.valid[h] }
	}
	if at, ok := c.fixedLane(e); ok {
		return func(st *state) bool { return st.w[at] != 0 }
	}
	if fits, _ := interval.Of(e).FitsWord(); fits {
		v := c.low(e, 64)
		return func(st *state) bool { return v(st) != 0 }
	}
	n := c.exactLanes(e)
	w := c.wide(e, n)
	from, to := c.temp(n)
	return func(st *state) bool {
		t := st.scratch[from:to]
		w(st, t)
		for _, x := range t {
			if x != 0 {
				return true
			}
		}
		return false
	}
}

// comparison compiles a comparison of two numbers.
func (c *exprCompiler) comparison(e *bmv2json.Expr) boolFn {
	op := e.Op
	l, r := e.Left, e.Right
	switch op { // leave equality and less-than
	case bmv2json.OpGt:
		op, l, r = bmv2json.OpLt, r, l
	case bmv2json.OpLe:
		return negate(c.less(r, l), true)
	case bmv2json.OpGe:
		return negate(c.less(l, r), true)
	}
	if op == bmv2json.OpLt {
		return c.less(l, r)
	}
	return c.equal(l, r, op == bmv2json.OpNe)
}

func (c *exprCompiler) equal(l, r *bmv2json.Expr, not bool) boolFn {
	if fits, _ := interval.Of(l).Hull(interval.Of(r)).FitsWord(); fits {
		if l.Op == bmv2json.OpConst {
			l, r = r, l
		}
		x, xok := c.fixedLane(l)
		if r.Op == bmv2json.OpConst {
			k := interval.Word(r.Const, 0)
			switch {
			case xok && !not:
				return func(st *state) bool { return st.w[x] == k }
			case xok:
				return func(st *state) bool { return st.w[x] != k }
			}
			v := c.low(l, 64)
			return func(st *state) bool { return (v(st) == k) != not }
		}
		if y, ok := c.fixedLane(r); ok && xok {
			return func(st *state) bool { return (st.w[x] == st.w[y]) != not }
		}
		a, b := c.low(l, 64), c.low(r, 64)
		return func(st *state) bool { return (a(st) == b(st)) != not }
	}
	return c.wideCompare(l, r, func(cmp int) bool { return (cmp == 0) != not })
}

func (c *exprCompiler) less(l, r *bmv2json.Expr) boolFn {
	fits, signed := interval.Of(l).Hull(interval.Of(r)).FitsWord()
	if !fits {
		return c.wideCompare(l, r, func(cmp int) bool { return cmp < 0 })
	}
	a, b := c.low(l, 64), c.low(r, 64)
	if signed {
		return func(st *state) bool { return int64(a(st)) < int64(b(st)) }
	}
	x, xok := c.fixedLane(l)
	y, yok := c.fixedLane(r)
	switch {
	case xok && yok:
		return func(st *state) bool { return st.w[x] < st.w[y] }
	case xok && r.Op == bmv2json.OpConst:
		k := interval.Word(r.Const, 0)
		return func(st *state) bool { return st.w[x] < k }
	}
	return func(st *state) bool { return a(st) < b(st) }
}

func (c *exprCompiler) wideCompare(l, r *bmv2json.Expr, is func(int) bool) boolFn {
	n := max(c.exactLanes(l), c.exactLanes(r))
	a, b := c.wide(l, n), c.wide(r, n)
	af, at := c.temp(n)
	bf, bt := c.temp(n)
	return func(st *state) bool {
		x, y := st.scratch[af:at], st.scratch[bf:bt]
		a(st, x)
		b(st, y)
		return is(compareSigned(x, y))
	}
}

// headersEqual compares as BMv2 does: two headers are equal if both are valid and all fields are;
// two invalid ones are not.
func (c *exprCompiler) headersEqual(a, b *bmv2json.Expr) boolFn {
	x, y := c.headerIndex(a), c.headerIndex(b)
	same := bmv2json.HeaderTypeOf(a) == bmv2json.HeaderTypeOf(b)
	return func(st *state) bool { return same && st.equalHeaders(x(st), y(st)) }
}

// unionsEqual compares two unions: equal if the same member is valid in both and equal.
func (c *exprCompiler) unionsEqual(a, b *bmv2json.Expr) boolFn {
	x, y := c.union(a), c.union(b)
	return func(st *state) bool {
		mx, my := x(st), y(st)
		for i := range min(len(mx), len(my)) {
			if st.equalHeaders(mx[i], my[i]) {
				return true
			}
		}
		return false
	}
}

// varbitOf is the header of a varbit field.
func varbitOf(e *bmv2json.Expr) (int, bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || !e.Field.Field.VL {
		return 0, false
	}
	return e.Field.Header.Index, true
}

// truth compiles an argument that BMv2 takes as data and tests against 0.
func (c *exprCompiler) truth(e *bmv2json.Expr) boolFn {
	if e.Type == bmv2json.TypeBool {
		return c.boolean(e)
	}
	return c.dataToBool(e)
}

package expression

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/interval"
)

// Condition compiles a condition. The right side of "and" and "or" is not evaluated if the left
// side decides. BMv2 evaluates both, but expressions have no side effects.
func (c *Compiler) Condition(e *bmv2json.Expr) Condition {
	switch e.Op {
	case bmv2json.OpBool:
		v := e.Bool
		return func(*packet.State) bool { return v }
	case bmv2json.OpNot:
		r := c.Condition(e.Right)
		return func(st *packet.State) bool { return !r(st) }
	case bmv2json.OpAnd:
		l, r := c.Condition(e.Left), c.Condition(e.Right)
		return func(st *packet.State) bool { return l(st) && r(st) }
	case bmv2json.OpOr:
		l, r := c.Condition(e.Left), c.Condition(e.Right)
		return func(st *packet.State) bool { return l(st) || r(st) }
	case bmv2json.OpTernary:
		cond, l, r := c.Condition(e.Cond), c.Condition(e.Left), c.Condition(e.Right)
		return func(st *packet.State) bool {
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
		members := c.Union(e.Right)
		return func(st *packet.State) bool {
			for _, h := range members(st) {
				if st.Valid[h] {
					return true
				}
			}
			return false
		}
	case bmv2json.OpEq, bmv2json.OpNe:
		switch e.Left.Type {
		case bmv2json.TypeBool:
			l, r, ne := c.Condition(e.Left), c.Condition(e.Right), e.Op == bmv2json.OpNe
			return func(st *packet.State) bool { return (l(st) == r(st)) != ne }
		case bmv2json.TypeHeader:
			return negate(c.headersEqual(e.Left, e.Right), e.Op == bmv2json.OpNe)
		case bmv2json.TypeUnion:
			return negate(c.unionsEqual(e.Left, e.Right), e.Op == bmv2json.OpNe)
		}
		if x, ok := VarbitOf(e.Left); ok {
			if y, ok := VarbitOf(e.Right); ok {
				ne := e.Op == bmv2json.OpNe
				return func(st *packet.State) bool { return (string(st.Varbits[x]) == string(st.Varbits[y])) != ne }
			}
		}
	}
	return c.comparison(e)
}

func negate(f Condition, not bool) Condition {
	if !not {
		return f
	}
	return func(st *packet.State) bool { return !f(st) }
}

func (c *Compiler) headerValid(e *bmv2json.Expr) Condition {
	h, dyn := c.Header(e)
	if dyn == nil {
		return func(st *packet.State) bool { return st.Valid[h] }
	}
	return func(st *packet.State) bool {
		h := dyn(st)
		return h >= 0 && st.Valid[h]
	}
}

func (c *Compiler) dataToBool(e *bmv2json.Expr) Condition {
	if e.Op == bmv2json.OpField && e.Field.IsValidity() {
		h := e.Field.Header.Index
		return func(st *packet.State) bool { return st.Valid[h] }
	}
	if at, ok := c.FixedLane(e); ok {
		return func(st *packet.State) bool { return st.Lanes[at] != 0 }
	}
	if fits, _ := interval.OfExpr(e).FitsWord(); fits {
		v := c.Number(e, 64)
		return func(st *packet.State) bool { return v(st) != 0 }
	}
	n := c.ExactLanes(e)
	w := c.WideNumber(e, n)
	from, to := c.Scratch(n)
	return func(st *packet.State) bool {
		t := st.Scratch[from:to]
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
func (c *Compiler) comparison(e *bmv2json.Expr) Condition {
	op := e.Op
	l, r := e.Left, e.Right
	switch op { // Other comparisons are reduced to equality and less-than.
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

func (c *Compiler) equal(l, r *bmv2json.Expr, not bool) Condition {
	if fits, _ := interval.OfExpr(l).Hull(interval.OfExpr(r)).FitsWord(); fits {
		if l.Op == bmv2json.OpConst {
			l, r = r, l
		}
		x, xok := c.FixedLane(l)
		if r.Op == bmv2json.OpConst {
			k := interval.Word(r.Const, 0)
			switch {
			case xok && !not:
				return func(st *packet.State) bool { return st.Lanes[x] == k }
			case xok:
				return func(st *packet.State) bool { return st.Lanes[x] != k }
			}
			v := c.Number(l, 64)
			return func(st *packet.State) bool { return (v(st) == k) != not }
		}
		if y, ok := c.FixedLane(r); ok && xok {
			return func(st *packet.State) bool { return (st.Lanes[x] == st.Lanes[y]) != not }
		}
		a, b := c.Number(l, 64), c.Number(r, 64)
		return func(st *packet.State) bool { return (a(st) == b(st)) != not }
	}
	return c.wideCompare(l, r, func(cmp int) bool { return (cmp == 0) != not })
}

func (c *Compiler) less(l, r *bmv2json.Expr) Condition {
	fits, signed := interval.OfExpr(l).Hull(interval.OfExpr(r)).FitsWord()
	if !fits {
		return c.wideCompare(l, r, func(cmp int) bool { return cmp < 0 })
	}
	a, b := c.Number(l, 64), c.Number(r, 64)
	if signed {
		return func(st *packet.State) bool { return int64(a(st)) < int64(b(st)) }
	}
	x, xok := c.FixedLane(l)
	y, yok := c.FixedLane(r)
	switch {
	case xok && yok:
		return func(st *packet.State) bool { return st.Lanes[x] < st.Lanes[y] }
	case xok && r.Op == bmv2json.OpConst:
		k := interval.Word(r.Const, 0)
		return func(st *packet.State) bool { return st.Lanes[x] < k }
	}
	return func(st *packet.State) bool { return a(st) < b(st) }
}

func (c *Compiler) wideCompare(l, r *bmv2json.Expr, is func(int) bool) Condition {
	n := max(c.ExactLanes(l), c.ExactLanes(r))
	a, b := c.WideNumber(l, n), c.WideNumber(r, n)
	af, at := c.Scratch(n)
	bf, bt := c.Scratch(n)
	return func(st *packet.State) bool {
		x, y := st.Scratch[af:at], st.Scratch[bf:bt]
		a(st, x)
		b(st, y)
		return is(wideint.CompareSigned(x, y))
	}
}

// headersEqual compares headers as BMv2 does. Two headers are equal if both are valid and all their
// fields are equal. Two invalid headers are not equal.
func (c *Compiler) headersEqual(a, b *bmv2json.Expr) Condition {
	x, y := c.HeaderIndex(a), c.HeaderIndex(b)
	same := bmv2json.HeaderTypeOf(a) == bmv2json.HeaderTypeOf(b)
	return func(st *packet.State) bool { return same && st.EqualHeaders(x(st), y(st)) }
}

// unionsEqual compares two unions. They are equal if the same member is valid in both, and this
// member is equal.
func (c *Compiler) unionsEqual(a, b *bmv2json.Expr) Condition {
	x, y := c.Union(a), c.Union(b)
	return func(st *packet.State) bool {
		mx, my := x(st), y(st)
		for i := range min(len(mx), len(my)) {
			if st.EqualHeaders(mx[i], my[i]) {
				return true
			}
		}
		return false
	}
}

// VarbitOf returns the index of the header of a varbit field.
func VarbitOf(e *bmv2json.Expr) (int, bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || !e.Field.Field.VL {
		return 0, false
	}
	return e.Field.Header.Index, true
}

// Truth compiles an argument that BMv2 treats as a number and compares with 0.
func (c *Compiler) Truth(e *bmv2json.Expr) Condition {
	if e.Type == bmv2json.TypeBool {
		return c.Condition(e)
	}
	return c.dataToBool(e)
}

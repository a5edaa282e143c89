package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interval"
)

// exactLanes is how many lanes hold every value of e as two's complement.
func (c *exprCompiler) exactLanes(e *bmv2json.Expr) int {
	r := interval.Of(e)
	if !r.Bounded() {
		refuse(e.Path,
			"the value of this %q has no bound that can be told when the program is loaded", e.Op)
	}
	return lanesOf(r.Bits())
}

// wide compiles a data expression for a destination of n lanes: the function sets all n to the
// value as two's complement, cut to n lanes.
func (c *exprCompiler) wide(e *bmv2json.Expr, n int) wideFn {
	if fits, signed := interval.Of(e).FitsWord(); fits && e.Op != bmv2json.OpConst {
		if n == 1 && needsWide(e.Op) {
			// low would come back here for what it cannot do in one lane
			if f := c.wideOnly(e, n); f != nil {
				return f
			}
		}
		v := c.low(e, 64)
		if signed {
			return func(st *state, dst []uint64) {
				x := v(st)
				dst[0] = x
				fill(dst[1:], uint64(int64(x)>>63))
			}
		}
		return func(st *state, dst []uint64) {
			dst[0] = v(st)
			clear(dst[1:])
		}
	}
	if f := c.wideOnly(e, n); f != nil {
		return f
	}
	refuse(e.Path, "the operation %q", e.Op)
	return nil
}

// needsWide says for which operations low may fall back on wide.
func needsWide(op bmv2json.ExprOp) bool {
	switch op {
	case bmv2json.OpShr, bmv2json.OpDiv, bmv2json.OpMod, bmv2json.OpSatCast, bmv2json.OpUsatCast:
		return true
	}
	return false
}

func (c *exprCompiler) wideOnly(e *bmv2json.Expr, n int) wideFn {
	switch e.Op {
	case bmv2json.OpConst:
		k := make([]uint64, n)
		lanesFromBig(k, e.Const)
		return func(_ *state, dst []uint64) { copy(dst, k) }
	case bmv2json.OpField, bmv2json.OpStackField, bmv2json.OpUnionStackField,
		bmv2json.OpAccessField:
		return c.wideLoad(e, n)
	case bmv2json.OpLocal:
		p := c.params[e.Index]
		from, to := p.lane, p.lane+min(n, lanesOf(p.width))
		return func(st *state, dst []uint64) { clear(dst[copy(dst, st.params[from:to]):]) }
	case bmv2json.OpRegister:
		idx, a, signed := c.index(e.Left), c.cells[e.Register.Index], e.Register.Signed
		return func(st *state, dst []uint64) {
			i := idx(st)
			if i >= uint64(a.size) {
				clear(dst)
				return
			}
			copyExtended(dst, a.cells[int(i)*a.lanes:(int(i)+1)*a.lanes], a.width, signed)
		}
	case bmv2json.OpTernary:
		cond, l, r := c.boolean(e.Cond), c.wide(e.Left, n), c.wide(e.Right, n)
		return func(st *state, dst []uint64) {
			if cond(st) {
				l(st, dst)
			} else {
				r(st, dst)
			}
		}
	case bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpMul, bmv2json.OpBitAnd, bmv2json.OpBitOr,
		bmv2json.OpBitXor:
		return c.wideBinary(e, n)
	case bmv2json.OpBitNot:
		r := c.wide(e.Right, n)
		return func(st *state, dst []uint64) {
			r(st, dst)
			for i := range dst {
				dst[i] = ^dst[i]
			}
		}
	case bmv2json.OpShl:
		l, k := c.wide(e.Left, n), c.index(e.Right)
		return func(st *state, dst []uint64) {
			l(st, dst)
			shiftLeft(dst, k(st))
		}
	case bmv2json.OpShr:
		m := max(c.exactLanes(e.Left), n)
		l, k := c.wide(e.Left, m), c.index(e.Right)
		from, to := c.temp(m)
		return func(st *state, dst []uint64) {
			t := st.scratch[from:to]
			l(st, t)
			shiftRightSigned(t, k(st))
			copy(dst, t)
		}
	case bmv2json.OpDiv, bmv2json.OpMod:
		return c.wideDivide(e, n)
	case bmv2json.OpTwoCompMod:
		m := max(lanesOf(e.Width), n)
		l, w := c.wide(e.Left, m), e.Width
		from, to := c.temp(m)
		return func(st *state, dst []uint64) {
			t := st.scratch[from:to]
			l(st, t)
			t[lanesOf(w)-1] &= topMask(w)
			copyExtended(dst, t[:lanesOf(w)], w, true)
		}
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		bound := interval.Of(e)
		m := max(c.exactLanes(e.Left), lanesOf(bound.Bits()), n)
		lo, hi := make([]uint64, m), make([]uint64, m)
		lanesFromBig(lo, bound.Lo)
		lanesFromBig(hi, bound.Hi)
		l := c.wide(e.Left, m)
		from, to := c.temp(m)
		return func(st *state, dst []uint64) {
			t := st.scratch[from:to]
			l(st, t)
			switch {
			case compareSigned(t, lo) < 0:
				copy(dst, lo)
			case compareSigned(t, hi) > 0:
				copy(dst, hi)
			default:
				copy(dst, t)
			}
		}
	}
	return nil
}

func (c *exprCompiler) wideLoad(e *bmv2json.Expr, n int) wideFn {
	pl := c.placeOf(e)
	w, lanes, signed, lane := pl.width, pl.lanes(), pl.signed, pl.lane
	switch {
	case pl.dyn != nil:
		dyn := pl.dyn
		return func(st *state, dst []uint64) {
			at := dyn(st)
			if at < 0 {
				clear(dst)
				return
			}
			copyExtended(dst, st.w[at:at+lanes], w, signed)
		}
	case !signed:
		return func(st *state, dst []uint64) { clear(dst[copy(dst, st.w[lane:lane+lanes]):]) }
	}
	return func(st *state, dst []uint64) { copyExtended(dst, st.w[lane:lane+lanes], w, true) }
}

func (c *exprCompiler) wideBinary(e *bmv2json.Expr, n int) wideFn {
	l, r := c.wide(e.Left, n), c.wide(e.Right, n)
	from, to := c.temp(n)
	if e.Op == bmv2json.OpMul {
		lf, lt := c.temp(n)
		return func(st *state, dst []uint64) {
			x, y := st.scratch[lf:lt], st.scratch[from:to]
			l(st, x)
			r(st, y)
			multiply(dst, x, y)
		}
	}
	op := map[bmv2json.ExprOp]func(dst, t []uint64){
		bmv2json.OpAdd:    addLanes,
		bmv2json.OpSub:    subLanes,
		bmv2json.OpBitAnd: andLanes,
		bmv2json.OpBitOr:  orLanes,
		bmv2json.OpBitXor: xorLanes,
	}[e.Op]
	return func(st *state, dst []uint64) {
		t := st.scratch[from:to]
		l(st, dst)
		r(st, t)
		op(dst, t)
	}
}

// wideDivide goes through math/big, and so allocates: no program that p4c lets through divides wide
// fields by wide fields.
func (c *exprCompiler) wideDivide(e *bmv2json.Expr, n int) wideFn {
	if !interval.Of(e.Left).NonNegative() || !interval.Of(e.Right).NonNegative() {
		refuse(e.Path, "the operation %q on signed numbers", e.Op)
	}
	ln, rn, div := c.exactLanes(e.Left), c.exactLanes(e.Right), e.Op == bmv2json.OpDiv
	l, r := c.wide(e.Left, ln), c.wide(e.Right, rn)
	lf, lt := c.temp(ln)
	rf, rt := c.temp(rn)
	return func(st *state, dst []uint64) {
		x, y := st.scratch[lf:lt], st.scratch[rf:rt]
		l(st, x)
		r(st, y)
		a, b := bigFromLanes(x), bigFromLanes(y)
		switch {
		case b.Sign() == 0:
			clear(dst)
			return
		case div:
			a.Quo(a, b)
		default:
			a.Rem(a, b)
		}
		lanesFromBig(dst, a)
	}
}

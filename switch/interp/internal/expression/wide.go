package expression

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/interval"
)

// ExactLanes returns the number of lanes that hold every value of e in two's complement.
func (c *Compiler) ExactLanes(e *bmv2json.Expr) int {
	r := interval.OfExpr(e)
	if !r.Bounded() {
		refusal.Panic(e.Path,
			"the value of this %q has no bound that can be told when the program is loaded", e.Op)
	}
	return wideint.Lanes(r.Bits())
}

// WideNumber compiles a data expression for a destination of n lanes. The result sets all n lanes
// to the value in two's complement, truncated to n lanes.
func (c *Compiler) WideNumber(e *bmv2json.Expr, n int) WideNumber {
	if fits, signed := interval.OfExpr(e).FitsWord(); fits && e.Op != bmv2json.OpConst {
		if n == 1 && needsWide(e.Op) {
			// wideOnly must come first. If Number cannot compute a value in one lane, Number calls
			// WideNumber, which would never end.
			if f := c.wideOnly(e, n); f != nil {
				return f
			}
		}
		v := c.Number(e, 64)
		if signed {
			return func(st *packet.State, dst []uint64) {
				x := v(st)
				dst[0] = x
				wideint.Fill(dst[1:], uint64(int64(x)>>63))
			}
		}
		return func(st *packet.State, dst []uint64) {
			dst[0] = v(st)
			clear(dst[1:])
		}
	}
	if f := c.wideOnly(e, n); f != nil {
		return f
	}
	refusal.Panic(e.Path, "the operation %q", e.Op)
	return nil
}

// needsWide reports whether Number may use WideNumber for this operation.
func needsWide(op bmv2json.ExprOp) bool {
	switch op {
	case bmv2json.OpShr, bmv2json.OpDiv, bmv2json.OpMod, bmv2json.OpSatCast, bmv2json.OpUsatCast:
		return true
	}
	return false
}

func (c *Compiler) wideOnly(e *bmv2json.Expr, n int) WideNumber {
	switch e.Op {
	case bmv2json.OpConst:
		k := make([]uint64, n)
		wideint.SetBig(k, e.Const)
		return func(_ *packet.State, dst []uint64) { copy(dst, k) }
	case bmv2json.OpField, bmv2json.OpStackField, bmv2json.OpUnionStackField,
		bmv2json.OpAccessField:
		return c.wideLoad(e, n)
	case bmv2json.OpLocal:
		p := c.Params[e.Index]
		from, to := p.Lane, p.Lane+min(n, wideint.Lanes(p.Width))
		return func(st *packet.State, dst []uint64) { clear(dst[copy(dst, st.Parameters[from:to]):]) }
	case bmv2json.OpRegister:
		idx, a, signed := c.Index(e.Left), c.registers[e.Register.Index], e.Register.Signed
		return func(st *packet.State, dst []uint64) {
			i := idx(st)
			if i >= uint64(a.Size) {
				clear(dst)
				return
			}
			wideint.CopyExtended(dst, a.Cells[int(i)*a.Lanes:(int(i)+1)*a.Lanes], a.Width, signed)
		}
	case bmv2json.OpTernary:
		cond, l, r := c.Condition(e.Cond), c.WideNumber(e.Left, n), c.WideNumber(e.Right, n)
		return func(st *packet.State, dst []uint64) {
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
		r := c.WideNumber(e.Right, n)
		return func(st *packet.State, dst []uint64) {
			r(st, dst)
			for i := range dst {
				dst[i] = ^dst[i]
			}
		}
	case bmv2json.OpShl:
		l, k := c.WideNumber(e.Left, n), c.Index(e.Right)
		return func(st *packet.State, dst []uint64) {
			l(st, dst)
			wideint.ShiftLeft(dst, k(st))
		}
	case bmv2json.OpShr:
		m := max(c.ExactLanes(e.Left), n)
		l, k := c.WideNumber(e.Left, m), c.Index(e.Right)
		from, to := c.Scratch(m)
		return func(st *packet.State, dst []uint64) {
			t := st.Scratch[from:to]
			l(st, t)
			wideint.ShiftRightSigned(t, k(st))
			copy(dst, t)
		}
	case bmv2json.OpDiv, bmv2json.OpMod:
		return c.wideDivide(e, n)
	case bmv2json.OpTwoCompMod:
		m := max(wideint.Lanes(e.Width), n)
		l, w := c.WideNumber(e.Left, m), e.Width
		from, to := c.Scratch(m)
		return func(st *packet.State, dst []uint64) {
			t := st.Scratch[from:to]
			l(st, t)
			t[wideint.Lanes(w)-1] &= wideint.TopMask(w)
			wideint.CopyExtended(dst, t[:wideint.Lanes(w)], w, true)
		}
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		return c.wideSaturated(e, n)
	}
	return nil
}

// wideSaturated compiles a saturating cast, which returns the nearest number of a type.
func (c *Compiler) wideSaturated(e *bmv2json.Expr, n int) WideNumber {
	bound := interval.OfExpr(e)
	m := max(c.ExactLanes(e.Left), wideint.Lanes(bound.Bits()), n)
	lo, hi := make([]uint64, m), make([]uint64, m)
	wideint.SetBig(lo, bound.Lo)
	wideint.SetBig(hi, bound.Hi)
	l := c.WideNumber(e.Left, m)
	from, to := c.Scratch(m)
	return func(st *packet.State, dst []uint64) {
		t := st.Scratch[from:to]
		l(st, t)
		switch {
		case wideint.CompareSigned(t, lo) < 0:
			copy(dst, lo)
		case wideint.CompareSigned(t, hi) > 0:
			copy(dst, hi)
		default:
			copy(dst, t)
		}
	}
}

func (c *Compiler) wideLoad(e *bmv2json.Expr, n int) WideNumber {
	pl := c.PlaceOf(e)
	w, lanes, signed, lane := pl.Width, pl.Lanes(), pl.signed, pl.Lane
	switch {
	case pl.Find != nil:
		dyn := pl.Find
		return func(st *packet.State, dst []uint64) {
			at := dyn(st)
			if at < 0 {
				clear(dst)
				return
			}
			wideint.CopyExtended(dst, st.Lanes[at:at+lanes], w, signed)
		}
	case !signed:
		return func(st *packet.State, dst []uint64) { clear(dst[copy(dst, st.Lanes[lane:lane+lanes]):]) }
	}
	return func(st *packet.State, dst []uint64) { wideint.CopyExtended(dst, st.Lanes[lane:lane+lanes], w, true) }
}

func (c *Compiler) wideBinary(e *bmv2json.Expr, n int) WideNumber {
	l, r := c.WideNumber(e.Left, n), c.WideNumber(e.Right, n)
	from, to := c.Scratch(n)
	if e.Op == bmv2json.OpMul {
		lf, lt := c.Scratch(n)
		return func(st *packet.State, dst []uint64) {
			x, y := st.Scratch[lf:lt], st.Scratch[from:to]
			l(st, x)
			r(st, y)
			wideint.Multiply(dst, x, y)
		}
	}
	op := map[bmv2json.ExprOp]func(dst, t []uint64){
		bmv2json.OpAdd:    wideint.Add,
		bmv2json.OpSub:    wideint.Sub,
		bmv2json.OpBitAnd: wideint.And,
		bmv2json.OpBitOr:  wideint.Or,
		bmv2json.OpBitXor: wideint.Xor,
	}[e.Op]
	return func(st *packet.State, dst []uint64) {
		t := st.Scratch[from:to]
		l(st, dst)
		r(st, t)
		op(dst, t)
	}
}

// wideDivide uses math/big and therefore allocates memory. This is acceptable, because no program
// that p4c accepts divides wide fields by wide fields.
func (c *Compiler) wideDivide(e *bmv2json.Expr, n int) WideNumber {
	if !interval.OfExpr(e.Left).NonNegative() || !interval.OfExpr(e.Right).NonNegative() {
		refusal.Panic(e.Path, "the operation %q on signed numbers", e.Op)
	}
	ln, rn, div := c.ExactLanes(e.Left), c.ExactLanes(e.Right), e.Op == bmv2json.OpDiv
	l, r := c.WideNumber(e.Left, ln), c.WideNumber(e.Right, rn)
	lf, lt := c.Scratch(ln)
	rf, rt := c.Scratch(rn)
	return func(st *packet.State, dst []uint64) {
		x, y := st.Scratch[lf:lt], st.Scratch[rf:rt]
		l(st, x)
		r(st, y)
		a, b := wideint.Big(x), wideint.Big(y)
		switch {
		case b.Sign() == 0:
			clear(dst)
			return
		case div:
			a.Quo(a, b)
		default:
			a.Rem(a, b)
		}
		wideint.SetBig(dst, a)
	}
}

package interp

import (
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// BMv2's expressions are on integers without bound; only storing truncates. An engine on 64-bit lanes can be exact all the same, because almost every
// expression that p4c writes stays within bounds that can be told beforehand: the operands are fields of known width, and p4c masks what could overflow.
// So each expression gets an interval that its value cannot leave. If the interval fits 64 bits, signed or unsigned, so does the arithmetic; if it fits
// some larger number of bits, that many lanes do; and sums, products, left shifts and bitwise operations need, for the low n bits of the result, only the
// low n bits of the operands, whatever the interval. Only where none of this helps (a right shift of an unbounded left shift) the program is refused.

// interval is [lo, hi]; nil bounds mean none is known.
type interval struct{ lo, hi *big.Int }

var (
	zero = new(big.Int)
	one  = big.NewInt(1)
)

// maxShift bounds the left shift for which an interval is still computed.
const maxShift = 1 << 14

func pow2(n int) *big.Int { return new(big.Int).Lsh(one, uint(n)) }

func unsignedRange(width int) interval {
	return interval{zero, new(big.Int).Sub(pow2(width), one)}
}

func signedRange(width int) interval {
	h := pow2(width - 1)
	return interval{new(big.Int).Neg(h), new(big.Int).Sub(h, one)}
}

func widthRange(width int, signed bool) interval {
	if signed {
		return signedRange(width)
	}
	return unsignedRange(width)
}

func (r interval) bounded() bool     { return r.lo != nil && r.hi != nil }
func (r interval) nonNegative() bool { return r.lo != nil && r.lo.Sign() >= 0 }

// within reports whether every value of r is a value of s.
func (r interval) within(s interval) bool {
	return r.bounded() && r.lo.Cmp(s.lo) >= 0 && r.hi.Cmp(s.hi) <= 0
}

func (r interval) hull(s interval) interval {
	if !r.bounded() || !s.bounded() {
		return interval{}
	}
	out := r
	if s.lo.Cmp(out.lo) < 0 {
		out.lo = s.lo
	}
	if s.hi.Cmp(out.hi) > 0 {
		out.hi = s.hi
	}
	return out
}

// bits is the number of bits of two's complement that hold every value of r; for a range without negative numbers one of them is the sign, always 0.
func (r interval) bits() int {
	n := r.hi.BitLen()
	if r.lo.Sign() < 0 {
		n = max(n, new(big.Int).Not(r.lo).BitLen())
	}
	return n + 1
}

var (
	rangeU64 = unsignedRange(64)
	rangeI64 = signedRange(64)
)

// rangeOf is the interval of a data expression.
func (c *compiler) rangeOf(e *bmv2json.Expr) interval {
	if r, ok := c.ranges[e]; ok {
		return r
	}
	r := c.computeRange(e)
	c.ranges[e] = r
	return r
}

func (c *compiler) computeRange(e *bmv2json.Expr) interval {
	switch e.Op {
	case bmv2json.OpConst:
		return interval{e.Const, e.Const}
	case bmv2json.OpField, bmv2json.OpStackField, bmv2json.OpUnionStackField, bmv2json.OpAccessField:
		return widthRange(max(e.Width, 1), e.Signed)
	case bmv2json.OpRegister:
		return widthRange(e.Width, e.Register.Signed)
	case bmv2json.OpLocal, bmv2json.OpLookahead:
		return unsignedRange(e.Width)
	case bmv2json.OpBoolToData:
		return unsignedRange(1)
	case bmv2json.OpLastIndex, bmv2json.OpStackSize:
		return signedRange(32)
	case bmv2json.OpTernary:
		return c.rangeOf(e.Left).hull(c.rangeOf(e.Right))
	case bmv2json.OpTwoCompMod:
		if l := c.rangeOf(e.Left); l.within(signedRange(e.Width)) {
			return l
		}
		return signedRange(e.Width)
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		return widthRange(e.Width, e.Signed)
	case bmv2json.OpBitNot:
		r := c.rangeOf(e.Right)
		if !r.bounded() {
			return interval{}
		}
		return interval{new(big.Int).Not(r.hi), new(big.Int).Not(r.lo)}
	}
	l, r := c.rangeOf(e.Left), c.rangeOf(e.Right)
	if e.Op == bmv2json.OpBitAnd {
		switch {
		case l.nonNegative() && r.nonNegative() && l.bounded() && r.bounded():
			return interval{zero, minBig(l.hi, r.hi)}
		case l.nonNegative() && l.bounded():
			return interval{zero, l.hi}
		case r.nonNegative() && r.bounded():
			return interval{zero, r.hi}
		}
	}
	if e.Op == bmv2json.OpMod && r.bounded() && r.hi.Sign() > 0 {
		return interval{zero, new(big.Int).Sub(r.hi, one)}
	}
	if !l.bounded() || !r.bounded() {
		return interval{}
	}
	switch e.Op {
	case bmv2json.OpAdd:
		return interval{new(big.Int).Add(l.lo, r.lo), new(big.Int).Add(l.hi, r.hi)}
	case bmv2json.OpSub:
		return interval{new(big.Int).Sub(l.lo, r.hi), new(big.Int).Sub(l.hi, r.lo)}
	case bmv2json.OpMul:
		out := interval{}
		for _, x := range []*big.Int{l.lo, l.hi} {
			for _, y := range []*big.Int{r.lo, r.hi} {
				v := new(big.Int).Mul(x, y)
				if out.lo == nil || v.Cmp(out.lo) < 0 {
					out.lo = v
				}
				if out.hi == nil || v.Cmp(out.hi) > 0 {
					out.hi = v
				}
			}
		}
		return out
	case bmv2json.OpDiv, bmv2json.OpMod:
		return l.hull(interval{zero, zero})
	case bmv2json.OpShl:
		if r.hi.Cmp(big.NewInt(maxShift)) > 0 {
			return interval{}
		}
		n := uint(r.hi.Int64())
		return interval{new(big.Int).Lsh(l.lo, n), new(big.Int).Lsh(l.hi, n)}.hull(l)
	case bmv2json.OpShr:
		return l.hull(interval{zero, zero})
	default: // the bitwise operations: no more bits than the wider operand has
		n := max(l.bits(), r.bits())
		if l.nonNegative() && r.nonNegative() {
			return unsignedRange(n - 1)
		}
		return signedRange(n)
	}
}

func minBig(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

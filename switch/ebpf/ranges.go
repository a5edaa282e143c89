package ebpf

import (
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// BMv2's expressions are on integers without bound; only storing cuts them to a width. eBPF has 64 bits. Each expression therefore gets an interval that its
// value cannot leave: where that fits 64 bits so does the arithmetic, and where it does not the operation is done word by word, or refused.

// interval is [lo, hi]; nil bounds mean that none is known.
type interval struct{ lo, hi *big.Int }

var (
	zero = new(big.Int)
	one  = big.NewInt(1)
)

func pow2(n int) *big.Int { return new(big.Int).Lsh(one, uint(n)) }

func unsignedRange(width int) interval { return interval{zero, new(big.Int).Sub(pow2(width), one)} }

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

// within reports whether every value of r is one of s.
func (r interval) within(s interval) bool {
	return r.bounded() && r.lo.Cmp(s.lo) >= 0 && r.hi.Cmp(s.hi) <= 0
}

func (r interval) hull(s interval) interval {
	if !r.bounded() || !s.bounded() {
		return interval{}
	}
	return interval{minBig(r.lo, s.lo), maxBig(r.hi, s.hi)}
}

// bits is how many bits of two's complement hold every value of r.
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

func minBig(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func maxBig(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// maxShift bounds the left shifts for which an interval is computed.
const maxShift = 1 << 14

// rangeOf is the interval of a data expression.
func rangeOf(e *bmv2json.Expr) interval {
	switch e.Op {
	case bmv2json.OpConst:
		return interval{e.Const, e.Const}
	case bmv2json.OpField, bmv2json.OpStackField, bmv2json.OpUnionStackField, bmv2json.OpAccessField:
		return widthRange(max(e.Width, 1), e.Signed)
	case bmv2json.OpRegister:
		return widthRange(e.Width, e.Register.Signed)
	case bmv2json.OpLocal, bmv2json.OpLookahead:
		return unsignedRange(max(e.Width, 1))
	case bmv2json.OpBoolToData:
		return unsignedRange(1)
	case bmv2json.OpLastIndex, bmv2json.OpStackSize:
		return signedRange(32)
	case bmv2json.OpTernary:
		return rangeOf(e.Left).hull(rangeOf(e.Right))
	case bmv2json.OpTwoCompMod:
		if l := rangeOf(e.Left); l.within(signedRange(e.Width)) {
			return l
		}
		return signedRange(e.Width)
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		return widthRange(e.Width, e.Op == bmv2json.OpSatCast)
	case bmv2json.OpBitNot:
		r := rangeOf(e.Right)
		if !r.bounded() {
			return interval{}
		}
		return interval{new(big.Int).Not(r.hi), new(big.Int).Not(r.lo)}
	}
	return rangeOfBinary(e.Op, rangeOf(e.Left), rangeOf(e.Right))
}

func rangeOfBinary(op bmv2json.ExprOp, l, r interval) interval {
	switch {
	case op == bmv2json.OpBitAnd && l.nonNegative() && l.bounded() && r.nonNegative() && r.bounded():
		return interval{zero, minBig(l.hi, r.hi)}
	case op == bmv2json.OpBitAnd && l.nonNegative() && l.bounded():
		return interval{zero, l.hi}
	case op == bmv2json.OpBitAnd && r.nonNegative() && r.bounded():
		return interval{zero, r.hi}
	case !l.bounded() || !r.bounded():
		return interval{}
	}
	switch op {
	case bmv2json.OpAdd:
		return interval{new(big.Int).Add(l.lo, r.lo), new(big.Int).Add(l.hi, r.hi)}
	case bmv2json.OpSub:
		return interval{new(big.Int).Sub(l.lo, r.hi), new(big.Int).Sub(l.hi, r.lo)}
	case bmv2json.OpMul:
		var out interval
		for _, x := range []*big.Int{l.lo, l.hi} {
			for _, y := range []*big.Int{r.lo, r.hi} {
				v := new(big.Int).Mul(x, y)
				if out.lo == nil {
					out = interval{v, v}
				}
				out = interval{minBig(out.lo, v), maxBig(out.hi, v)}
			}
		}
		return out
	case bmv2json.OpDiv, bmv2json.OpMod, bmv2json.OpShr:
		return l.hull(interval{zero, zero})
	case bmv2json.OpShl:
		if r.hi.Cmp(big.NewInt(maxShift)) > 0 || r.lo.Sign() < 0 {
			return interval{}
		}
		n := uint(r.hi.Int64())
		return interval{new(big.Int).Lsh(l.lo, n), new(big.Int).Lsh(l.hi, n)}.hull(l)
	}
	n := max(l.bits(), r.bits()) // the bitwise operations: no more bits than the wider operand has
	if l.nonNegative() && r.nonNegative() {
		return unsignedRange(n - 1)
	}
	return signedRange(n)
}

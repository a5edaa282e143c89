package interval

import (
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// MaxShift is the largest left shift, in bits, for which an interval is computed.
const MaxShift = 1 << 14

// Interval is the set of integers from Lo to Hi. If nothing is known, both bounds are nil. The
// numbers are never modified.
type Interval struct{ Lo, Hi *big.Int }

var (
	zero = new(big.Int)
	one  = big.NewInt(1)

	// U64 and I64 are the values of a 64-bit word.
	U64 = Unsigned(64)
	I64 = Signed(64)
)

// Unsigned returns the interval of bit<width>.
func Unsigned(width int) Interval {
	h := new(big.Int).Lsh(one, uint(width))
	return Interval{zero, h.Sub(h, one)}
}

// Signed returns the interval of int<width>, which has at least one bit.
func Signed(width int) Interval {
	h := new(big.Int).Lsh(one, uint(width-1))
	return Interval{new(big.Int).Neg(h), new(big.Int).Sub(h, one)}
}

// Integers returns the interval of bit<width> or int<width>.
func Integers(width int, signed bool) Interval {
	if signed {
		return Signed(width)
	}
	return Unsigned(width)
}

// Bounded reports whether bounds are known.
func (r Interval) Bounded() bool { return r.Lo != nil && r.Hi != nil }

// NonNegative reports whether no value can be negative.
func (r Interval) NonNegative() bool { return r.Lo != nil && r.Lo.Sign() >= 0 }

// Within reports whether every value of r is in s. s must be bounded.
func (r Interval) Within(s Interval) bool {
	return r.Bounded() && r.Lo.Cmp(s.Lo) >= 0 && r.Hi.Cmp(s.Hi) <= 0
}

// FitsWord reports whether a 64-bit word holds every value, and whether the word must be signed for
// that.
func (r Interval) FitsWord() (fits, signed bool) {
	if r.Within(U64) {
		return true, false
	}
	return r.Within(I64), true
}

// Hull returns the smallest interval that contains both intervals.
func (r Interval) Hull(s Interval) Interval {
	if !r.Bounded() || !s.Bounded() {
		return Interval{}
	}
	return Interval{Min(r.Lo, s.Lo), Max(r.Hi, s.Hi)}
}

// Bits returns the number of bits in which two's complement holds every value of r. r must be
// bounded. If no value is negative, the sign bit, which is then always 0, is included.
func (r Interval) Bits() int {
	n := 0
	for _, v := range []*big.Int{r.Lo, r.Hi} {
		if v.Sign() < 0 {
			v = new(big.Int).Not(v)
		}
		n = max(n, v.BitLen())
	}
	return n + 1
}

// Word returns the i-th 64-bit word of a number in unbounded two's complement. Word 0 is the least
// significant.
func Word(v *big.Int, i int) uint64 {
	// Rsh rounds towards minus infinity, as two's complement does.
	x := new(big.Int).Rsh(v, uint(64*i))
	return x.And(x, U64.Hi).Uint64()
}

// Min returns the lesser of two numbers.
func Min(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// Max returns the greater of two numbers.
func Max(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// OfExpr returns the interval of an expression of type TypeData (bmv2json.Expr).
func OfExpr(e *bmv2json.Expr) Interval {
	switch e.Op {
	case bmv2json.OpConst:
		return Interval{e.Const, e.Const}
	case bmv2json.OpField, bmv2json.OpStackField, bmv2json.OpUnionStackField,
		bmv2json.OpAccessField:
		return Integers(max(e.Width, 1), e.Signed)
	case bmv2json.OpRegister:
		return Integers(e.Width, e.Register.Signed)
	case bmv2json.OpLocal, bmv2json.OpLookahead:
		return Unsigned(max(e.Width, 1))
	case bmv2json.OpBoolToData:
		return Unsigned(1)
	case bmv2json.OpLastIndex, bmv2json.OpStackSize:
		return Signed(32)
	case bmv2json.OpTernary:
		return OfExpr(e.Left).Hull(OfExpr(e.Right))
	case bmv2json.OpTwoCompMod:
		if l := OfExpr(e.Left); l.Within(Signed(e.Width)) {
			return l
		}
		return Signed(e.Width)
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		return Integers(e.Width, e.Op == bmv2json.OpSatCast)
	case bmv2json.OpBitNot:
		r := OfExpr(e.Right)
		if !r.Bounded() {
			return Interval{}
		}
		return Interval{new(big.Int).Not(r.Hi), new(big.Int).Not(r.Lo)}
	}
	return binary(e.Op, OfExpr(e.Left), OfExpr(e.Right))
}

// binary returns the interval of an operation's results, given the intervals of its operands.
func binary(op bmv2json.ExprOp, l, r Interval) Interval {
	switch {
	case op == bmv2json.OpBitAnd && l.NonNegative() && r.NonNegative():
		return Interval{zero, Min(l.Hi, r.Hi)}
	case op == bmv2json.OpBitAnd && l.NonNegative():
		return Interval{zero, l.Hi}
	case op == bmv2json.OpBitAnd && r.NonNegative():
		return Interval{zero, r.Hi}
	case !l.Bounded() || !r.Bounded():
		return Interval{}
	}
	switch op {
	case bmv2json.OpAdd:
		return Interval{new(big.Int).Add(l.Lo, r.Lo), new(big.Int).Add(l.Hi, r.Hi)}
	case bmv2json.OpSub:
		return Interval{new(big.Int).Sub(l.Lo, r.Hi), new(big.Int).Sub(l.Hi, r.Lo)}
	case bmv2json.OpMul:
		first := new(big.Int).Mul(l.Lo, r.Lo)
		out := Interval{first, first}
		for _, v := range []*big.Int{new(big.Int).Mul(l.Lo, r.Hi), new(big.Int).Mul(l.Hi, r.Lo),
			new(big.Int).Mul(l.Hi, r.Hi)} {
			out = out.Hull(Interval{v, v})
		}
		return out
	case bmv2json.OpMod:
		if l.NonNegative() && r.NonNegative() && r.Hi.Sign() > 0 {
			return Interval{zero, Min(l.Hi, new(big.Int).Sub(r.Hi, one))}
		}
		return l.Hull(Interval{zero, zero})
	case bmv2json.OpDiv:
		if !r.NonNegative() {
			l = l.Hull(Interval{new(big.Int).Neg(l.Hi), new(big.Int).Neg(l.Lo)})
		}
		return l.Hull(Interval{zero, zero})
	case bmv2json.OpShr:
		return l.Hull(Interval{zero, zero})
	case bmv2json.OpShl:
		if r.Hi.Cmp(big.NewInt(MaxShift)) > 0 || r.Lo.Sign() < 0 {
			return Interval{}
		}
		n := uint(r.Hi.Int64())
		return Interval{new(big.Int).Lsh(l.Lo, n), new(big.Int).Lsh(l.Hi, n)}.Hull(l)
	default: // In bitwise operations, the result has no more bits than the wider operand.
		n := max(l.Bits(), r.Bits())
		if l.NonNegative() && r.NonNegative() {
			return Unsigned(n - 1)
		}
		return Signed(n)
	}
}

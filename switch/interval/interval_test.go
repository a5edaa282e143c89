package interval

import (
	"math/big"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// operations compute BMv2's results. They return nil if BMv2 has no result.
var operations = map[bmv2json.ExprOp]func(a, b *big.Int) *big.Int{
	bmv2json.OpAdd: func(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) },
	bmv2json.OpSub: func(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) },
	bmv2json.OpMul: func(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) },
	bmv2json.OpDiv: func(a, b *big.Int) *big.Int {
		if b.Sign() == 0 {
			return zero // the engines return 0, while BMv2 stops
		}
		return new(big.Int).Quo(a, b)
	},
	bmv2json.OpMod: func(a, b *big.Int) *big.Int {
		if b.Sign() == 0 {
			return zero
		}
		return new(big.Int).Rem(a, b)
	},
	bmv2json.OpShl: func(a, b *big.Int) *big.Int {
		if b.Sign() < 0 {
			return nil
		}
		return new(big.Int).Lsh(a, uint(b.Uint64()))
	},
	bmv2json.OpShr: func(a, b *big.Int) *big.Int {
		if b.Sign() < 0 {
			return nil
		}
		return new(big.Int).Rsh(a, uint(b.Uint64()))
	},
	bmv2json.OpBitAnd: func(a, b *big.Int) *big.Int { return new(big.Int).And(a, b) },
	bmv2json.OpBitOr:  func(a, b *big.Int) *big.Int { return new(big.Int).Or(a, b) },
	bmv2json.OpBitXor: func(a, b *big.Int) *big.Int { return new(big.Int).Xor(a, b) },
}

// TestOperations checks, for all operands from all small intervals, that the result is in the
// computed interval.
func TestOperations(t *testing.T) {
	const most = 5
	var all []Interval
	for lo := int64(-most); lo <= most; lo++ {
		for hi := lo; hi <= most; hi++ {
			all = append(all, Interval{big.NewInt(lo), big.NewInt(hi)})
		}
	}
	for op, do := range operations {
		for _, l := range all {
			for _, r := range all {
				told := binary(op, l, r)
				for a := l.Lo.Int64(); a <= l.Hi.Int64(); a++ {
					for b := r.Lo.Int64(); b <= r.Hi.Int64(); b++ {
						v := do(big.NewInt(a), big.NewInt(b))
						if v != nil && told.Bounded() && !(Interval{v, v}).Within(told) {
							t.Fatalf("%d %v %d is %v; for [%v, %v] and [%v, %v] [%v, %v] was told",
								a, op, b, v, l.Lo, l.Hi, r.Lo, r.Hi, told.Lo, told.Hi)
						}
					}
				}
				if op != bmv2json.OpShl && !told.Bounded() {
					t.Fatalf("%v: nothing is told for [%v, %v] and [%v, %v]", op, l.Lo, l.Hi, r.Lo,
						r.Hi)
				}
			}
		}
	}
}

// TestBits checks that Bits returns the smallest number of bits whose two's complement holds an
// interval.
func TestBits(t *testing.T) {
	for lo := int64(-70); lo <= 70; lo++ {
		for hi := lo; hi <= 70; hi++ {
			r := Interval{big.NewInt(lo), big.NewInt(hi)}
			n := r.Bits()
			if !r.Within(Signed(n)) || n > 1 && r.Within(Signed(n-1)) {
				t.Fatalf("[%d, %d] has %d bits", lo, hi, n)
			}
		}
	}
}

// TestFitsWord tests the bounds of a word.
func TestFitsWord(t *testing.T) {
	beyond := new(big.Int).Add(U64.Hi, one)
	for _, c := range []struct {
		r            Interval
		fits, signed bool
	}{
		{U64, true, false},
		{I64, true, true},
		{Interval{zero, I64.Hi}, true, false},
		{Interval{zero, beyond}, false, true},
		{Interval{big.NewInt(-1), U64.Hi}, false, true},
		{Interval{}, false, true},
	} {
		if fits, signed := c.r.FitsWord(); fits != c.fits || fits && signed != c.signed {
			t.Errorf("[%v, %v]: %v, %v", c.r.Lo, c.r.Hi, fits, signed)
		}
	}
}

// TestWord splits numbers into words and puts them together again.
func TestWord(t *testing.T) {
	for _, v := range []*big.Int{zero, one, big.NewInt(-1), U64.Hi, I64.Lo,
		new(big.Int).Lsh(big.NewInt(-5), 100), new(big.Int).Lsh(big.NewInt(7), 130)} {
		again := big.NewInt(int64(Word(v, 3))) // the last word contains the sign
		for i := 2; i >= 0; i-- {
			again.Lsh(again, 64).Add(again, new(big.Int).SetUint64(Word(v, i)))
		}
		if again.Cmp(v) != 0 {
			t.Errorf("%v became %v", v, again)
		}
	}
}

// TestUnknown checks that, for an unbounded operand, only a mask gives bounds.
func TestUnknown(t *testing.T) {
	mask := Unsigned(8)
	for op := range operations {
		for _, got := range []Interval{binary(op, Interval{}, mask), binary(op, mask, Interval{})} {
			if op == bmv2json.OpBitAnd && !got.Within(mask) || op != bmv2json.OpBitAnd &&
				got.Bounded() {
				t.Errorf("%v: [%v, %v]", op, got.Lo, got.Hi)
			}
		}
	}
	// The shift amount is too large for a result to be computed.
	if got := binary(bmv2json.OpShl, mask, Interval{zero,
		big.NewInt(MaxShift + 1)}); got.Bounded() {
		t.Errorf("<<: [%v, %v]", got.Lo, got.Hi)
	}
}

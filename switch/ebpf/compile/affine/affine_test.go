package affine

import (
	"math"
	"math/big"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// TestNumbers compares the forms of expressions with the expressions' actual values. The bounds
// must hold for all values of the fields.
func TestNumbers(t *testing.T) {
	h := &bmv2json.Header{Type: &bmv2json.HeaderType{}}
	field := func(width int) *bmv2json.Expr {
		f := &bmv2json.Field{Index: len(h.Type.Fields), Width: width}
		h.Type.Fields = append(h.Type.Fields, f)
		return &bmv2json.Expr{Op: bmv2json.OpField, Field: bmv2json.FieldRef{Header: h, Field: f}}
	}
	a, b, small := field(32), field(16), field(2)
	num := func(k int64) *bmv2json.Expr {
		return &bmv2json.Expr{Op: bmv2json.OpConst, Const: big.NewInt(k)}
	}
	op := func(o bmv2json.ExprOp, l, r *bmv2json.Expr) *bmv2json.Expr {
		return &bmv2json.Expr{Op: o, Left: l, Right: r}
	}
	const bound = 1000
	names := []string{"a", "b", "small"}
	limits := []uint64{1<<32 - 1, 1<<16 - 1, 3}
	w := Evaluator{bound, func(r bmv2json.FieldRef) Form {
		i := r.Field.Index
		return Form{Base: []*bmv2json.Expr{a, b, small}[i], Key: names[i], Scale: 1, Limit: limits[i]}
	}}
	// computes expressions whose values stay below 2^63
	var value func(e *bmv2json.Expr, at []uint64) uint64
	value = func(e *bmv2json.Expr, at []uint64) uint64 {
		switch e.Op {
		case bmv2json.OpConst:
			return e.Const.Uint64()
		case bmv2json.OpField:
			return at[e.Field.Field.Index]
		}
		l, r := value(e.Left, at), value(e.Right, at)
		return map[bmv2json.ExprOp]uint64{bmv2json.OpAdd: l + r, bmv2json.OpMul: l * r,
			bmv2json.OpShl: l << (r & 63), bmv2json.OpShr: l >> (r & 63),
			bmv2json.OpBitAnd: l & r}[e.Op]
	}
	and, add, shl, shr, mul := bmv2json.OpBitAnd, bmv2json.OpAdd, bmv2json.OpShl, bmv2json.OpShr,
		bmv2json.OpMul
	word := func(e *bmv2json.Expr) *bmv2json.Expr { return op(and, e, num(1<<32-1)) }
	for i, c := range []struct {
		e     *bmv2json.Expr
		scale uint64 // 0 if there is no base
		key   string
		most  uint64
	}{
		{num(7), 0, "", 7},
		{word(a), 1, "a", 0},
		// the masked value is another base, because a may be larger than the mask
		{op(and, a, num(0xfff)), 1, "a & 4095", 0},
		{op(shr, a, num(24)), 1, "a >> 24", 0},
		{op(and, op(shr, a, num(24)), num(0xff)), 1, "a >> 24", 0},
		{op(and, op(shr, a, num(8)), num(0xff)), 1, "a >> 8 & 255", 0},
		{word(op(add, word(op(shl, a, num(2))), a)), 5, "a", 0},
		{word(op(add, word(op(shl, a, num(2))), small)), 4, "a", 3},
		{word(op(add, small, word(op(shl, a, num(2))))), 4, "a", 3},
		{op(add, op(mul, b, num(8)), op(and, a, num(7))), 8, "b", 7},
		{op(and, op(shl, a, num(2)), num(0xff)), 0, "", 255}, // the mask may change the value
		{op(and, op(add, a, num(1)), num(0xff)), 0, "", 255},
		{op(add, op(shl, a, num(40)), small), 0, "", math.MaxUint64},
		{op(bmv2json.OpSub, a, num(1)), 0, "", math.MaxUint64},
		{op(shr, op(add, a, num(1)), num(1)), 0, "", math.MaxUint64},
	} {
		n := w.Evaluate(c.e)
		if n.Scale != c.scale || n.Key != c.key || n.Most != c.most {
			t.Errorf("%d: scale %d of %q, at most %d more", i, n.Scale, n.Key, n.Most)
		}
		if n.IsUnknown() {
			continue
		}
		for _, x := range []uint64{0, 1, 2, 255, 256, 257, 999, 1000, 4095, 4096, 1 << 20, 1<<24 + 5,
			1<<30 + 1, 1<<32 - 1} {
			for _, y := range []uint64{0, 3, 999, 65535} {
				at := []uint64{x, y, x % 4}
				base := uint64(0)
				if n.Base != nil {
					if base = value(n.Base, at); base >= bound {
						continue
					}
				}
				if v := value(c.e, at); v < n.Scale*base+n.Least || v > n.Scale*base+n.Most {
					t.Errorf("%d: of %v it is %d, and said to be %d times %d, and %d to %d more", i, at,
						v, n.Scale, base, n.Least, n.Most)
				}
			}
		}
	}
	n := w.Evaluate(op(shl, a, num(2))).Either(w.Evaluate(op(shl, b, num(2))))
	if !n.IsUnknown() && n.Most < 4*limits[0] {
		t.Errorf("one of two bases: %+v", n)
	}
	if n := w.Evaluate(small).Either(num7(w)); n.Base != nil || n.Least > 0 || n.Most != 7 {
		t.Errorf("a small field, or 7: %+v", n)
	}
}

func num7(w Evaluator) Form {
	return w.Evaluate(&bmv2json.Expr{Op: bmv2json.OpConst, Const: big.NewInt(7)})
}

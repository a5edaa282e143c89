package ir

import (
	"math"
	"testing"
)

// TestValuesFold checks that values that are known when the program is loaded need no instructions,
// and that masks without effect are dropped.
func TestValuesFold(t *testing.T) {
	field := LoadPHV(0, 2, 12) // the value is at most 4095
	for name, c := range map[string]struct {
		got  *Value
		want uint64
	}{
		"and":              {And(Const(6), Const(3)), 2},
		"and with nothing": {And(field, Const(0)), 0},
		"or":               {Or(Const(6), Const(3)), 7},
		"shift out":        {Shl(field, 64), 0},
		"decided": {Select(Compare(CmpEq, field, Const(1<<12), false), field, Const(5)),
			5},
		"mod by 0": {mod(Const(7), Const(0)), 0},
		"sign":     {signExtend(Const(0x8), 4), math.MaxUint64 - 7},
	} {
		if k, ok := c.got.Constant(); !ok || k != c.want {
			t.Errorf("%s: %d (a constant: %v), not %d", name, k, ok, c.want)
		}
	}
	if v := And(field, Const(0xfff)); v != field {
		t.Errorf("a field of 12 bits is masked with 0xfff: %+v", v)
	}
	if v := And(And(LoadPHV(0, 4, 32), Const(0xff)), Const(0xf0f)); v.b.k != 0xf {
		t.Errorf("two masks are not one: %+v", v)
	}
}

// TestValuesBounds checks that no value exceeds its computed maximum.
func TestValuesBounds(t *testing.T) {
	a, b := LoadPHV(0, 1, 8), LoadPHV(8, 2, 16)
	for name, c := range map[string]struct {
		got  *Value
		want uint64
	}{
		"sum":        {add(a, b), 0xff + 0xffff},
		"difference": {sub(a, b), math.MaxUint64},
		"product":    {mul(a, b), 0xff * 0xffff},
		"or":         {Or(a, b), 0xffff},
		"and":        {And(a, b), 0xff},
		"left":       {Shl(a, 4), 0xff0},
		"lost":       {Shl(b, 60), math.MaxUint64},
		"right":      {Shr(b, 4), 0xfff},
		"choice":     {Select(Compare(CmpNe, a, b, false), a, b), 0xffff},
	} {
		if c.got.Max != c.want {
			t.Errorf("%s: at most %#x, not %#x", name, c.got.Max, c.want)
		}
	}
}

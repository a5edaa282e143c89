package compile

import (
	"math"
	"math/big"
	"runtime"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

func needStripes(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("on this processor there is one lock")
	}
}

// pathsOf plans a program and finds its paths.
func pathsOf(t *testing.T, file string) (*Plan, []*step) {
	t.Helper()
	prog, err := bmv2json.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPlan(prog)
	if err != nil {
		t.Fatal(err)
	}
	steps, _ := findPaths(p, "ingress", PathOptions{Variants: mostVariants})
	if len(steps) == 0 {
		t.Fatal("no paths were found")
	}
	return p, steps
}

// TestNeeds: in each profile of NetCRAQ a packet takes registers by its chain, its session and its
// slot, and all that is known where it gets them; and most packets take no stripe of their chain.
func TestNeeds(t *testing.T) {
	needStripes(t)
	for _, profile := range []string{"128", "8192"} {
		p, order := pathsOf(t, "../../../p4src/compiled/netcraq-"+profile+".json.gz")
		var of []int
		for _, m := range p.members {
			of = append(of, m.family)
		}
		objects := len(of) - 5
		if len(p.families) != 3 || !slices.Equal(of[:5], []int{0, 1, 2, 1, 2}) {
			t.Fatalf("the registers' families: %v", of)
		}
		for _, m := range p.members[5:] {
			if m != (member{2, 5}) {
				t.Errorf("of %d registers of values one is of %+v", objects, m)
			}
		}
		for f, fam := range p.families {
			if fam.single != (f == 0) || fam.bound != []uint64{256, 4096, uint64(p.Registers[2].size)}[f] {
				t.Errorf("family %d: %+v", f, fam)
			}
		}
		if !stripesFit(order) {
			t.Error("packets take all stripes")
		}
		with, without := 0, 0
		seen := map[*step]bool{}
		for _, s := range order {
			for _, n := range s.next {
				if s.inside || !n.inside || seen[n] {
					continue
				}
				seen[n] = true
				list, ok := n.needs.familiesToLock()
				if !ok {
					t.Errorf("%s: a packet takes all stripes", n.path)
				}
				if slices.Contains(list, 0) {
					with++
				} else {
					without++
				}
			}
		}
		if with == 0 || without < 3*with {
			t.Errorf("a stripe of the chain is taken in %d places, and not in %d", with, without)
		}
		t.Logf("%s: registers are taken in %d places, in %d with a stripe of the chain", profile,
			with+without, with)
	}
}

// TestNeedsUnknown: where an index is read from a register, nobody knows it before; and where a
// packet takes a register by two numbers, it would need two stripes of one family.
func TestNeedsUnknown(t *testing.T) {
	needStripes(t)
	for _, program := range []string{"indirect", "transfer"} {
		_, order := pathsOf(t, "../testdata/"+program+".json")
		if stripesFit(order) {
			t.Errorf("%s: the one number of each family is said to be known before", program)
		}
	}
}

// TestNumbers computes what is known of expressions of fields, and compares it with what they are:
// for each value that the fields may have the number's bounds must hold.
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
	w := numbers{bound, func(r bmv2json.FieldRef) number {
		i := r.Field.Index
		return number{base: []*bmv2json.Expr{a, b, small}[i], key: names[i], scale: 1, limit: limits[i]}
	}}
	var value func(e *bmv2json.Expr, at []uint64) uint64 // of expressions that stay below 2^63
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
		scale uint64 // 0: no base
		key   string
		most  uint64
	}{
		{num(7), 0, "", 7},
		{word(a), 1, "a", 0},
		{op(and, a, num(0xfff)), 1, "a & 4095", 0}, // another base: a may be larger than the mask
		{op(shr, a, num(24)), 1, "a >> 24", 0},
		{op(and, op(shr, a, num(24)), num(0xff)), 1, "a >> 24", 0},
		{op(and, op(shr, a, num(8)), num(0xff)), 1, "a >> 8 & 255", 0},
		{word(op(add, word(op(shl, a, num(2))), a)), 5, "a", 0},
		{word(op(add, word(op(shl, a, num(2))), small)), 4, "a", 3},
		{word(op(add, small, word(op(shl, a, num(2))))), 4, "a", 3},
		{op(add, op(mul, b, num(8)), op(and, a, num(7))), 8, "b", 7},
		{op(and, op(shl, a, num(2)), num(0xff)), 0, "", 255}, // a mask that may change it
		{op(and, op(add, a, num(1)), num(0xff)), 0, "", 255},
		{op(add, op(shl, a, num(40)), small), 0, "", math.MaxUint64},
		{op(bmv2json.OpSub, a, num(1)), 0, "", math.MaxUint64},
		{op(shr, op(add, a, num(1)), num(1)), 0, "", math.MaxUint64},
	} {
		n := w.of(c.e)
		if n.scale != c.scale || n.key != c.key || n.most != c.most {
			t.Errorf("%d: scale %d of %q, at most %d more", i, n.scale, n.key, n.most)
		}
		if n.any() {
			continue
		}
		for _, x := range []uint64{0, 1, 2, 255, 256, 257, 999, 1000, 4095, 4096, 1 << 20, 1<<24 + 5,
			1<<30 + 1, 1<<32 - 1} {
			for _, y := range []uint64{0, 3, 999, 65535} {
				at := []uint64{x, y, x % 4}
				base := uint64(0)
				if n.base != nil {
					if base = value(n.base, at); base >= bound {
						continue
					}
				}
				if v := value(c.e, at); v < n.scale*base+n.least || v > n.scale*base+n.most {
					t.Errorf("%d: of %v it is %d, and said to be %d times %d, and %d to %d more", i, at,
						v, n.scale, base, n.least, n.most)
				}
			}
		}
	}
	if n := w.of(op(shl, a, num(2))).or(w.of(op(shl, b, num(2)))); !n.any() && n.most < 4*limits[0] {
		t.Errorf("one of two bases: %+v", n)
	}
	if n := w.of(small).or(num7(w)); n.base != nil || n.least > 0 || n.most != 7 {
		t.Errorf("a small field, or 7: %+v", n)
	}
}

func num7(w numbers) number {
	return w.of(&bmv2json.Expr{Op: bmv2json.OpConst, Const: big.NewInt(7)})
}

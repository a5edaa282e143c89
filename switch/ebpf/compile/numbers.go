package compile

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// number is what is known of a value, seen from where a packet gets the registers: scale times what
// an expression was there, and between least and most more. Without a base it is the bounds alone.
type number struct {
	base  *bmv2json.Expr
	key   string // of the base: equal where the bases are
	scale uint64 // at least 1 where there is a base
	least uint64
	most  uint64 // math.MaxUint64: it may be anything, less than 0 too
	limit uint64 // of the base, by its width
}

// anyNumber is what nothing is known of.
func anyNumber() number { return number{most: math.MaxUint64} }

func within(most uint64) number { return number{most: most} }

func constantNumber(k uint64) number { return number{least: k, most: k} }

func (n number) any() bool { return n.most == math.MaxUint64 }

// exactly reports whether it is the base, no more and no less.
func (n number) exactly() bool { return n.base != nil && n.scale == 1 && n.most == 0 }

// mostScale bounds scales and distances, so that nothing here overflows.
const mostScale = 1 << 20

// greatest is the largest value that it may have, of a base that is less than bound; false where
// that is not known.
func (n number) greatest(bound uint64) (uint64, bool) {
	switch {
	case n.any():
		return 0, false
	case n.base == nil:
		return n.most, true
	}
	b := min(n.limit, bound-1)
	if high, low := bits.Mul64(n.scale, b); high == 0 && low+n.most >= low {
		return low + n.most, true
	}
	return 0, false
}

// loose is what is known without relying on a base: how large it is at most by the base's width.
func (n number) loose() number {
	if g, ok := n.greatest(math.MaxUint64); ok && n.base != nil {
		return within(g)
	}
	if n.base != nil {
		return anyNumber()
	}
	return n
}

// or is what is known of a value that is one of the two.
func (n number) or(m number) number {
	if n.key != m.key || n.scale != m.scale {
		n, m = n.loose(), m.loose()
	}
	if n.any() || m.any() {
		return anyNumber()
	}
	n.least, n.most = min(n.least, m.least), max(n.most, m.most)
	return n
}

// numbers finds what is known of expressions. Whoever relies on what has a base sees to it that the
// base was less than bound where the packet got the registers.
type numbers struct {
	bound uint64
	field func(bmv2json.FieldRef) number
}

// fieldNumber is a field whose value is that from where the packet got the registers.
func fieldNumber(lay *ir.Layout, r bmv2json.FieldRef) number {
	if r.IsValidity() || r.Field.VL || ir.Wide(r.Field.Width) || r.Field.Signed {
		return anyNumber()
	}
	return number{base: &bmv2json.Expr{Op: bmv2json.OpField, Type: bmv2json.TypeData, Field: r,
		Width: r.Field.Width}, key: fmt.Sprintf("field %d", lay.Field(r).Off), scale: 1,
		limit: ir.Ones(r.Field.Width)}
}

// assigned is what is known of a field that gets an expression's value, cut to its width.
func (w numbers) assigned(f *bmv2json.Field, e *bmv2json.Expr) number {
	if f.VL || f.Signed || ir.Wide(f.Width) {
		return anyNumber()
	}
	return w.masked(w.of(e), ir.Ones(f.Width))
}

// of is what is known of an expression.
func (w numbers) of(e *bmv2json.Expr) number {
	constant := func(e *bmv2json.Expr) (uint64, bool) {
		n := w.of(e)
		return n.least, n.base == nil && n.least == n.most && !n.any()
	}
	switch e.Op {
	case bmv2json.OpConst:
		if e.Const.IsUint64() && e.Const.Uint64() < math.MaxUint64 {
			return constantNumber(e.Const.Uint64())
		}
	case bmv2json.OpField:
		if !e.Field.IsValidity() {
			return w.field(e.Field)
		}
		return within(1)
	case bmv2json.OpAdd:
		return sum(w.of(e.Left), w.of(e.Right))
	case bmv2json.OpMul, bmv2json.OpShl:
		k, ok := constant(e.Right)
		if e.Op == bmv2json.OpShl && ok {
			ok, k = k < 20, 1<<(k&31)
		}
		if ok {
			return times(w.of(e.Left), k)
		}
	case bmv2json.OpBitAnd:
		k, ok := constant(e.Right)
		left := e.Left
		if !ok {
			k, ok = constant(e.Left)
			left = e.Right
		}
		if ok {
			return w.masked(w.of(left), k)
		}
	case bmv2json.OpShr:
		k, ok := constant(e.Right)
		if n := w.of(e.Left); ok && k < 64 {
			switch {
			case n.exactly():
				n.base = &bmv2json.Expr{Op: bmv2json.OpShr, Type: bmv2json.TypeData, Left: n.base,
					Right: e.Right}
				n.key, n.limit = fmt.Sprintf("%s >> %d", n.key, k), n.limit>>k
				return n
			case n.base == nil && !n.any():
				n.least, n.most = n.least>>k, n.most>>k
				return n
			}
		}
	}
	return anyNumber()
}

func sum(a, b number) number {
	if a.key != b.key { // the one that has the smaller values is a distance from the other
		if b.base != nil && a.loose().most < b.loose().most || a.base == nil {
			a, b = b, a
		}
		b = b.loose()
	}
	if a.any() || b.any() || a.most > mostScale || b.most > mostScale ||
		a.scale+b.scale > mostScale {
		return anyNumber()
	}
	a.scale, a.least, a.most = a.scale+b.scale, a.least+b.least, a.most+b.most
	return a
}

func times(a number, k uint64) number {
	if a.any() || k == 0 || k > mostScale || a.most > mostScale || a.scale*k > mostScale {
		return anyNumber()
	}
	a.scale, a.least, a.most = a.scale*k, a.least*k, a.most*k
	return a
}

// masked is what is known of n & k.
func (w numbers) masked(n number, k uint64) number {
	if k&(k+1) == 0 {
		// A base itself may become another one, so what is said of it does not rely on its bound.
		bound := w.bound
		if n.exactly() {
			bound = math.MaxUint64
		}
		if g, ok := n.greatest(bound); ok && g <= k {
			return n
		}
	}
	if n.exactly() && k < math.MaxUint64 {
		n.base = &bmv2json.Expr{Op: bmv2json.OpBitAnd, Type: bmv2json.TypeData, Left: n.base,
			Right: &bmv2json.Expr{Op: bmv2json.OpConst, Type: bmv2json.TypeData,
				Const: new(big.Int).SetUint64(k)}}
		n.key, n.limit = fmt.Sprintf("%s & %d", n.key, k), min(n.limit, k)
		return n
	}
	if k == math.MaxUint64 {
		return anyNumber()
	}
	return within(k)
}

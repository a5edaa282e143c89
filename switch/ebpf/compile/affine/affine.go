package affine

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Form describes what is known about a value: scale times a base, plus an offset between least and
// most. The base is the value of an expression at the time when a packet locks the registers.
// Without a base, only the bounds are known.
type Form struct {
	Base  *bmv2json.Expr
	Key   string // identifies the base; equal for equal bases
	Scale uint64 // at least 1 if there is a base
	Least uint64
	Most  uint64 // math.MaxUint64: no bound is known; the offset may even be negative
	Limit uint64 // upper bound of the base, from its width
}

// Unknown is the form of an unknown value.
func Unknown() Form { return Form{Most: math.MaxUint64} }

// AtMost is a number from 0 to most.
func AtMost(most uint64) Form { return Form{Most: most} }

// Constant is a number that is known.
func Constant(k uint64) Form { return Form{Least: k, Most: k} }

// IsUnknown reports whether nothing is known.
func (n Form) IsUnknown() bool { return n.Most == math.MaxUint64 }

// isBase reports whether the form is exactly the base.
func (n Form) isBase() bool { return n.Base != nil && n.Scale == 1 && n.Most == 0 }

// mostScale bounds scales and distances, so that no computation with forms overflows.
const mostScale = 1 << 20

// greatest returns the largest possible value if the base is less than bound; false if that is
// unknown.
func (n Form) greatest(bound uint64) (uint64, bool) {
	switch {
	case n.IsUnknown():
		return 0, false
	case n.Base == nil:
		return n.Most, true
	}
	b := min(n.Limit, bound-1)
	if high, low := bits.Mul64(n.Scale, b); high == 0 && low+n.Most >= low {
		return low + n.Most, true
	}
	return 0, false
}

// loose returns a form without a base: the bound follows from the base's width.
func (n Form) loose() Form {
	if g, ok := n.greatest(math.MaxUint64); ok && n.Base != nil {
		return AtMost(g)
	}
	if n.Base != nil {
		return Unknown()
	}
	return n
}

// Either is the form of a value that is one of the two.
func (n Form) Either(m Form) Form {
	if n.Key != m.Key || n.Scale != m.Scale {
		n, m = n.loose(), m.loose()
	}
	if n.IsUnknown() || m.IsUnknown() {
		return Unknown()
	}
	n.Least, n.Most = min(n.Least, m.Least), max(n.Most, m.Most)
	return n
}

// Evaluator finds the forms of expressions. A user that relies on a base must ensure that the base
// was less than bound when the packet locked the registers.
type Evaluator struct {
	Bound uint64
	Field func(bmv2json.FieldRef) Form
}

// OfField is the form of a field that has not changed since the packet got the registers.
func OfField(lay *ir.Layout, r bmv2json.FieldRef) Form {
	if r.IsValidity() || r.Field.VL || ir.Wide(r.Field.Width) || r.Field.Signed {
		return Unknown()
	}
	return Form{Base: &bmv2json.Expr{Op: bmv2json.OpField, Type: bmv2json.TypeData, Field: r,
		Width: r.Field.Width}, Key: fmt.Sprintf("field %d", lay.Field(r).Off), Scale: 1,
		Limit: ir.Ones(r.Field.Width)}
}

// Assigned is the form of a field after an assignment of an expression, cut to the field's width.
func (w Evaluator) Assigned(f *bmv2json.Field, e *bmv2json.Expr) Form {
	if f.VL || f.Signed || ir.Wide(f.Width) {
		return Unknown()
	}
	return w.masked(w.Evaluate(e), ir.Ones(f.Width))
}

// Evaluate returns the form of an expression.
func (w Evaluator) Evaluate(e *bmv2json.Expr) Form {
	constant := func(e *bmv2json.Expr) (uint64, bool) {
		n := w.Evaluate(e)
		return n.Least, n.Base == nil && n.Least == n.Most && !n.IsUnknown()
	}
	switch e.Op {
	case bmv2json.OpConst:
		if e.Const.IsUint64() && e.Const.Uint64() < math.MaxUint64 {
			return Constant(e.Const.Uint64())
		}
	case bmv2json.OpField:
		if !e.Field.IsValidity() {
			return w.Field(e.Field)
		}
		return AtMost(1)
	case bmv2json.OpAdd:
		return sum(w.Evaluate(e.Left), w.Evaluate(e.Right))
	case bmv2json.OpMul, bmv2json.OpShl:
		k, ok := constant(e.Right)
		if e.Op == bmv2json.OpShl && ok {
			ok, k = k < 20, 1<<(k&31)
		}
		if ok {
			return times(w.Evaluate(e.Left), k)
		}
	case bmv2json.OpBitAnd:
		k, ok := constant(e.Right)
		left := e.Left
		if !ok {
			k, ok = constant(e.Left)
			left = e.Right
		}
		if ok {
			return w.masked(w.Evaluate(left), k)
		}
	case bmv2json.OpShr:
		k, ok := constant(e.Right)
		if n := w.Evaluate(e.Left); ok && k < 64 {
			switch {
			case n.isBase():
				n.Base = &bmv2json.Expr{Op: bmv2json.OpShr, Type: bmv2json.TypeData, Left: n.Base,
					Right: e.Right}
				n.Key, n.Limit = fmt.Sprintf("%s >> %d", n.Key, k), n.Limit>>k
				return n
			case n.Base == nil && !n.IsUnknown():
				n.Least, n.Most = n.Least>>k, n.Most>>k
				return n
			}
		}
	}
	return Unknown()
}

func sum(a, b Form) Form {
	if a.Key != b.Key { // the smaller one counts as an offset from the other
		if b.Base != nil && a.loose().Most < b.loose().Most || a.Base == nil {
			a, b = b, a
		}
		b = b.loose()
	}
	if a.IsUnknown() || b.IsUnknown() || a.Most > mostScale || b.Most > mostScale ||
		a.Scale+b.Scale > mostScale {
		return Unknown()
	}
	a.Scale, a.Least, a.Most = a.Scale+b.Scale, a.Least+b.Least, a.Most+b.Most
	return a
}

func times(a Form, k uint64) Form {
	if a.IsUnknown() || k == 0 || k > mostScale || a.Most > mostScale || a.Scale*k > mostScale {
		return Unknown()
	}
	a.Scale, a.Least, a.Most = a.Scale*k, a.Least*k, a.Most*k
	return a
}

// masked is what is known about n & k.
func (w Evaluator) masked(n Form, k uint64) Form {
	if k&(k+1) == 0 {
		// If n is a base, the code below can make a base of the masked value. So n is kept as it is
		// only if that does not rely on the bound of bases.
		bound := w.Bound
		if n.isBase() {
			bound = math.MaxUint64
		}
		if g, ok := n.greatest(bound); ok && g <= k {
			return n
		}
	}
	if n.isBase() && k < math.MaxUint64 {
		n.Base = &bmv2json.Expr{Op: bmv2json.OpBitAnd, Type: bmv2json.TypeData, Left: n.Base,
			Right: &bmv2json.Expr{Op: bmv2json.OpConst, Type: bmv2json.TypeData,
				Const: new(big.Int).SetUint64(k)}}
		n.Key, n.Limit = fmt.Sprintf("%s & %d", n.Key, k), min(n.Limit, k)
		return n
	}
	if k == math.MaxUint64 {
		return Unknown()
	}
	return AtMost(k)
}

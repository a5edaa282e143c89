package affine

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Form describes what is known about a value: a scale times a base, plus an offset between Least
// and Most. The base is the value of an expression when a packet locks the registers. Without a
// base, only the bounds are known.
type Form struct {
	Base  *bmv2json.Expr
	Key   string // identifies the base; equal bases have equal keys
	Scale uint64 // at least 1 if there is a base
	Least uint64
	Most  uint64 // math.MaxUint64 if no bound is known; the offset may then even be negative
	Limit uint64 // upper bound of the base, which follows from the base's width
}

// Unknown returns the form of an unknown value.
func Unknown() Form { return Form{Most: math.MaxUint64} }

// AtMost returns the form of a number from 0 to most.
func AtMost(most uint64) Form { return Form{Most: most} }

// Constant returns the form of a known number.
func Constant(k uint64) Form { return Form{Least: k, Most: k} }

// IsUnknown reports whether nothing is known about the value.
func (n Form) IsUnknown() bool { return n.Most == math.MaxUint64 }

// isBase reports whether the value is exactly its base.
func (n Form) isBase() bool { return n.Base != nil && n.Scale == 1 && n.Most == 0 }

// mostScale bounds scales and distances, so that no computation with forms overflows.
const mostScale = 1 << 20

// greatest returns the largest possible value if the base is less than bound. It returns false if
// no largest value is known.
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

// loose returns a form of the same value without a base. Its bound follows from the base's width.
func (n Form) loose() Form {
	if g, ok := n.greatest(math.MaxUint64); ok && n.Base != nil {
		return AtMost(g)
	}
	if n.Base != nil {
		return Unknown()
	}
	return n
}

// Either returns a form that describes both values.
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

// Evaluator finds the forms of expressions. It assumes that each base was less than Bound when the
// packet locked the registers. The caller must ensure this.
type Evaluator struct {
	Bound uint64
	Field func(bmv2json.FieldRef) Form
}

// OfField returns the form of a field that has not changed since the packet locked the registers.
func OfField(lay *ir.Layout, r bmv2json.FieldRef) Form {
	if r.IsValidity() || r.Field.VL || ir.Wide(r.Field.Width) || r.Field.Signed {
		return Unknown()
	}
	return Form{Base: &bmv2json.Expr{Op: bmv2json.OpField, Type: bmv2json.TypeData, Field: r,
		Width: r.Field.Width}, Key: fmt.Sprintf("field %d", lay.Field(r).Off), Scale: 1,
		Limit: ir.Ones(r.Field.Width)}
}

// Assigned returns the form of field f after an assignment of expression e, truncated to the
// field's width.
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
	// With different bases, the smaller value counts as an offset from the larger one.
	if a.Key != b.Key {
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

// masked returns the form of n & k.
func (w Evaluator) masked(n Form, k uint64) Form {
	if k&(k+1) == 0 {
		// If n is exactly a base, the code below can turn the masked value into a new base. So n
		// stays as it is only if this does not rely on the bound of bases.
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

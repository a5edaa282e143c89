package vm

import (
	"math/bits"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interval"
)

// truth creates the steps of a condition that BMv2 treats as a number and compares with 0.
func (l *lowering) truth(e *bmv2json.Expr, yes, no *step) *step {
	if e.Type != bmv2json.TypeBool {
		e = &bmv2json.Expr{Op: bmv2json.OpDataToBool, Type: bmv2json.TypeBool, Right: e, Path: e.Path}
	}
	return l.cond(e, yes, no)
}

// cond creates the steps of a condition. The right side of "and" and "or" is not evaluated if the
// left side decides.
func (l *lowering) cond(e *bmv2json.Expr, yes, no *step) *step {
	defer func(used int) { l.used = used }(l.used)
	switch e.Op {
	case bmv2json.OpBool:
		if e.Bool {
			return yes
		}
		return no
	case bmv2json.OpNot:
		return l.cond(e.Right, no, yes)
	case bmv2json.OpAnd, bmv2json.OpOr:
		return l.several(e, yes, no)
	case bmv2json.OpTernary:
		return l.cond(e.Cond, l.cond(e.Left, yes, no), l.cond(e.Right, yes, no))
	case bmv2json.OpDataToBool:
		return l.notZero(e, yes, no)
	case bmv2json.OpValid:
		if h, dyn := l.c.Header(e.Right); dyn == nil {
			return &step{op: opIfValid, a: uint16(h), yes: yes, next: no}
		}
	}
	if s := l.compare(e, yes, no); s != nil {
		return s
	}
	return l.closure(e, yes, no)
}

// compare creates the steps of a comparison of numbers. It returns nil if e is not such a
// comparison, or if the numbers do not fit into lanes.
func (l *lowering) compare(e *bmv2json.Expr, yes, no *step) *step {
	switch e.Op {
	case bmv2json.OpEq, bmv2json.OpNe:
		if e.Left.Type != bmv2json.TypeData {
			return nil
		}
		if e.Op == bmv2json.OpNe {
			yes, no = no, yes
		}
		return l.equal(e, yes, no)
	case bmv2json.OpLt:
		return l.less(e.Left, e.Right, yes, no)
	case bmv2json.OpGe:
		return l.less(e.Left, e.Right, no, yes)
	case bmv2json.OpGt:
		return l.less(e.Right, e.Left, yes, no)
	case bmv2json.OpLe:
		return l.less(e.Right, e.Left, no, yes)
	}
	return nil
}

// closure creates the step of a condition that expression.Compiler.Condition compiles.
func (l *lowering) closure(e *bmv2json.Expr, yes, no *step) *step {
	f := l.conds[e]
	if f == nil {
		f = l.c.Condition(e)
		l.conds[e] = f
	}
	return &step{op: opIf, cond: f, effects: l.effectsOfExpr(e), yes: yes, next: no}
}

// several creates the steps of an "and" or "or" of any number of conditions. It combines conditions
// that compare one field with small numbers in one step.
func (l *lowering) several(e *bmv2json.Expr, yes, no *step) *step {
	var list []*bmv2json.Expr
	op := e.Op
	var flatten func(*bmv2json.Expr)
	flatten = func(x *bmv2json.Expr) {
		if x.Op == op {
			flatten(x.Left)
			flatten(x.Right)
			return
		}
		list = append(list, x)
	}
	flatten(e)
	same := bmv2json.OpEq
	if op == bmv2json.OpAnd {
		same = bmv2json.OpNe
	}
	type set struct {
		lane int
		k    uint64
	}
	// k is 0 for conditions that do not compare a field with a small number
	sets := make([]set, len(list))
	for i, x := range list {
		if x.Op != same || x.Left.Type != bmv2json.TypeData {
			continue
		}
		f, k := x.Left, x.Right
		if f.Op == bmv2json.OpConst {
			f, k = k, f
		}
		if lane, ok := l.c.FixedLane(f); ok && k.Op == bmv2json.OpConst && k.Const.IsUint64() &&
			k.Const.Uint64() < 64 {
			sets[i] = set{lane, 1 << k.Const.Uint64()}
		}
	}
	next := no
	if op == bmv2json.OpAnd {
		next = yes
	}
	for i := len(list) - 1; i >= 0; i-- {
		if s := sets[i]; s.k != 0 {
			first := slices.IndexFunc(sets, func(o set) bool { return o.k != 0 && o.lane == s.lane })
			if first < i {
				sets[first].k |= s.k
				continue
			}
			one := &step{op: opIfIn, a: uint16(s.lane), k: s.k, yes: yes, next: next}
			if op == bmv2json.OpAnd {
				one.yes = no
			}
			if bits.OnesCount64(s.k) == 1 {
				one.op, one.k = opIfEqual, uint64(bits.TrailingZeros64(s.k))
			}
			next = one
			continue
		}
		if op == bmv2json.OpAnd {
			next = l.cond(list[i], next, no)
		} else {
			next = l.cond(list[i], yes, next)
		}
	}
	return next
}

// notZero creates the steps of a number that is used as a condition.
func (l *lowering) notZero(e *bmv2json.Expr, yes, no *step) *step {
	v := e.Right
	switch {
	case v.Op == bmv2json.OpBoolToData:
		return l.cond(v.Right, yes, no)
	case v.Op == bmv2json.OpField && v.Field.IsValidity():
		return &step{op: opIfValid, a: uint16(v.Field.Header.Index), yes: yes, next: no}
	}
	if fits, _ := interval.OfExpr(v).FitsWord(); fits {
		if o, ok := l.operand(v, 64); ok {
			if !o.konst {
				return o.then(&step{op: opIfEqual, a: uint16(o.lane), yes: no, next: yes})
			}
			if o.k != 0 {
				return yes
			}
			return no
		}
	}
	return l.closure(e, yes, no)
}

// equal creates the steps of an equality of numbers. It returns nil if that needs a closure.
func (l *lowering) equal(e *bmv2json.Expr, yes, no *step) *step {
	left, right := e.Left, e.Right
	if _, vl := expression.VarbitOf(left); vl {
		return nil
	}
	if fits, _ := interval.OfExpr(left).Hull(interval.OfExpr(right)).FitsWord(); !fits {
		return nil
	}
	if left.Op == bmv2json.OpConst {
		left, right = right, left
	}
	x, ok := l.operand(left, 64)
	y, also := l.operand(right, 64)
	switch {
	case !ok || !also || x.konst:
		return nil
	case y.konst:
		return x.then(&step{op: opIfEqual, a: uint16(x.lane), k: y.k, yes: yes, next: no})
	}
	return x.then(y.then(&step{op: opIfEqualLane, a: uint16(x.lane), k: uint64(y.lane), yes: yes,
		next: no}))
}

// less creates the steps of left < right. It returns nil if that needs a closure.
func (l *lowering) less(left, right *bmv2json.Expr, yes, no *step) *step {
	if left.Type != bmv2json.TypeData {
		return nil
	}
	if fits, signed := interval.OfExpr(left).Hull(interval.OfExpr(right)).FitsWord(); !fits || signed {
		return nil
	}
	x, ok := l.operand(left, 64)
	y, also := l.operand(right, 64)
	switch {
	case !ok || !also || x.konst && (y.konst || x.k == ^uint64(0)):
		return nil
	case y.konst:
		return x.then(&step{op: opIfLess, a: uint16(x.lane), k: y.k, yes: yes, next: no})
	case x.konst: // x < y is the same as !(y < x+1)
		return y.then(&step{op: opIfLess, a: uint16(y.lane), k: x.k + 1, yes: no, next: yes})
	}
	return x.then(y.then(&step{op: opIfLessLane, a: uint16(x.lane), k: uint64(y.lane), yes: yes,
		next: no}))
}

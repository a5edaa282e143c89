package vm

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interval"
)

// operand is the value of an expression: a constant, or the content of a lane after the steps that
// before creates.
type operand struct {
	konst  bool
	k      uint64
	lane   int
	before func(*step) *step // nil if there are no steps
}

func (o operand) then(s *step) *step {
	if s == nil || o.before == nil {
		return s
	}
	return o.before(s)
}

// operand makes the low n bits of e available (see expression.Compiler.Number). It returns false if
// all temporaries are in use.
func (l *lowering) operand(e *bmv2json.Expr, n int) (operand, bool) {
	if e.Op == bmv2json.OpConst {
		return operand{konst: true, k: interval.Word(e.Const, 0)}, true
	}
	if lane, ok := l.c.FixedLane(e); ok {
		return operand{lane: lane}, true
	}
	if l.used == Temporaries {
		return operand{}, false
	}
	lane := l.first + l.used
	l.used++
	return operand{lane: lane, before: func(s *step) *step { return l.store(lane, e, n, s) }}, true
}

// withLane makes an operand available in a lane. It returns nil if there are not enough
// temporaries.
func (l *lowering) withLane(e *bmv2json.Expr, n int, use func(lane int) *step) *step {
	if fits, _ := interval.OfExpr(e).FitsWord(); n == 64 && !fits {
		return nil
	}
	o, ok := l.operand(e, n)
	if !ok {
		return nil
	}
	if o.konst {
		if l.used == Temporaries {
			return nil
		}
		lane, k := l.first+l.used, o.k
		l.used++
		o = operand{lane: lane, before: func(s *step) *step {
			return &step{op: opSet, a: uint16(lane), k: k, next: s}
		}}
	}
	return o.then(use(o.lane))
}

// store creates the steps that set a lane to the low n bits of e (see expression.Compiler.Number).
// Only the last step changes the lane.
func (l *lowering) store(lane int, e *bmv2json.Expr, n int, next *step) *step {
	if next == nil {
		return nil
	}
	a := uint16(lane)
	if from, ok := l.c.FixedLane(e); ok {
		if from == lane {
			return next
		}
		return &step{op: opCopy, a: a, b: uint32(from), next: next}
	}
	switch e.Op {
	case bmv2json.OpConst:
		return &step{op: opSet, a: a, k: interval.Word(e.Const, 0), next: next}
	case bmv2json.OpLocal:
		return &step{op: opParam, a: a, b: uint32(l.c.Params[e.Index].Lane), k: ^uint64(0), next: next}
	case bmv2json.OpField:
		if e.Field.IsValidity() {
			return l.truthValue(a, next, func(yes, no *step) *step {
				return &step{op: opIfValid, a: uint16(e.Field.Header.Index), yes: yes, next: no}
			})
		}
	case bmv2json.OpBoolToData:
		return l.truthValue(a, next, func(yes, no *step) *step { return l.cond(e.Right, yes, no) })
	case bmv2json.OpTernary:
		left, right := l.store(lane, e.Left, n, next), l.store(lane, e.Right, n, next)
		return l.cond(e.Cond, left, right)
	case bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpBitAnd, bmv2json.OpBitOr, bmv2json.OpBitXor:
		if s := l.binary(a, e, n, next); s != nil {
			return s
		}
	case bmv2json.OpBitNot:
		if o, ok := l.operand(e.Right, n); ok && !o.konst {
			return o.then(&step{op: opXor, a: a, b: uint32(o.lane), k: ^uint64(0), next: next})
		}
	case bmv2json.OpShl, bmv2json.OpShr:
		if s := l.shift(a, e, n, next); s != nil {
			return s
		}
	}
	return &step{op: opValue, a: a, value: l.c.Number(e, n), effects: l.effectsOfExpr(e), next: next}
}

// truthValue creates the steps that set a lane to 1 if a condition is true, and otherwise to 0.
func (l *lowering) truthValue(a uint16, next *step, cond func(yes, no *step) *step) *step {
	return cond(&step{op: opSet, a: a, k: 1, next: next}, &step{op: opSet, a: a, next: next})
}

// binary does what store does, for operations with two operands of which only the low bits matter.
func (l *lowering) binary(a uint16, e *bmv2json.Expr, n int, next *step) *step {
	left, right := e.Left, e.Right
	if left.Op == bmv2json.OpConst && e.Op != bmv2json.OpSub {
		left, right = right, left
	}
	if e.Op == bmv2json.OpBitAnd && right.Op == bmv2json.OpConst {
		if m, ok := expression.IsMask(right.Const); ok {
			// The mask clears nothing.
			if m >= n || interval.OfExpr(left).Within(interval.Unsigned(m)) {
				return l.store(int(a), left, n, next)
			}
			n = min(n, m)
		}
	}
	x, ok := l.operand(left, n)
	y, also := l.operand(right, n)
	if !ok || !also || x.konst {
		return nil
	}
	s := &step{a: a, b: uint32(x.lane), k: uint64(y.lane), next: next}
	if y.konst {
		s.k = y.k
		switch e.Op {
		case bmv2json.OpAdd:
			s.op = opAdd
		case bmv2json.OpSub:
			s.op, s.k = opAdd, -y.k
		case bmv2json.OpBitAnd:
			s.op = opMask
		case bmv2json.OpBitOr:
			s.op = opOr
		default:
			s.op = opXor
		}
		return x.then(s)
	}
	s.op = map[bmv2json.ExprOp]opcode{bmv2json.OpAdd: opAddLane, bmv2json.OpSub: opSubLane,
		bmv2json.OpBitAnd: opAndLane, bmv2json.OpBitOr: opOrLane, bmv2json.OpBitXor: opXorLane}[e.Op]
	return x.then(y.then(s))
}

// shift does what store does, for shifts by a known amount.
func (l *lowering) shift(a uint16, e *bmv2json.Expr, n int, next *step) *step {
	k, ok := expression.ShiftAmount(e.Right)
	if !ok || k >= 64 {
		return nil
	}
	op := opShl
	if e.Op == bmv2json.OpShr {
		// The shift needs all bits of the value.
		if fits, signed := interval.OfExpr(e.Left).FitsWord(); !fits || signed {
			return nil
		}
		op, n = opShr, 64
	}
	x, ok := l.operand(e.Left, n)
	if !ok || x.konst {
		return nil
	}
	return x.then(&step{op: op, a: a, b: uint32(x.lane), k: k, next: next})
}

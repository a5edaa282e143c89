package expression

import (
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/interval"
)

// Union compiles an expression for a union. The result returns the indices of the members' headers.
// For an element of a stack, it selects the union at run time.
func (c *Compiler) Union(e *bmv2json.Expr) func(*packet.State) []int {
	members := func(u *bmv2json.HeaderUnion) (out []int) {
		for _, h := range u.Headers {
			out = append(out, h.Index)
		}
		return out
	}
	switch {
	case e.Op == bmv2json.OpUnion:
		m := members(e.Union)
		return func(*packet.State) []int { return m }
	case e.Op == bmv2json.OpUnionStackElem && e.Left.Op == bmv2json.OpUnionStack:
		var all [][]int
		for _, u := range e.Left.UnionStack.Unions {
			all = append(all, members(u))
		}
		idx := c.Index(e.Right)
		return func(st *packet.State) []int {
			if i := idx(st); i < uint64(len(all)) {
				return all[i]
			}
			return nil
		}
	}
	refusal.Panic(e.Path, "a union that is computed by %q", e.Op)
	return nil
}

// Index compiles a non-negative number that serves as a 64-bit index. The largest 64-bit value
// stands for all greater numbers, because no array has that many elements.
func (c *Compiler) Index(e *bmv2json.Expr) Number {
	r := interval.OfExpr(e)
	if fits, _ := r.FitsWord(); fits { // Negative numbers become large numbers.
		return c.Number(e, 64)
	}
	if !r.Bounded() {
		refusal.Panic(e.Path, "an index or amount that is not bounded")
	}
	n := wideint.Lanes(r.Bits())
	w := c.WideNumber(e, n)
	from, to := c.Scratch(n)
	return func(st *packet.State) uint64 {
		t := st.Scratch[from:to]
		w(st, t)
		for _, x := range t[1:] {
			if x != 0 {
				return ^uint64(0)
			}
		}
		return t[0]
	}
}

// IsMask reports whether v consists only of ones, and returns their number.
func IsMask(v *big.Int) (int, bool) {
	if v.Sign() <= 0 {
		return 0, false
	}
	n := v.BitLen()
	return n, v.Cmp(interval.Unsigned(n).Hi) == 0
}

// Number compiles a data expression for the low n bits of its value. n is at most 64. If all
// possible values fit into 64 bits, Number(e, 64) is the value itself, in two's complement if it is
// signed.
func (c *Compiler) Number(e *bmv2json.Expr, n int) Number {
	switch e.Op {
	case bmv2json.OpConst:
		v := interval.Word(e.Const, 0)
		return func(*packet.State) uint64 { return v }
	case bmv2json.OpField, bmv2json.OpStackField, bmv2json.OpUnionStackField,
		bmv2json.OpAccessField:
		return c.Load(e, n)
	case bmv2json.OpLocal:
		at := c.Params[e.Index].Lane
		return func(st *packet.State) uint64 { return st.Parameters[at] }
	case bmv2json.OpRegister:
		return c.registerValue(e)
	case bmv2json.OpBoolToData:
		b := c.Condition(e.Right)
		return func(st *packet.State) uint64 {
			if b(st) {
				return 1
			}
			return 0
		}
	case bmv2json.OpLastIndex, bmv2json.OpStackSize:
		at := c.stackOf(e.Right)
		if e.Op == bmv2json.OpLastIndex {
			return func(st *packet.State) uint64 { return uint64(int64(st.StackCounters[at]) - 1) }
		}
		return func(st *packet.State) uint64 { return uint64(st.StackCounters[at]) }
	case bmv2json.OpTernary:
		cond, l, r := c.Condition(e.Cond), c.Number(e.Left, n), c.Number(e.Right, n)
		return func(st *packet.State) uint64 {
			if cond(st) {
				return l(st)
			}
			return r(st)
		}
	case bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpMul, bmv2json.OpBitAnd, bmv2json.OpBitOr,
		bmv2json.OpBitXor:
		return c.lowBinary(e, n)
	case bmv2json.OpBitNot:
		r := c.Number(e.Right, n)
		return func(st *packet.State) uint64 { return ^r(st) }
	case bmv2json.OpShl, bmv2json.OpShr, bmv2json.OpDiv, bmv2json.OpMod:
		if f := c.numberShifted(e, n); f != nil {
			return f
		}
	case bmv2json.OpTwoCompMod:
		if interval.OfExpr(e.Left).Within(interval.Signed(e.Width)) || e.Width >= n {
			return c.Number(e.Left, n)
		}
		l, k := c.Number(e.Left, e.Width), 64-e.Width
		return func(st *packet.State) uint64 { return uint64(int64(l(st)<<k) >> k) }
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		if f := c.lowSaturating(e); f != nil {
			return f
		}
	}
	// The operation needs more than the low bits of its operands, so it is computed in as many
	// lanes as necessary.
	lanes := 1
	w := c.WideNumber(e, lanes)
	from, to := c.Scratch(lanes)
	return func(st *packet.State) uint64 {
		t := st.Scratch[from:to]
		w(st, t)
		return t[0]
	}
}

// numberShifted compiles shifts and divisions. It returns nil if they need more than 64 bits of an
// operand.
func (c *Compiler) numberShifted(e *bmv2json.Expr, n int) Number {
	switch e.Op {
	case bmv2json.OpShl:
		l := c.Number(e.Left, n)
		if k, ok := ShiftAmount(e.Right); ok {
			if k >= 64 {
				return func(*packet.State) uint64 { return 0 }
			}
			return func(st *packet.State) uint64 { return l(st) << (k & 63) }
		}
		r := c.Index(e.Right)
		// In Go, the result is 0 if the amount is 64 or more.
		return func(st *packet.State) uint64 { return l(st) << r(st) }
	case bmv2json.OpShr:
		if fits, signed := interval.OfExpr(e.Left).FitsWord(); fits {
			l := c.Number(e.Left, 64)
			if k, ok := ShiftAmount(e.Right); ok && !signed {
				if k >= 64 {
					return func(*packet.State) uint64 { return 0 }
				}
				return func(st *packet.State) uint64 { return l(st) >> (k & 63) }
			}
			r := c.Index(e.Right)
			if signed {
				return func(st *packet.State) uint64 { return uint64(int64(l(st)) >> r(st)) }
			}
			return func(st *packet.State) uint64 { return l(st) >> r(st) }
		}
	case bmv2json.OpDiv, bmv2json.OpMod:
		if interval.OfExpr(e.Left).Within(interval.U64) && interval.OfExpr(e.Right).Within(interval.U64) {
			l, r, div := c.Number(e.Left, 64), c.Number(e.Right, 64), e.Op == bmv2json.OpDiv
			return func(st *packet.State) uint64 {
				x, y := l(st), r(st)
				switch {
				case y == 0: // BMv2 has no result here, because an assertion stops it.
					return 0
				case div:
					return x / y
				}
				return x % y
			}
		}
	}
	return nil
}

// ShiftAmount returns the value of a shift amount that is a constant.
func ShiftAmount(e *bmv2json.Expr) (uint64, bool) {
	if e.Op != bmv2json.OpConst || e.Const.Sign() < 0 || !e.Const.IsUint64() {
		return 0, false
	}
	return e.Const.Uint64(), true
}

// Load compiles reading the low bits of a field.
func (c *Compiler) Load(e *bmv2json.Expr, n int) Number {
	if e.Op == bmv2json.OpField && e.Field.IsValidity() {
		h := e.Field.Header.Index
		return func(st *packet.State) uint64 {
			if st.Valid[h] {
				return 1
			}
			return 0
		}
	}
	pl := c.PlaceOf(e)
	extend := pl.signed && pl.Width < n && pl.Width < 64
	shift := 64 - pl.Width
	lane := pl.Lane
	switch {
	case pl.Find == nil && !extend:
		return func(st *packet.State) uint64 { return st.Lanes[lane] }
	case pl.Find == nil:
		return func(st *packet.State) uint64 { return uint64(int64(st.Lanes[lane]<<shift) >> shift) }
	}
	dyn := pl.Find
	if !extend {
		shift = 0
	}
	return func(st *packet.State) uint64 {
		at := dyn(st)
		if at < 0 {
			return 0
		}
		if shift != 0 {
			return uint64(int64(st.Lanes[at]<<shift) >> shift)
		}
		return st.Lanes[at]
	}
}

// lowBinary compiles operations whose low bits depend only on the operands' low bits. A constant on
// the right with a fixed field on the left is p4c's most frequent form. So these operands get
// closures of their own.
func (c *Compiler) lowBinary(e *bmv2json.Expr, n int) Number {
	left, right := e.Left, e.Right
	if left.Op == bmv2json.OpConst && e.Op != bmv2json.OpSub {
		left, right = right, left
	}
	if e.Op == bmv2json.OpBitAnd && right.Op == bmv2json.OpConst {
		if m, ok := IsMask(right.Const); ok {
			// The mask clears nothing.
			if m >= n || interval.OfExpr(left).Within(interval.Unsigned(m)) {
				return c.Number(left, n)
			}
			n = min(n, m)
		}
	}
	l := c.Number(left, n)
	if right.Op == bmv2json.OpConst {
		k := interval.Word(right.Const, 0)
		if at, ok := c.FixedLane(left); ok {
			switch e.Op {
			case bmv2json.OpAdd:
				return func(st *packet.State) uint64 { return st.Lanes[at] + k }
			case bmv2json.OpSub:
				return func(st *packet.State) uint64 { return st.Lanes[at] - k }
			case bmv2json.OpBitAnd:
				return func(st *packet.State) uint64 { return st.Lanes[at] & k }
			}
		}
		switch e.Op {
		case bmv2json.OpAdd:
			return func(st *packet.State) uint64 { return l(st) + k }
		case bmv2json.OpSub:
			return func(st *packet.State) uint64 { return l(st) - k }
		case bmv2json.OpMul:
			return func(st *packet.State) uint64 { return l(st) * k }
		case bmv2json.OpBitAnd:
			return func(st *packet.State) uint64 { return l(st) & k }
		case bmv2json.OpBitOr:
			return func(st *packet.State) uint64 { return l(st) | k }
		default:
			return func(st *packet.State) uint64 { return l(st) ^ k }
		}
	}
	if x, ok := c.FixedLane(left); ok {
		if y, ok := c.FixedLane(right); ok {
			switch e.Op {
			case bmv2json.OpAdd:
				return func(st *packet.State) uint64 { return st.Lanes[x] + st.Lanes[y] }
			case bmv2json.OpSub:
				return func(st *packet.State) uint64 { return st.Lanes[x] - st.Lanes[y] }
			}
		}
	}
	r := c.Number(right, n)
	switch e.Op {
	case bmv2json.OpAdd:
		return func(st *packet.State) uint64 { return l(st) + r(st) }
	case bmv2json.OpSub:
		return func(st *packet.State) uint64 { return l(st) - r(st) }
	case bmv2json.OpMul:
		return func(st *packet.State) uint64 { return l(st) * r(st) }
	case bmv2json.OpBitAnd:
		return func(st *packet.State) uint64 { return l(st) & r(st) }
	case bmv2json.OpBitOr:
		return func(st *packet.State) uint64 { return l(st) | r(st) }
	default:
		return func(st *packet.State) uint64 { return l(st) ^ r(st) }
	}
}

// lowSaturating compiles a saturating cast of a value that fits into one lane. Otherwise it returns
// nil.
func (c *Compiler) lowSaturating(e *bmv2json.Expr) Number {
	r := interval.OfExpr(e.Left)
	if r.Within(interval.OfExpr(e)) {
		return c.Number(e.Left, 64)
	}
	if e.Width > 64 {
		return nil
	}
	switch bound := interval.OfExpr(e); {
	case r.Within(interval.U64):
		l, hi := c.Number(e.Left, 64), bound.Hi.Uint64()
		return func(st *packet.State) uint64 { return min(l(st), hi) }
	case r.Within(interval.I64):
		l, lo := c.Number(e.Left, 64), bound.Lo.Int64()
		hi := int64(1<<63 - 1)
		if bound.Hi.IsInt64() {
			hi = bound.Hi.Int64()
		}
		return func(st *packet.State) uint64 { return uint64(max(lo, min(int64(l(st)), hi))) }
	}
	return nil
}

// registerValue compiles reading a cell of up to 64 bits, or the low bits of a wider cell.
func (c *Compiler) registerValue(e *bmv2json.Expr) Number {
	idx, a := c.Index(e.Left), c.registers[e.Register.Index]
	shift := 0
	if e.Register.Signed && e.Register.Width < 64 {
		shift = 64 - e.Register.Width
	}
	return func(st *packet.State) uint64 {
		i := idx(st)
		if i >= uint64(a.Size) {
			return 0
		}
		return uint64(int64(a.Cells[int(i)*a.Lanes]<<shift) >> shift)
	}
}

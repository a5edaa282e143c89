package expression

import (
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// Place says in which lane a field is. The lane is fixed or, for an element of a stack, depends on
// the packet.
type Place struct {
	Width  int
	signed bool
	Lane   int
	// Find returns the lane, or -1 for an element outside the stack. It is nil if Lane is fixed.
	Find func(*packet.State) int
}

// Lanes returns the number of lanes of the field.
func (pl Place) Lanes() int { return wideint.Lanes(pl.Width) }

// PlaceOf returns the Place of a field expression.
func (c *Compiler) PlaceOf(e *bmv2json.Expr) Place {
	pl := Place{Width: e.Width, signed: e.Signed}
	switch e.Op {
	case bmv2json.OpField:
		if e.Field.Field.VL {
			refusal.Panic(e.Path, "a value of variable length (%s) in an expression", e.Field)
		}
		pl.Lane = c.Layout.LaneOf(e.Field)
		return pl
	case bmv2json.OpStackField:
		bases := c.stackBases(e.Stack.Headers)
		t, at := c.Layout.Headers[e.Stack.Headers[0].Index].Type, c.StackCounter(e.Stack)
		rel := t.FieldLanes[e.Index]
		pl.Find = func(st *packet.State) int {
			if n := st.StackCounters[at]; n > 0 {
				return bases[n-1] + rel
			}
			return -1
		}
		return pl
	case bmv2json.OpUnionStackField:
		var bases []int
		for _, u := range e.UnionStack.Unions {
			bases = append(bases, c.Layout.Headers[u.Headers[e.Member].Index].Base)
		}
		t := c.Layout.Headers[e.UnionStack.Unions[0].Headers[e.Member].Index].Type
		rel, at := t.FieldLanes[e.Index], c.UnionStackCounter(e.UnionStack)
		pl.Find = func(st *packet.State) int {
			if n := st.StackCounters[at]; n > 0 {
				return bases[n-1] + rel
			}
			return -1
		}
		return pl
	}
	// The remaining case is OpAccessField.
	if bmv2json.HeaderTypeOf(e.Left).Fields[e.Index].VL {
		refusal.Panic(e.Path, "a value of variable length in an expression")
	}
	h, dyn := c.Header(e.Left)
	if dyn == nil {
		pl.Lane = c.Layout.Headers[h].Base + c.Layout.Headers[h].Type.FieldLanes[e.Index]
		return pl
	}
	hs, idx := c.Layout.Headers, e.Index
	pl.Find = func(st *packet.State) int {
		h := dyn(st)
		if h < 0 {
			return -1
		}
		return hs[h].Base + hs[h].Type.FieldLanes[idx]
	}
	return pl
}

func (c *Compiler) stackBases(hs []*bmv2json.Header) []int {
	out := make([]int, len(hs))
	for i, h := range hs {
		out[i] = c.Layout.Headers[h.Index].Base
	}
	return out
}

// StackCounter returns the index in [packet.State].StackCounters of a stack's number of elements.
func (c *Compiler) StackCounter(s *bmv2json.HeaderStack) int { return s.Index }

// UnionStackCounter does what StackCounter does, for a stack of unions.
func (c *Compiler) UnionStackCounter(s *bmv2json.HeaderUnionStack) int {
	return len(c.Source.Stacks) + s.Index
}

// Header compiles an expression for a header. If the header is fixed, index is its index, and dyn
// is nil. Otherwise dyn finds the index at run time.
func (c *Compiler) Header(e *bmv2json.Expr) (index int, dyn HeaderIndex) {
	switch e.Op {
	case bmv2json.OpHeader:
		return e.Header.Index, nil
	case bmv2json.OpTernary:
		cond := c.Condition(e.Cond)
		l, ld := c.Header(e.Left)
		r, rd := c.Header(e.Right)
		return 0, func(st *packet.State) int {
			if cond(st) {
				if ld != nil {
					return ld(st)
				}
				return l
			}
			if rd != nil {
				return rd(st)
			}
			return r
		}
	case bmv2json.OpStackElem:
		if e.Left.Op != bmv2json.OpStack {
			refusal.Panic(e.Path, "an element of a stack that is itself computed")
		}
		ids := make([]int, len(e.Left.Stack.Headers))
		for i, h := range e.Left.Stack.Headers {
			ids[i] = h.Index
		}
		return c.element(e.Right, ids)
	}
	// The remaining case is OpUnionHeader.
	switch u := e.Left; u.Op {
	case bmv2json.OpUnion:
		return u.Union.Headers[e.Index].Index, nil
	case bmv2json.OpUnionStackElem:
		var ids []int
		for _, u := range u.Left.UnionStack.Unions {
			ids = append(ids, u.Headers[e.Index].Index)
		}
		return c.element(u.Right, ids)
	}
	refusal.Panic(e.Path, "a member of a union that is itself computed")
	return 0, nil
}

// FixedLane returns the lane of an unsigned field with a fixed lane, which is the most frequent
// operand.
func (c *Compiler) FixedLane(e *bmv2json.Expr) (int, bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || e.Signed || e.Width > 64 {
		return 0, false
	}
	return c.PlaceOf(e).Lane, true
}

// HeaderIndex does what Header does, but always returns a function.
func (c *Compiler) HeaderIndex(e *bmv2json.Expr) HeaderIndex {
	h, dyn := c.Header(e)
	if dyn != nil {
		return dyn
	}
	return func(*packet.State) int { return h }
}

// stackOf returns the index in State.StackCounters of a stack of headers or unions.
func (c *Compiler) stackOf(e *bmv2json.Expr) int {
	if e.Op == bmv2json.OpStack {
		return c.StackCounter(e.Stack)
	}
	return c.UnionStackCounter(e.UnionStack)
}

// element compiles the selection of one of ids by the value of e.
func (c *Compiler) element(e *bmv2json.Expr, ids []int) (int, HeaderIndex) {
	if e.Op == bmv2json.OpConst && e.Const.Sign() >= 0 &&
		e.Const.Cmp(big.NewInt(int64(len(ids)))) < 0 {
		return ids[e.Const.Int64()], nil
	}
	idx := c.Index(e)
	return 0, func(st *packet.State) int {
		if i := idx(st); i < uint64(len(ids)) {
			return ids[i]
		}
		return -1
	}
}

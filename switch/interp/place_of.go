package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// place is where a field is: at a fixed lane, or at one that depends on the packet (an element of a
// stack).
type place struct {
	width  int
	signed bool
	lane   int
	// the lane, or -1 for an element outside of the stack; nil for a fixed lane
	dyn func(*state) int
}

func (pl place) lanes() int { return lanesOf(pl.width) }

// placeOf finds the place of a field expression.
func (c *exprCompiler) placeOf(e *bmv2json.Expr) place {
	pl := place{width: e.Width, signed: e.Signed}
	switch e.Op {
	case bmv2json.OpField:
		if e.Field.Field.VL {
			refuse(e.Path, "a value of variable length (%s) in an expression", e.Field)
		}
		pl.lane = c.lay.lane(e.Field)
		return pl
	case bmv2json.OpStackField:
		bases := c.stackBases(e.Stack.Headers)
		rel, at := c.lay.headers[e.Stack.Headers[0].Index].t.rel[e.Index], c.stackNext(e.Stack)
		pl.dyn = func(st *state) int {
			if n := st.next[at]; n > 0 {
				return bases[n-1] + rel
			}
			return -1
		}
		return pl
	case bmv2json.OpUnionStackField:
		var bases []int
		for _, u := range e.UnionStack.Unions {
			bases = append(bases, c.lay.headers[u.Headers[e.Member].Index].base)
		}
		rel, at := c.lay.headers[e.UnionStack.Unions[0].Headers[e.Member].Index].t.rel[e.Index],
			c.unionStackNext(e.UnionStack)
		pl.dyn = func(st *state) int {
			if n := st.next[at]; n > 0 {
				return bases[n-1] + rel
			}
			return -1
		}
		return pl
	}
	// OpAccessField
	if bmv2json.HeaderTypeOf(e.Left).Fields[e.Index].VL {
		refuse(e.Path, "a value of variable length in an expression")
	}
	h, dyn := c.header(e.Left)
	if dyn == nil {
		pl.lane = c.lay.headers[h].base + c.lay.headers[h].t.rel[e.Index]
		return pl
	}
	hs, idx := c.lay.headers, e.Index
	pl.dyn = func(st *state) int {
		h := dyn(st)
		if h < 0 {
			return -1
		}
		return hs[h].base + hs[h].t.rel[idx]
	}
	return pl
}

func (c *exprCompiler) stackBases(hs []*bmv2json.Header) []int {
	out := make([]int, len(hs))
	for i, h := range hs {
		out[i] = c.lay.headers[h.Index].base
	}
	return out
}

func (c *exprCompiler) stackNext(s *bmv2json.HeaderStack) int { return s.Index }

func (c *exprCompiler) unionStackNext(s *bmv2json.HeaderUnionStack) int {
	return len(c.prog.Stacks) + s.Index
}

// header compiles an expression for a header: its index where that is fixed (dyn is nil), else a
// function.
func (c *exprCompiler) header(e *bmv2json.Expr) (index int, dyn hdrFn) {
	switch e.Op {
	case bmv2json.OpHeader:
		return e.Header.Index, nil
	case bmv2json.OpTernary:
		cond := c.boolean(e.Cond)
		l, ld := c.header(e.Left)
		r, rd := c.header(e.Right)
		return 0, func(st *state) int {
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
			refuse(e.Path, "an element of a stack that is itself computed")
		}
		ids := make([]int, len(e.Left.Stack.Headers))
		for i, h := range e.Left.Stack.Headers {
			ids[i] = h.Index
		}
		return c.element(e.Right, ids)
	}
	// OpUnionHeader
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
	refuse(e.Path, "a member of a union that is itself computed")
	return 0, nil
}

// fixedLane reports the lane of an unsigned field that is where it is, the commonest operand of
// all.
func (c *exprCompiler) fixedLane(e *bmv2json.Expr) (int, bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || e.Signed || e.Width > 64 {
		return 0, false
	}
	return c.placeOf(e).lane, true
}

// headerIndex is header as a function in any case.
func (c *exprCompiler) headerIndex(e *bmv2json.Expr) hdrFn {
	h, dyn := c.header(e)
	if dyn != nil {
		return dyn
	}
	return func(*state) int { return h }
}

// stackOf is the place in state.next of a stack.
func (c *exprCompiler) stackOf(e *bmv2json.Expr) int {
	if e.Op == bmv2json.OpStack {
		return c.stackNext(e.Stack)
	}
	return c.unionStackNext(e.UnionStack)
}

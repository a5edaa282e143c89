package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// stackElems returns the headers of each element of a stack: one header, or the members of a union.
// next is the stack's index in StackCounters.
func (c *Compiler) stackElems(e *bmv2json.Expr) (elems [][]int, next int) {
	if e.Op == bmv2json.OpStack {
		for _, h := range e.Stack.Headers {
			elems = append(elems, []int{h.Index})
		}
		return elems, c.StackCounter(e.Stack)
	}
	for _, u := range e.UnionStack.Unions {
		var m []int
		for _, h := range u.Headers {
			m = append(m, h.Index)
		}
		elems = append(elems, m)
	}
	return elems, c.UnionStackCounter(e.UnionStack)
}

func (c *Compiler) assignStack(p *bmv2json.Primitive) expression.Statement {
	a, b := p.Args[0], p.Args[1]
	switch {
	case a.Op != b.Op, a.Op == bmv2json.OpStack && a.Stack.Type != b.Stack.Type,
		a.Op == bmv2json.OpUnionStack && a.UnionStack.Type != b.UnionStack.Type:
		c.sameType(p, false)
	}
	d, dn := c.stackElems(a)
	s, sn := c.stackElems(b)
	c.sameType(p, len(d) == len(s))
	return func(st *packet.State) {
		st.StackCounters[dn] = st.StackCounters[sn]
		for i := range d {
			st.AssignUnion(d[i], s[i])
		}
	}
}

// shiftStack compiles push_front and pop_front. Elements move by the count, and vacated elements
// become invalid.
func (c *Compiler) shiftStack(p *bmv2json.Primitive) expression.Statement {
	elems, next := c.stackElems(p.Args[0])
	by := c.Index(p.Args[1])
	move := func(st *packet.State, dst, src int) {
		for m := range elems[dst] {
			st.MoveHeader(elems[dst][m], elems[src][m])
		}
	}
	invalidate := func(st *packet.State, i int) {
		for _, h := range elems[i] {
			st.Valid[h] = false
		}
	}
	size := len(elems)
	if p.Op == "push" {
		return func(st *packet.State) {
			n := int(min(by(st), uint64(size)))
			st.StackCounters[next] = min(size, st.StackCounters[next]+n)
			for i := size - 1; i >= n; i-- {
				move(st, i, i-n)
			}
			for i := range n {
				invalidate(st, i)
			}
		}
	}
	return func(st *packet.State) {
		n := int(min(by(st), uint64(size)))
		st.StackCounters[next] -= min(st.StackCounters[next], n)
		for i := 0; i < size-n; i++ {
			move(st, i, i+n)
		}
		for i := size - n; i < size; i++ {
			invalidate(st, i)
		}
	}
}

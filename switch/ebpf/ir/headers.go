package ir

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// The header of an expression is mostly known when the program is loaded. An exception is an
// element of a stack whose index is known only at run time. Stacks have few elements. So the code
// of a read selects among all elements, and the code of a write branches to the selected element.
// As in the interpreter, a read beyond the stack returns 0, and a write beyond it does nothing.

// HeadersOf returns the headers that an expression may stand for, and the index that selects one of
// them. If index is nil, there is only one header.
func (w *Writer) HeadersOf(e *bmv2json.Expr) (list []*bmv2json.Header, index *Value) {
	var at *bmv2json.Expr
	switch {
	case e.Op == bmv2json.OpHeader:
		return []*bmv2json.Header{e.Header}, nil
	case e.Op == bmv2json.OpStackElem && e.Left.Op == bmv2json.OpStack:
		list, at = e.Left.Stack.Headers, e.Right
	case e.Op == bmv2json.OpUnionHeader:
		unions, i := w.unionsOf(e.Left)
		for _, u := range unions {
			list = append(list, u.Headers[e.Index])
		}
		return list, i
	case e.Op == bmv2json.OpTernary:
		l, at := w.chosen(e.Left)
		r, behind := w.chosen(e.Right)
		return append(append(list, l...), r...), Select(w.Condition(e.Cond), at,
			add(behind, Const(uint64(len(l)))))
	default:
		Refuse(e.Path, "a header that is given by a %q", e.Op)
	}
	if i, ok := ConstantOf(at, int64(len(list))); ok {
		return list[i : i+1], nil
	}
	return list, w.Index(at)
}

// chosen does what HeadersOf does for one side of a choice. The index always selects one of the
// headers.
func (w *Writer) chosen(e *bmv2json.Expr) ([]*bmv2json.Header, *Value) {
	list, index := w.HeadersOf(e)
	switch {
	case index == nil:
		return list, Const(0)
	case e.Op != bmv2json.OpTernary:
		Refuse(e.Path, "a choice of headers that are computed while packets pass")
	}
	return list, index
}

// unionsOf does what HeadersOf does, for header unions.
func (w *Writer) unionsOf(e *bmv2json.Expr) (list []*bmv2json.HeaderUnion, index *Value) {
	switch {
	case e.Op == bmv2json.OpUnion:
		return []*bmv2json.HeaderUnion{e.Union}, nil
	case e.Op == bmv2json.OpUnionStackElem && e.Left.Op == bmv2json.OpUnionStack:
	default:
		Refuse(e.Path, "a header union that is given by a %q", e.Op)
	}
	list = e.Left.UnionStack.Unions
	if i, ok := ConstantOf(e.Right, int64(len(list))); ok {
		return list[i : i+1], nil
	}
	return list, w.Index(e.Right)
}

// headerOf returns the header that an expression stands for. It refuses an expression whose header
// is only known at run time.
func (w *Writer) headerOf(e *bmv2json.Expr) *bmv2json.Header {
	list, index := w.HeadersOf(e)
	if index != nil {
		Refuse(e.Path, "a header that is computed while packets pass, in this place")
	}
	return list[0]
}

// UnionOf does what headerOf does, for header unions.
func (w *Writer) UnionOf(e *bmv2json.Expr) *bmv2json.HeaderUnion {
	list, index := w.unionsOf(e)
	if index != nil {
		Refuse(e.Path, "a header union that is computed while packets pass, in this place")
	}
	return list[0]
}

// Valid returns a value that is 1 if a header is valid, and otherwise 0.
func (w *Writer) Valid(h *bmv2json.Header) *Value { return w.load(w.phv.Validity(h), 1, 1) }

// validity returns the condition that a header is valid. If index is not nil, it selects the header
// in list.
func (w *Writer) validity(list []*bmv2json.Header, index *Value) *Condition {
	valid := func(h *bmv2json.Header) *Condition {
		return Compare(CmpNe, w.load(w.phv.Validity(h), 1, 1), Const(0), false)
	}
	if index == nil {
		return valid(list[0])
	}
	c := never
	for i, h := range list {
		c = orCondition(c, AndCondition(Compare(CmpEq, index, Const(uint64(i)), false), valid(h)))
	}
	return c
}

// indexedWord returns word i of a field of the header that the index selects.
func (w *Writer) indexedWord(elements []Place, index *Value, i int) *Value {
	v := Const(0)
	for n := len(elements) - 1; n >= 0; n-- {
		v = Select(Compare(CmpEq, index, Const(uint64(n)), false), w.WordOfPlace(elements[n], i), v)
	}
	return v
}

// Each emits code that branches on the index, with the code of do for each index below n. For any
// other index, the code of beyond runs.
func (w *Writer) Each(n int, index *Value, do func(int), beyond func()) {
	if index == nil {
		do(0)
		return
	}
	end := w.NewLabel("element")
	for i := range n {
		this, other := w.NewLabel("this"), w.NewLabel("other")
		w.Branch(Compare(CmpEq, index, Const(uint64(i)), false), this, other, this, 0)
		w.Bind(this)
		do(i)
		w.Jump(end)
		w.Bind(other)
	}
	if beyond != nil {
		beyond()
	}
	w.Bind(end)
}

// places returns the possible places of the field that an expression stands for, and the index that
// selects one of them. If index is nil, there is only one place.
func (w *Writer) places(e *bmv2json.Expr) (list []Place, index *Value) {
	if e.Op != bmv2json.OpAccessField {
		return []Place{w.PlaceOf(e)}, nil
	}
	headers, index := w.HeadersOf(e.Left)
	for _, h := range headers {
		f := h.Type.Fields[e.Index]
		if f.VL {
			Refuse(e.Path, "a value of variable length (%s) in an expression", f.Name)
		}
		list = append(list, w.phv.Field(bmv2json.FieldRef{Header: h, Field: f}))
	}
	return list, index
}

// ToPlace emits the code of do for the place of an expression. At run time, the code does nothing
// if the index is beyond the stack.
func (w *Writer) ToPlace(e *bmv2json.Expr, do func(Place)) {
	list, index := w.places(e)
	w.Each(len(list), index, func(i int) { do(list[i]) }, nil)
}

// ToHeader does what ToPlace does, for headers.
func (w *Writer) ToHeader(e *bmv2json.Expr, do func(*bmv2json.Header)) {
	list, index := w.HeadersOf(e)
	w.Each(len(list), index, func(i int) { do(list[i]) }, nil)
}

// StackElements returns the headers of each element of a stack: one header, or the members of a
// union. It also returns the offset of the stack's count of elements in use.
func (w *Writer) StackElements(e *bmv2json.Expr) (elements [][]*bmv2json.Header, next int) {
	if e.Op == bmv2json.OpStack {
		for _, h := range e.Stack.Headers {
			elements = append(elements, []*bmv2json.Header{h})
		}
		return elements, w.phv.NextOf(e.Stack)
	}
	for _, u := range e.UnionStack.Unions {
		elements = append(elements, u.Headers)
	}
	return elements, w.phv.NextOfUnions(e.UnionStack)
}

package ebpf

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// Which header an expression stands for is mostly known when the program is loaded. An element of a stack may be indexed by a number that only the packet knows: the elements
// are few, so what is read is chosen among all of them, and what is written is written to the one. Beyond the stack a read gives 0 and a write does nothing, as the
// interpreter has it.

// headersOf lists the headers that an expression may stand for, and the index among them; without an index it is the only one.
func (w *writer) headersOf(e *bmv2json.Expr) (list []*bmv2json.Header, index *value) {
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
		return append(append(list, l...), r...), selectValue(w.condition(e.Cond), at, addValue(behind, konst(uint64(len(l)))))
	default:
		refuse(e.Path, "a header that is given by a %q", e.Op)
	}
	if i, ok := constant(at, int64(len(list))); ok {
		return list[i : i+1], nil
	}
	return list, w.index(at)
}

// chosen is the same for one side of a choice, with an index that names one of the headers whatever the packet says.
func (w *writer) chosen(e *bmv2json.Expr) ([]*bmv2json.Header, *value) {
	list, index := w.headersOf(e)
	switch {
	case index == nil:
		return list, konst(0)
	case e.Op != bmv2json.OpTernary:
		refuse(e.Path, "a choice of headers that are computed while packets pass")
	}
	return list, index
}

// unionsOf is the same for header unions.
func (w *writer) unionsOf(e *bmv2json.Expr) (list []*bmv2json.HeaderUnion, index *value) {
	switch {
	case e.Op == bmv2json.OpUnion:
		return []*bmv2json.HeaderUnion{e.Union}, nil
	case e.Op == bmv2json.OpUnionStackElem && e.Left.Op == bmv2json.OpUnionStack:
	default:
		refuse(e.Path, "a header union that is given by a %q", e.Op)
	}
	list = e.Left.UnionStack.Unions
	if i, ok := constant(e.Right, int64(len(list))); ok {
		return list[i : i+1], nil
	}
	return list, w.index(e.Right)
}

// theHeader is the header that an expression stands for, where that is known.
func (w *writer) theHeader(e *bmv2json.Expr) *bmv2json.Header {
	list, index := w.headersOf(e)
	if index != nil {
		refuse(e.Path, "a header that is computed while packets pass, in this place")
	}
	return list[0]
}

// theUnion is the same for header unions.
func (w *writer) theUnion(e *bmv2json.Expr) *bmv2json.HeaderUnion {
	list, index := w.unionsOf(e)
	if index != nil {
		refuse(e.Path, "a header union that is computed while packets pass, in this place")
	}
	return list[0]
}

// possibleHeaders are all headers that a primitive may change whose first argument is e.
func possibleHeaders(e *bmv2json.Expr) (list []*bmv2json.Header) {
	member := func(h *bmv2json.Header) {
		if list = append(list, h); h.Union != nil {
			list = append(list, h.Union.Headers...)
		}
	}
	switch e.Op {
	case bmv2json.OpHeader:
		member(e.Header)
	case bmv2json.OpStack:
		list = e.Stack.Headers
	case bmv2json.OpUnion:
		list = e.Union.Headers
	case bmv2json.OpUnionStack:
		for _, u := range e.UnionStack.Unions {
			list = append(list, u.Headers...)
		}
	case bmv2json.OpField:
		member(e.Field.Header)
	case bmv2json.OpAccessField, bmv2json.OpStackElem, bmv2json.OpUnionHeader, bmv2json.OpUnionStackElem:
		list = possibleHeaders(e.Left)
	}
	return list
}

// validity is whether a header is valid, or the one of a list that the index names.
func (w *writer) validity(list []*bmv2json.Header, index *value) *condition {
	valid := func(h *bmv2json.Header) *condition {
		return compare(cmpNe, loadField(w.phv.validity(h), 1, 1), konst(0), false)
	}
	if index == nil {
		return valid(list[0])
	}
	c := never
	for i, h := range list {
		c = orCondition(c, andCondition(compare(cmpEq, index, konst(uint64(i)), false), valid(h)))
	}
	return c
}

// indexedWord is a word of a field of the header that the index names.
func (w *writer) indexedWord(elements []place, index *value, i int) *value {
	v := konst(0)
	for n := len(elements) - 1; n >= 0; n-- {
		v = selectValue(compare(cmpEq, index, konst(uint64(n)), false), w.wordOfPlace(elements[n], i), v)
	}
	return v
}

// each emits, for the one of n that the index names, what do does with it; beyond emits what is done where it names none.
func (w *writer) each(n int, index *value, do func(int), beyond func()) {
	if index == nil {
		do(0)
		return
	}
	end := w.NewLabel("element")
	for i := range n {
		this, other := w.NewLabel("this"), w.NewLabel("other")
		w.branch(compare(cmpEq, index, konst(uint64(i)), false), this, other, this, 0)
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

// places are where the field is that an expression stands for; with an index, one for each header that it may be of.
func (w *writer) places(e *bmv2json.Expr) (list []place, index *value) {
	if e.Op != bmv2json.OpAccessField {
		return []place{w.placeOf(e)}, nil
	}
	headers, index := w.headersOf(e.Left)
	for _, h := range headers {
		f := h.Type.Fields[e.Index]
		if f.VL {
			refuse(e.Path, "a value of variable length (%s) in an expression", f.Name)
		}
		list = append(list, w.phv.field(bmv2json.FieldRef{Header: h, Field: f}))
	}
	return list, index
}

// toPlace emits what do does with the place that an expression stands for, or nothing where that is beyond a stack.
func (w *writer) toPlace(e *bmv2json.Expr, do func(place)) {
	list, index := w.places(e)
	w.each(len(list), index, func(i int) { do(list[i]) }, nil)
}

// toHeader is the same for headers.
func (w *writer) toHeader(e *bmv2json.Expr, do func(*bmv2json.Header)) {
	list, index := w.headersOf(e)
	w.each(len(list), index, func(i int) { do(list[i]) }, nil)
}

// setValid makes a header valid, and the others of its union invalid.
func (t *translator) setValid(h *bmv2json.Header) {
	t.StoreConstant(code.PHV, t.lay.validity(h), 1, 1)
	if h.Union != nil {
		for _, other := range h.Union.Headers {
			if other != h {
				t.StoreConstant(code.PHV, t.lay.validity(other), 0, 1)
			}
		}
	}
}

// addHeader is setValid() of P4: a header that was not valid starts out with all fields 0.
func (t *translator) addHeader(h *bmv2json.Header) {
	done := t.NewLabel("was")
	t.Load(asm.R1, code.PHV, t.lay.validity(h), 1)
	t.Emit(asm.JNE.Imm(asm.R1, 0, done))
	t.Zero(code.PHV, t.lay.base[h.Index], t.lay.types[h.Type].size)
	t.setValid(h)
	t.grow(h, 1)
	t.Bind(done)
}

// removeHeader is setInvalid().
func (t *translator) removeHeader(h *bmv2json.Header) {
	if h.Metadata {
		return
	}
	if t.measured() {
		done := t.NewLabel("was")
		t.Load(asm.R1, code.PHV, t.lay.validity(h), 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, done))
		t.grow(h, -1)
		t.Bind(done)
	}
	t.StoreConstant(code.PHV, t.lay.validity(h), 0, 1)
}

// measured reports whether the program looks at packet_length, which BMv2 changes with each header that is added or removed.
func (p *plan) measured() bool { return !p.std.packetLength.IsZero() && p.reads(p.std.packetLength) }

// grow changes what packet_length will be in egress, by a header that comes (sign is 1) or goes (-1).
func (t *translator) grow(h *bmv2json.Header, sign int) {
	if !t.measured() {
		return
	}
	l := t.lay.types[h.Type]
	t.Load(asm.R1, code.PHV, phvLength, 4)
	t.Emit(asm.Add.Imm(asm.R1, int32(sign*l.bytes)))
	if h.Type.VL >= 0 {
		t.Load(asm.R2, code.PHV, t.lay.base[h.Index]+l.vlLength, 2)
		if sign < 0 {
			t.Emit(asm.Neg.Imm(asm.R2, 0))
		}
		t.Emit(asm.Add.Reg(asm.R1, asm.R2))
	}
	t.Store(code.PHV, phvLength, asm.R1, 4)
}

// assignHeader copies a header, validity included. Both are of one type.
func (t *translator) assignHeader(dst, src *bmv2json.Header) {
	if dst == src {
		return
	}
	if dst.Type != src.Type {
		refuse(t.Where, "copying a header of type %s to one of type %s", src.Type.Name, dst.Type.Name)
	}
	size := t.lay.types[dst.Type].size
	if src.Metadata {
		t.CopyWords(code.PHV, t.lay.base[dst.Index], code.PHV, t.lay.base[src.Index], size)
		if !dst.Metadata {
			t.setValid(dst)
		}
		return
	}
	invalid, done := t.NewLabel("invalid"), t.NewLabel("copied")
	t.Load(asm.R1, code.PHV, t.lay.validity(src), 1)
	t.Emit(asm.JEq.Imm(asm.R1, 0, invalid))
	if !dst.Metadata {
		t.setValid(dst)
	}
	t.CopyWords(code.PHV, t.lay.base[dst.Index], code.PHV, t.lay.base[src.Index], size)
	t.Jump(done)
	t.Bind(invalid)
	if !dst.Metadata {
		t.StoreConstant(code.PHV, t.lay.validity(dst), 0, 1)
	}
	t.Bind(done)
}

// assignUnion copies the members of a union one by one: those that are valid in it become so.
func (t *translator) assignUnion(dst, src []*bmv2json.Header) {
	for i := range min(len(dst), len(src)) {
		t.assignHeader(dst[i], src[i])
	}
}

// stackElements are the headers of each element of a stack (one, or the members of a union), and where the count of those in use is.
func (w *writer) stackElements(e *bmv2json.Expr) (elements [][]*bmv2json.Header, next int) {
	if e.Op == bmv2json.OpStack {
		for _, h := range e.Stack.Headers {
			elements = append(elements, []*bmv2json.Header{h})
		}
		return elements, w.phv.nextOf(e.Stack)
	}
	for _, u := range e.UnionStack.Unions {
		elements = append(elements, u.Headers)
	}
	return elements, w.phv.nextOfUnions(e.UnionStack)
}

// assignStack copies a stack, element by element.
func (t *translator) assignStack(p *bmv2json.Primitive) {
	dst, to := t.stackElements(p.Args[0])
	src, from := t.stackElements(p.Args[1])
	if len(dst) != len(src) {
		refuse(p.Path, "copying a stack of %d elements to one of %d", len(src), len(dst))
	}
	t.Load(asm.R1, code.PHV, from, 1)
	t.Store(code.PHV, to, asm.R1, 1)
	for i := range dst {
		t.assignUnion(dst[i], src[i])
	}
}

// shiftStack emits push_front and pop_front by a constant.
func (t *translator) shiftStack(p *bmv2json.Primitive) {
	elements, next := t.stackElements(p.Args[0])
	size := len(elements)
	by, ok := constant(p.Args[1], 256)
	if !ok {
		refuse(p.Path, "%s by a number that is not constant", p.Op)
	}
	by = min(by, size)
	if by == 0 {
		return
	}
	move := func(dst, src []*bmv2json.Header) {
		for i := range dst {
			t.Load(asm.R1, code.PHV, t.lay.validity(src[i]), 1)
			t.Store(code.PHV, t.lay.validity(dst[i]), asm.R1, 1)
			t.CopyWords(code.PHV, t.lay.base[dst[i].Index], code.PHV, t.lay.base[src[i].Index], t.lay.types[dst[i].Type].size)
		}
	}
	invalidate := func(list []*bmv2json.Header) {
		for _, h := range list {
			t.StoreConstant(code.PHV, t.lay.validity(h), 0, 1)
		}
	}
	end := t.NewLabel("count")
	if p.Op == "push" {
		for i := size - 1; i >= by; i-- {
			move(elements[i], elements[i-by])
		}
		for i := range by {
			invalidate(elements[i])
		}
		t.Load(asm.R1, code.PHV, next, 1)
		t.Emit(asm.Add.Imm(asm.R1, int32(by)), asm.JLE.Imm(asm.R1, int32(size), end), asm.Mov.Imm(asm.R1, int32(size)))
	} else {
		for i := range size - by {
			move(elements[i], elements[i+by])
		}
		for i := size - by; i < size; i++ {
			invalidate(elements[i])
		}
		t.Load(asm.R1, code.PHV, next, 1)
		t.Emit(asm.Sub.Imm(asm.R1, int32(by)), asm.JSGE.Imm(asm.R1, 0, end), asm.Mov.Imm(asm.R1, 0))
	}
	t.Bind(end)
	t.Store(code.PHV, next, asm.R1, 1)
}

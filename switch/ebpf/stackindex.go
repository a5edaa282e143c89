package ebpf

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// A header stack that is indexed by a number that only the packet knows: the elements are few, so what is read is chosen among all of them, and what is written is written to
// the one. Beyond the stack a read gives 0 and a write does nothing, as the interpreter has it.

// indexed gives a place for each element of the stack whose field e is, and the index, if that is known only as packets pass.
func (t *translator) indexed(e *bmv2json.Expr) (elements []place, index *value, ok bool) {
	if e.Op != bmv2json.OpAccessField || e.Left.Op != bmv2json.OpStackElem || e.Left.Left.Op != bmv2json.OpStack {
		return nil, nil, false
	}
	s := e.Left.Left.Stack
	if _, known := constant(e.Left.Right, int64(len(s.Headers))); known {
		return nil, nil, false
	}
	for _, h := range s.Headers {
		elements = append(elements, t.lay.field(bmv2json.FieldRef{Header: h, Field: s.Type.Fields[e.Index]}))
	}
	return elements, t.index(e.Left.Right), true
}

// indexedWord is a word of such a field.
func (t *translator) indexedWord(elements []place, index *value, i int) *value {
	v := konst(0)
	for n := len(elements) - 1; n >= 0; n-- {
		v = selectValue(compare(cmpEq, index, konst(uint64(n)), false), t.wordOfPlace(elements[n], i), v)
	}
	return v
}

// atIndex emits, for the element that the index names, what do does with its place.
func (t *translator) atIndex(elements []place, index *value, do func(place)) {
	end := t.newLabel("element")
	for n, p := range elements {
		this, other := t.newLabel("this"), t.newLabel("other")
		t.branch(compare(cmpEq, index, konst(uint64(n)), false), this, other, this, 0)
		t.place(this)
		do(p)
		t.jump(end)
		t.place(other)
	}
	t.place(end)
}

// toPlace emits what do does with the place that an expression stands for, or with none where it is beyond a stack.
func (t *translator) toPlace(e *bmv2json.Expr, do func(place)) {
	if elements, index, ok := t.indexed(e); ok {
		t.atIndex(elements, index, do)
		return
	}
	do(t.placeOf(e))
}

package compile

import (
	"fmt"
	"maps"
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// needs are the numbers by which a packet takes registers from a step on, of each family, as they
// are at that step.
type needs struct {
	of []need // by family
	// some index is not known to be made of what the packet has at that step
	unknown bool
	// how many cells of the single family it reads at most, and whether it writes any
	singleReads  int
	singleWrites bool
}

// need is the number by which a packet takes a family's registers; nil: it takes none.
type need struct {
	base    *bmv2json.Expr
	key     string
	several bool // on different ways, or one after the other, by different numbers
	single  bool // the family is the single one (stripes.go)
}

func (n *need) add(m need) {
	switch {
	case m.base == nil:
	case n.base == nil:
		m.single = n.single
		*n = m
	case n.key != m.key || m.several:
		n.several = true
	}
}

// fieldsHeld is what is known of fields since the beginning of the pipeline, or, inside, since the
// packet got the registers. What is not there is as it was, or, where lost is set, may be anything.
type fieldsHeld struct {
	of   map[int]number
	lost bool
}

// enter is what is known where a packet gets the registers: fields that were made of others, which
// are still as they were.
func (t *finder) enter(h *fieldsHeld) *fieldsHeld {
	in := &fieldsHeld{of: map[int]number{}}
	for off, n := range h.of {
		if n.base == nil {
			continue
		}
		e := n.base
		for e.Op != bmv2json.OpField {
			e = e.Left
		}
		if _, changed := h.of[t.Layout.Field(e.Field).Off]; !changed {
			in.of[off] = n
		}
	}
	return in
}

// findNeeds finds what packets need of each family at each step inside.
func (t *finder) findNeeds(order []*step) {
	if len(t.families) == 0 {
		return
	}
	refs := map[int]bmv2json.FieldRef{}
	for _, h := range t.Prog.Headers {
		for _, f := range h.Type.Fields {
			r := bmv2json.FieldRef{Header: h, Field: f}
			refs[t.Layout.Field(r).Off] = r
		}
	}
	before := make([]*fieldsHeld, len(order))
	arrive := func(s *step, h *fieldsHeld) {
		if before[s.order] == nil {
			before[s.order] = h
			return
		}
		before[s.order] = t.eitherHeld(before[s.order], h, refs)
	}
	if len(order) > 0 {
		arrive(order[0], &fieldsHeld{})
	}
	taken := make([]*need, len(order)) // by the step itself, whose family is that of its register
	for i, s := range order {
		w := t.numbersAt(s, before[i])
		if s.inside {
			taken[i] = t.takenBy(s, w)
		}
		after := t.heldBehind(s, before[i], w)
		var entered *fieldsHeld
		for _, n := range s.next {
			if s.inside || !n.inside {
				arrive(n, after)
				continue
			}
			if entered == nil {
				entered = t.enter(after)
			}
			arrive(n, entered)
		}
		before[i] = nil
	}
	for i := len(order) - 1; i >= 0; i-- {
		s := order[i]
		if !s.inside {
			continue
		}
		s.needs = &needs{of: make([]need, len(t.families))}
		for f := range t.families {
			s.needs.of[f].single = t.families[f].single
		}
		for _, n := range s.next {
			if n.inside {
				s.needs.add(n.needs)
			}
		}
		if taken[i] == nil {
			continue
		}
		r, _, _ := registerTaken(s.primitive)
		f := t.members[r.Index].family
		s.needs.of[f].add(*taken[i])
		s.needs.unknown = s.needs.unknown || taken[i].base == nil
		if t.families[f].single {
			if s.primitive.Op == "register_write" {
				s.needs.singleWrites = true
			} else {
				s.needs.singleReads++
			}
		}
	}
}

func (n *needs) add(m *needs) {
	for f := range n.of {
		n.of[f].add(m.of[f])
	}
	n.unknown = n.unknown || m.unknown
	n.singleReads = max(n.singleReads, m.singleReads)
	n.singleWrites = n.singleWrites || m.singleWrites
}

// takenBy is the number by which a step takes a register, nil where it takes none; one without a
// base is not known.
func (t *finder) takenBy(s *step, w numbers) *need {
	if s.kind != stepPrimitive {
		return nil
	}
	r, index, ok := registerTaken(s.primitive)
	if !ok {
		return nil
	}
	m, n := t.members[r.Index], w.of(index)
	if r.Size <= 1 { // there is one cell, whatever the index
		n = constantNumber(0)
	}
	switch {
	case m.family < 0:
	case n.base == nil && n.least == n.most && !n.any():
		k := n.least / m.scale
		return &need{base: &bmv2json.Expr{Op: bmv2json.OpConst, Type: bmv2json.TypeData,
			Const: new(big.Int).SetUint64(k)}, key: fmt.Sprint(k)}
	case n.base != nil && n.scale == m.scale && n.most < m.scale:
		return &need{base: n.base, key: n.key}
	}
	return &need{}
}

// numbersAt is what is known of values at a step, of fields of which h is known.
func (t *finder) numbersAt(s *step, h *fieldsHeld) numbers {
	return numbers{uint64(t.cells), func(r bmv2json.FieldRef) number {
		if r.Field.VL || r.Field.Signed || ir.Wide(r.Field.Width) || r == t.std.ingressTime {
			return anyNumber()
		}
		off := t.Layout.Field(r).Off
		if k, ok := s.facts[off]; ok && k.Known {
			return constantNumber(k.Value)
		}
		n, set := h.of[off]
		switch {
		case !set && !h.lost:
			return t.itself(r)
		case set && !n.any():
			return n
		}
		return t.rangeOf(r)
	}}
}

// itself is a field that is as it was.
func (t *finder) itself(r bmv2json.FieldRef) number {
	n := fieldNumber(t.Layout, r)
	if n.base != nil {
		n.limit = min(n.limit, t.rangeOf(r).most)
	}
	return n
}

// rangeOf is what is known of a field wherever a program may be.
func (t *finder) rangeOf(r bmv2json.FieldRef) (n number) {
	off := t.Layout.Field(r).Off
	if n, ok := t.ranges[off]; ok {
		return n
	}
	defer func() { t.ranges[off] = n }()
	var w numbers
	open := map[int]bool{}
	w = numbers{uint64(t.cells), func(r bmv2json.FieldRef) number { return t.whereverRead(w, r, open) }}
	if n := w.field(r); n.base == nil {
		return n
	}
	return within(ir.Ones(r.Field.Width))
}

// heldBehind is what is known of fields behind a step.
func (t *finder) heldBehind(s *step, h *fieldsHeld, w numbers) *fieldsHeld {
	var changed []int
	value := anyNumber()
	switch s.kind {
	case stepSet:
		changed, value = []int{s.dst.Off}, constantNumber(s.value)
	case stepTable:
		if m := s.table.plan.Source.DirectMeter; m != nil {
			changed = []int{t.Layout.Field(m.Result).Off}
		}
	case stepPrimitive:
		changed = t.changedBy(s)
		if q := s.primitive; q.Op == "assign" || q.Op == "modify_field" {
			if dst := q.Args[0]; dst.Op == bmv2json.OpField && !dst.Field.IsValidity() {
				value = w.assigned(dst.Field.Field, q.Args[1])
			}
		}
	}
	if len(changed) == 0 {
		return h
	}
	after := &fieldsHeld{of: maps.Clone(h.of), lost: h.lost}
	if after.of == nil {
		after.of = map[int]number{}
	}
	for _, off := range changed {
		if off == ir.EveryField {
			return &fieldsHeld{lost: s.inside}
		}
		after.of[off] = value
	}
	return after
}

// eitherHeld is what is known where two ways meet.
func (t *finder) eitherHeld(a, b *fieldsHeld, refs map[int]bmv2json.FieldRef) *fieldsHeld {
	if a == b {
		return a
	}
	out := &fieldsHeld{of: map[int]number{}, lost: a.lost || b.lost}
	at := func(h *fieldsHeld, off int) number {
		n, set := h.of[off]
		r, ok := refs[off]
		switch {
		case set:
			return n
		case h.lost || !ok:
			return anyNumber()
		}
		return t.itself(r)
	}
	for _, h := range []*fieldsHeld{a, b} {
		for off := range h.of {
			if _, done := out.of[off]; !done {
				out.of[off] = at(a, off).or(at(b, off))
			}
		}
	}
	return out
}

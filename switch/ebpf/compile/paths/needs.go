package paths

import (
	"fmt"
	"maps"
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/affine"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Needs describes, for each register family, the number by which a packet selects registers from a
// step on. The numbers are expressed by values at that step.
type Needs struct {
	Families []Need // indexed by register family
	// set if some index may depend on values that are not known at that step
	unknown bool
	// The largest number of cells of the register family marked Single that a packet reads, and
	// whether it writes any cell of this family.
	singleReads  int
	singleWrites bool
}

// Need is the number by which a packet selects the registers of a register family. Its Base is nil
// if the packet uses no register of the family.
type Need struct {
	Base    *bmv2json.Expr
	key     string
	several bool // the packet uses several numbers, on different paths or one after the other
	single  bool // this is the register family marked Single (locking/stripes.go)
}

func (n *Need) add(m Need) {
	switch {
	case m.Base == nil:
	case n.Base == nil:
		m.single = n.single
		*n = m
	case n.key != m.key || m.several:
		n.several = true
	}
}

// fieldsHeld has the affine forms of fields (affine.Form). Their bases are values at the beginning
// of the pipeline or, inside the locked section, at the time when the packet locked the registers.
// A field without a form is unchanged or, if lost is set, may have any value.
type fieldsHeld struct {
	of   map[int]affine.Form
	lost bool
}

// enter returns the affine forms of fields where a packet locks the registers. It keeps the fields
// that were computed from another field that has not changed since.
func (t *finder) enter(h *fieldsHeld) *fieldsHeld {
	in := &fieldsHeld{of: map[int]affine.Form{}}
	for off, n := range h.of {
		if n.Base == nil {
			continue
		}
		e := n.Base
		for e.Op != bmv2json.OpField {
			e = e.Left
		}
		if _, changed := h.of[t.Layout.Field(e.Field).Off]; !changed {
			in.of[off] = n
		}
	}
	return in
}

// findNeeds finds, for each step in the locked section, the numbers by which packets select the
// registers of each register family.
func (t *finder) findNeeds(order []*Step) {
	if len(t.Families) == 0 {
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
	arrive := func(s *Step, h *fieldsHeld) {
		if before[s.order] == nil {
			before[s.order] = h
			return
		}
		before[s.order] = t.eitherHeld(before[s.order], h, refs)
	}
	if len(order) > 0 {
		arrive(order[0], &fieldsHeld{})
	}
	// taken[i] is the number by which step i itself selects a register, or nil if it accesses none.
	taken := make([]*Need, len(order))
	for i, s := range order {
		w := t.numbersAt(s, before[i])
		if s.Inside {
			taken[i] = t.takenBy(s, w)
		}
		after := t.heldBehind(s, before[i], w)
		var entered *fieldsHeld
		for _, n := range s.Next {
			if s.Inside || !n.Inside {
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
		if !s.Inside {
			continue
		}
		s.Needs = &Needs{Families: make([]Need, len(t.Families))}
		for f := range t.Families {
			s.Needs.Families[f].single = t.Families[f].Single
		}
		for _, n := range s.Next {
			if n.Inside {
				s.Needs.add(n.Needs)
			}
		}
		if taken[i] == nil {
			continue
		}
		r, _, _ := analysis.RegisterOf(s.Primitive)
		f := t.Members[r.Index].Family
		s.Needs.Families[f].add(*taken[i])
		s.Needs.unknown = s.Needs.unknown || taken[i].Base == nil
		if t.Families[f].Single {
			if s.Primitive.Op == "register_write" {
				s.Needs.singleWrites = true
			} else {
				s.Needs.singleReads++
			}
		}
	}
}

func (n *Needs) add(m *Needs) {
	for f := range n.Families {
		n.Families[f].add(m.Families[f])
	}
	n.unknown = n.unknown || m.unknown
	n.singleReads = max(n.singleReads, m.singleReads)
	n.singleWrites = n.singleWrites || m.singleWrites
}

// takenBy returns the number by which a step selects a register, or nil if the step uses no
// register. A form without a base means that the number is not known.
func (t *finder) takenBy(s *Step, w affine.Evaluator) *Need {
	if s.Kind != StepPrimitive {
		return nil
	}
	r, index, ok := analysis.RegisterOf(s.Primitive)
	if !ok {
		return nil
	}
	m, n := t.Members[r.Index], w.Evaluate(index)
	if r.Size <= 1 { // There is only one cell, whatever the index is.
		n = affine.Constant(0)
	}
	switch {
	case m.Family < 0:
	case n.Base == nil && n.Least == n.Most && !n.IsUnknown():
		k := n.Least / m.Scale
		return &Need{Base: &bmv2json.Expr{Op: bmv2json.OpConst, Type: bmv2json.TypeData,
			Const: new(big.Int).SetUint64(k)}, key: fmt.Sprint(k)}
	case n.Base != nil && n.Scale == m.Scale && n.Most < m.Scale:
		return &Need{Base: n.Base, key: n.Key}
	}
	return &Need{}
}

// numbersAt returns an evaluator of values at a step, given the affine forms h of the fields.
func (t *finder) numbersAt(s *Step, h *fieldsHeld) affine.Evaluator {
	return affine.Evaluator{Bound: uint64(t.LargestRegister), Field: func(r bmv2json.FieldRef) affine.Form {
		if r.Field.VL || r.Field.Signed || ir.Wide(r.Field.Width) || r == t.Std.IngressTime {
			return affine.Unknown()
		}
		off := t.Layout.Field(r).Off
		if k, ok := s.Facts[off]; ok && k.Known {
			return affine.Constant(k.Value)
		}
		n, set := h.of[off]
		switch {
		case !set && !h.lost:
			return t.itself(r)
		case set && !n.IsUnknown():
			return n
		}
		return t.rangeOf(r)
	}}
}

// itself returns the affine form of a field that has not changed.
func (t *finder) itself(r bmv2json.FieldRef) affine.Form {
	n := affine.OfField(t.Layout, r)
	if n.Base != nil {
		n.Limit = min(n.Limit, t.rangeOf(r).Most)
	}
	return n
}

// rangeOf returns the affine form that a field has everywhere in the program.
func (t *finder) rangeOf(r bmv2json.FieldRef) (n affine.Form) {
	off := t.Layout.Field(r).Off
	if n, ok := t.ranges[off]; ok {
		return n
	}
	defer func() { t.ranges[off] = n }()
	var w affine.Evaluator
	open := map[int]bool{}
	w = affine.Evaluator{Bound: uint64(t.LargestRegister),
		Field: func(r bmv2json.FieldRef) affine.Form { return t.WhereverRead(w, r, open) }}
	if n := w.Field(r); n.Base == nil {
		return n
	}
	return affine.AtMost(ir.Ones(r.Field.Width))
}

// heldBehind returns the affine forms of fields after a step.
func (t *finder) heldBehind(s *Step, h *fieldsHeld, w affine.Evaluator) *fieldsHeld {
	var changed []int
	value := affine.Unknown()
	switch s.Kind {
	case StepSet:
		changed, value = []int{s.Dst.Off}, affine.Constant(s.Value)
	case StepTable:
		if m := s.Table.Plan.Source.DirectMeter; m != nil {
			changed = []int{t.Layout.Field(m.Result).Off}
		}
	case StepPrimitive:
		changed = t.changedBy(s)
		if q := s.Primitive; q.Op == "assign" || q.Op == "modify_field" {
			if dst := q.Args[0]; dst.Op == bmv2json.OpField && !dst.Field.IsValidity() {
				value = w.Assigned(dst.Field.Field, q.Args[1])
			}
		}
	}
	if len(changed) == 0 {
		return h
	}
	after := &fieldsHeld{of: maps.Clone(h.of), lost: h.lost}
	if after.of == nil {
		after.of = map[int]affine.Form{}
	}
	for _, off := range changed {
		if off == ir.EveryField {
			return &fieldsHeld{lost: s.Inside}
		}
		after.of[off] = value
	}
	return after
}

// eitherHeld returns the affine forms of fields where two paths meet.
func (t *finder) eitherHeld(a, b *fieldsHeld, refs map[int]bmv2json.FieldRef) *fieldsHeld {
	if a == b {
		return a
	}
	out := &fieldsHeld{of: map[int]affine.Form{}, lost: a.lost || b.lost}
	at := func(h *fieldsHeld, off int) affine.Form {
		n, set := h.of[off]
		r, ok := refs[off]
		switch {
		case set:
			return n
		case h.lost || !ok:
			return affine.Unknown()
		}
		return t.itself(r)
	}
	for _, h := range []*fieldsHeld{a, b} {
		for off := range h.of {
			if _, done := out.of[off]; !done {
				out.of[off] = at(a, off).Either(at(b, off))
			}
		}
	}
	return out
}

// FamiliesToLock returns the register families of which a packet locks one stripe when it enters
// the locked section at a step. It returns false if the packet must lock all stripes.
func (n *Needs) FamiliesToLock() (list []int, ok bool) {
	if n == nil || n.unknown {
		return nil, false
	}
	others := false
	for _, need := range n.Families {
		others = others || need.Base != nil && !need.single
	}
	for f, need := range n.Families {
		if need.Base == nil ||
			need.single && others && n.singleReads <= 1 && !n.singleWrites {
			continue
		}
		if need.several {
			return nil, false
		}
		list = append(list, f)
	}
	return list, true
}

// familiesToRead returns the register families whose versions tell a read-only packet whether its
// reads were consistent. It returns false if the versions cannot tell that.
func (n *Needs) familiesToRead() (list []int, ok bool) {
	if n == nil || n.unknown {
		return nil, false
	}
	for f, need := range n.Families {
		if need.several {
			return nil, false
		}
		if need.Base != nil {
			list = append(list, f)
		}
	}
	return list, true
}

// StripesFit reports whether packets rarely lock all stripes. If every packet locked all stripes,
// one lock would be faster.
func StripesFit(order []*Step) bool {
	for _, s := range order {
		for _, n := range s.Next {
			if s.Inside || !n.Inside {
				continue
			}
			if _, ok := n.Needs.FamiliesToLock(); !ok {
				return false
			}
		}
	}
	return true
}

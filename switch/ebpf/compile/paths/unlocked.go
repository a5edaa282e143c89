package paths

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Unlocked is the data for undoing a part that runs without the lock.
type Unlocked struct {
	Keep   []memory.Span      // fields whose old values are saved
	Reload []*bmv2json.Header // blocks that are restored from the frame

	Families []int // register families whose versions are checked if the program uses stripes
	Striped  bool  // set if the register families are known
}

// readUnlocked adds a copy of the following steps, without the lock, at each place where packets
// lock registers only to read them. live has the live fields of each step in order. readUnlocked
// reports whether there was such a place.
func (t *finder) readUnlocked(order []*Step, live []*FieldSet) (found bool) {
	if !t.HasVersions() {
		return false
	}
	begins := map[*Step]*Step{}
	for _, s := range order {
		if s.Inside {
			continue
		}
		for i, n := range s.Next {
			if !n.Inside {
				continue
			}
			begin, seen := begins[n]
			if !seen {
				begin = t.withoutLock(n, live[n.order], order)
				begins[n] = begin
			}
			if begin != nil {
				found = true
				s.lead(i, begin)
			}
		}
	}
	return found
}

// lead redirects one of a step's edges to another step.
func (s *Step) lead(way int, to *Step) {
	from := s.Next[way]
	s.Next[way] = to
	o := s.Table
	if o == nil {
		return
	}
	for _, list := range [][]*Step{o.Hit, o.Missed} {
		for i := range list {
			if list[i] == from {
				list[i] = to
			}
		}
	}
	for word, n := range o.Known {
		if n == from {
			o.Known[word] = to
		}
	}
	for _, at := range []**Step{&o.Without, &o.Always} {
		if *at == from {
			*at = to
		}
	}
}

// withoutLock returns a copy of the locked steps from first on that runs without the lock. It
// returns nil if they cannot run without the lock.
func (t *finder) withoutLock(first *Step, live *FieldSet, order []*Step) *Step {
	changed, ok := t.changedInside(first)
	if !ok {
		return nil
	}
	u := &Unlocked{}
	if !t.keepWhat(u, changed, live, first, order) {
		return nil
	}
	u.Families, u.Striped = first.Needs.familiesToRead()
	undo := &Step{Kind: StepUndo, sets: -1, Undo: u, Next: []*Step{first}}
	type copied struct {
		s       *Step
		pending string
	}
	copies, possible := map[copied]*Step{}, true
	var follow func(s *Step, pending []*Step, names string) *Step
	follow = func(s *Step, pending []*Step, names string) *Step {
		if c, ok := copies[copied{s, names}]; ok {
			return c
		}
		var c *Step
		switch {
		case !s.Inside:
			to := s
			for _, k := range slices.Backward(pending) {
				count := *k
				count.Inside, count.Next = false, []*Step{to}
				to = &count
			}
			c = &Step{Kind: StepValidate, sets: -1, Next: []*Step{to, undo}}
		case s.Kind == StepPrimitive && s.Primitive.Op == "count":
			possible = possible && !slices.Contains(s.reads, ir.EveryField)
			c = follow(s.Next[0], append(slices.Clone(pending), s),
				names+string(rune(s.order)))
		default:
			for _, off := range t.changedBy(s) {
				for _, k := range pending {
					possible = possible && !slices.Contains(k.reads, off)
				}
			}
			same := *s
			c = &same
			c.Inside, c.Next = false, nil
			c.Spoilt = t.Overtaken && s.Kind == StepPrimitive && s.Primitive.Op == "register_read"
			for _, n := range s.Next {
				c.Next = append(c.Next, follow(n, pending, names))
			}
		}
		copies[copied{s, names}] = c
		return c
	}
	begin := &Step{Kind: StepUnlocked, sets: -1, Undo: u}
	begin.Next = []*Step{follow(first, nil, ""), first}
	if !possible {
		return nil
	}
	return begin
}

// changedInside returns the fields that the locked steps from first on change. It returns false if
// one of them writes a register or has an effect that cannot be repeated.
func (t *finder) changedInside(first *Step) (changed map[int]bool, ok bool) {
	changed = map[int]bool{}
	seen := map[*Step]bool{}
	for pending := []*Step{first}; len(pending) > 0; {
		s := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if seen[s] || !s.Inside {
			continue
		}
		seen[s] = true
		switch s.Kind {
		case StepTest, StepSet:
		case StepPrimitive:
			switch s.Primitive.Op {
			case "assign", "modify_field", "register_read", "count", "mark_to_drop", "drop",
				"no_op":
			default: // this includes log_msg, because its message would be logged twice
				return nil, false
			}
		default:
			return nil, false
		}
		for _, off := range t.changedBy(s) {
			if off == ir.EveryField {
				return nil, false
			}
			changed[off] = true
		}
		pending = append(pending, s.Next...)
	}
	return changed, true
}

// changedBy returns the offsets of the fields that a step changes.
func (t *finder) changedBy(s *Step) (offs []int) {
	switch s.Kind {
	case StepSet:
		return []int{s.Dst.Off}
	case StepTable:
		return []int{ir.EveryField}
	case StepPrimitive:
	default:
		return nil
	}
	switch q := s.Primitive; q.Op {
	case "register_write", "count", "no_op", "log_msg", "truncate":
		return nil
	case "assign", "modify_field", "register_read":
		dst := q.Args[0]
		if dst.Op == bmv2json.OpField && !dst.Field.IsValidity() && !dst.Field.Field.VL {
			return []int{t.Layout.Field(dst.Field).Off}
		}
	case "mark_to_drop", "drop":
		for _, r := range []bmv2json.FieldRef{t.Std.EgressSpec, t.Std.McastGroup} {
			t.FieldIf(r, func(p ir.Place) { offs = append(offs, p.Off) })
		}
		return offs
	}
	return []int{ir.EveryField}
}

// keepWhat decides how to restore the changed fields that are read from the step first on. It
// returns false if there are too many fields.
func (t *finder) keepWhat(u *Unlocked, changed map[int]bool, live *FieldSet, first *Step,
	order []*Step) bool {
	room := 0
	for _, h := range t.Prog.Headers {
		block := false
		for _, f := range h.Type.Fields {
			if f.VL {
				continue
			}
			p := t.Layout.Field(bmv2json.FieldRef{Header: h, Field: f})
			switch {
			case !changed[p.Off] || !live.Contains(p.Off):
			case t.Blocks[h]:
				block = true
			default:
				u.Keep = append(u.Keep, memory.Span{Off: p.Off, Size: p.Size})
				room += p.Size
			}
		}
		if block {
			if !t.asReceived(h, first, order) {
				return false
			}
			u.Reload = append(u.Reload, h)
		}
	}
	if t.LateClock {
		u.Keep = append(u.Keep, memory.Span{Off: memory.PHVAsked, Size: 8})
		room += 8
	}
	return room <= memory.MostUndone
}

// asReceived reports whether a header's fields are still equal to the frame's, or are 0, on every
// path to a step.
func (t *finder) asReceived(h *bmv2json.Header, at *Step, order []*Step) bool {
	before := make([]bool, len(order))
	before[at.order] = true
	fields := t.FieldsOf(h)
	for i, s := range slices.Backward(order) {
		for _, n := range s.Next {
			before[i] = before[i] || n.order < len(order) && order[n.order] == n && before[n.order]
		}
		if !before[i] || s == at {
			continue
		}
		if s.Kind == StepTable { // a lookup itself changes no field
			continue
		}
		for _, off := range t.changedBy(s) {
			if off == ir.EveryField || slices.Contains(fields, off) {
				return false
			}
		}
	}
	return true
}

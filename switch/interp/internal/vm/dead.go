package vm

// dead removes steps that set lanes which no later step reads.
type dead struct {
	private laneSet // the lanes that are not read after the last step
	done    map[*step]alive
}

// alive is the result for a step: the step that replaces it, and the lanes that are read from that
// step on.
type alive struct {
	step  *step
	lanes laneSet
}

func (d *dead) at(s *step) alive {
	if s == nil {
		return alive{lanes: make(laneSet, len(d.private))}
	}
	if a, ok := d.done[s]; ok {
		return a
	}
	out := alive{step: s, lanes: make(laneSet, len(d.private))}
	if s.op == opTable {
		d.table(s.table, out.lanes)
	} else {
		next := d.at(s.next)
		s.next = next.step
		out.lanes.addAll(next.lanes)
		if s.yes != nil {
			yes := d.at(s.yes)
			s.yes = yes.step
			out.lanes.addAll(yes.lanes)
		}
	}
	lane, sets := s.sets()
	switch {
	case sets && d.private.has(lane) && !out.lanes.has(lane):
		out.step = s.next
	case s.op.branches() && s.yes == s.next:
		out.step = s.next
	default:
		if sets {
			out.lanes.remove(lane)
		}
		s.asks(out.lanes)
	}
	d.done[s] = out
	return out
}

func (d *dead) table(o *outcomes, lanes laneSet) {
	to := func(at **step) {
		a := d.at(*at)
		*at = a.step
		lanes.addAll(a.lanes)
	}
	for i := range o.hit {
		to(&o.hit[i])
		to(&o.miss[i])
	}
	to(&o.none)
	to(&o.missed)
	if lane, ok := o.t.ColorLane(); ok {
		lanes.remove(lane)
	}
	lanes.addRuns(o.t.KeyRuns())
}

package interp

// dead leaves out what sets a lane that nobody asks for any more.
type dead struct {
	private laneSet // the lanes that nobody asks for behind the last step
	done    map[*step]alive
}

// alive is what a step became, and the lanes that are asked for from there on.
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
	if o.t.meter != nil {
		lanes.remove(o.t.meterLane)
	}
	for _, k := range o.t.keys {
		if k.valid < 0 {
			lanes.addRuns([]laneRun{{k.lane, k.lane + k.lanes}})
		}
	}
}

// asks adds the lanes that a step reads.
func (s *step) asks(lanes laneSet) {
	switch s.op {
	case opCopy, opMask, opAdd, opOr, opXor, opShl, opShr, opRead:
		lanes.add(int(s.b))
	case opAddLane, opSubLane, opAndLane, opOrLane, opXorLane:
		lanes.add(int(s.b))
		lanes.add(int(s.k))
	case opIfEqual, opIfLess, opIfIn, opCount:
		lanes.add(int(s.a))
	case opIfEqualLane, opIfLessLane:
		lanes.add(int(s.a))
		lanes.add(int(s.k))
	case opWrite:
		lanes.add(int(s.a))
		lanes.add(int(s.b))
	}
	switch {
	case s.effects == nil:
	case s.effects.unknown:
		lanes.fill()
	default:
		lanes.addRuns(s.effects.reads)
	}
}

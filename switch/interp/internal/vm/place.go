package vm

// placement converts steps to a list of instructions.
type placement struct {
	code *Code
	list []instr
	todo []*step // steps that begin further rows of instructions
	late []late
}

// late is a jump whose target has no place in the list yet.
type late struct {
	to  *uint32
	at  int // index of the jump instruction, if to is nil
	end *step
}

// placed returns the code of the steps from first on.
func placed(first *step) *Code {
	p := &placement{code: &Code{}}
	p.todo = append(p.todo, first)
	for len(p.todo) > 0 {
		s := p.todo[len(p.todo)-1]
		p.todo = p.todo[:len(p.todo)-1]
		if !s.placed {
			p.row(s)
		}
	}
	for _, x := range p.late {
		if x.to != nil {
			*x.to = x.end.at
		} else {
			p.list[x.at].to = x.end.at
		}
	}
	p.code.list = p.list
	return p.code
}

// row places a step and its successors, up to a successor that is already placed.
func (p *placement) row(s *step) {
	for ; s != nil; s = s.next {
		if s.placed {
			p.jump(instr{op: opJump}, s)
			return
		}
		s.placed, s.at = true, uint32(len(p.list))
		if n := runOf(s); n > 2 {
			p.list = append(p.list, instr{op: map[opcode]opcode{opSet: opSets, opCopy: opCopies,
				opParam: opParams}[s.op], a: uint16(n)})
			for range n - 1 {
				p.list = append(p.list, s.instr())
				s = s.next
				s.placed, s.at = true, uint32(len(p.list))
			}
			p.list = append(p.list, s.instr())
			continue
		}
		p.step(s)
	}
}

// runOf returns how many unplaced steps of one kind begin with s.
func runOf(s *step) (n int) {
	op := s.op
	if op != opSet && op != opCopy && op != opParam {
		return 0
	}
	for ; s != nil && s.op == op && (n == 0 || !s.placed) && n < 1<<12; s = s.next {
		n++
	}
	return n
}

// jump adds an instruction that jumps to a step.
func (p *placement) jump(in instr, to *step) {
	p.late = append(p.late, late{at: len(p.list), end: to})
	p.list = append(p.list, in)
	if !to.placed {
		p.todo = append(p.todo, to)
	}
}

func (p *placement) step(s *step) {
	in := s.instr()
	switch {
	case s.op == opIfExit:
		p.jump(in, s.yes)
		return
	case s.op == opIf:
		in.k = uint64(len(p.code.conds))
		p.code.conds = append(p.code.conds, s.cond)
		fallthrough
	case s.op.branches():
		p.branch(s, in)
		return
	case s.op == opValue:
		in.k = uint64(len(p.code.values))
		p.code.values = append(p.code.values, s.value)
	case s.op == opDo:
		in.k = uint64(len(p.code.do))
		p.code.do = append(p.code.do, s.do)
	case s.op == opTable:
		in.k = uint64(len(p.code.tables))
		p.code.tables = append(p.code.tables, p.site(s.table))
	}
	p.list = append(p.list, in)
}

// branch adds a condition. Its false branch is placed next or, if that branch is already placed,
// its true branch.
func (p *placement) branch(s *step, in instr) {
	if s.next.placed && !s.yes.placed {
		in.op = in.op.negated()
		s.yes, s.next = s.next, s.yes
	}
	p.jump(in, s.yes)
}

// site creates the site of a table. The next instructions are filled in later.
func (p *placement) site(o *outcomes) *site {
	s := &site{t: o.t, records: o.t.Records, hit: make([]uint32, len(o.hit)), miss: make([]uint32, len(o.miss))}
	if words, lane, header, ok := o.t.SoleKey(); ok {
		s.words, s.lane, s.header = words, int32(lane), int32(header)
		s.quiet = !o.t.Records && o.t.Source.ActionProfile == nil
	}
	to := func(at *uint32, end *step) {
		if end == nil {
			return // no entry has this action
		}
		p.late = append(p.late, late{to: at, end: end})
		if !end.placed {
			p.todo = append(p.todo, end)
		}
	}
	for i := range o.hit {
		to(&s.hit[i], o.hit[i])
		to(&s.miss[i], o.miss[i])
	}
	to(&s.none, o.none)
	to(&s.missed, o.missed)
	return s
}

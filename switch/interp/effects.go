package interp

import (
	"slices"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// effects are what a closure among the steps may read and set of a packet, so far as others ask for
// it: fields as runs of lanes, and the validity of headers.
type effects struct {
	reads, sets []laneRun
	valid       []int // headers of which it may set the validity
	// nobody knows: it may read and set everything
	unknown bool
}

var anything = &effects{unknown: true}

// effectsOf are those of a primitive. What is not known for sure is anything.
func (l *lowering) effectsOf(p *bmv2json.Primitive) *effects {
	types, out := argTypes[p.Op], &effects{}
	if strings.ContainsAny(types, "suv") || len(types) != len(p.Args) {
		return anything
	}
	for i, a := range p.Args {
		switch types[i] {
		case 'l':
			if a.Op != bmv2json.OpField || a.Field.Field.VL {
				return anything
			}
			out.sets = append(out.sets, l.runOf(a.Field))
		case 'h':
			if a.Op != bmv2json.OpHeader {
				return anything
			}
			h := a.Header.Index
			all := laneRun{l.c.lay.headers[h].base, l.c.lay.headers[h].base + l.c.lay.headers[h].t.lanes}
			out.reads, out.sets = append(out.reads, all), append(out.sets, all)
			out.valid = append(append(out.valid, h), l.c.lay.headers[h].siblings...)
		case 'k':
			for _, in := range a.Calc.Input {
				out.reads = append(out.reads, l.inputRuns(in)...)
			}
		case 'd', 'b', 'p':
			if !l.readsOf(a, &out.reads) {
				return anything
			}
		}
	}
	if p.Op == "mark_to_drop" || p.Op == "drop" {
		return anything
	}
	return out
}

// effectsOfExpr are those of an expression.
func (l *lowering) effectsOfExpr(e *bmv2json.Expr) *effects {
	out := &effects{}
	if !l.readsOf(e, &out.reads) {
		return anything
	}
	return out
}

func (l *lowering) runOf(f bmv2json.FieldRef) laneRun {
	at := l.c.lay.laneOfTarget(f)
	return laneRun{at, at + lanesOf(f.Width())}
}

func (l *lowering) inputRuns(in bmv2json.CalcInput) []laneRun {
	switch {
	case in.Header != nil:
		hl := l.c.lay.headers[in.Header.Index]
		return []laneRun{{hl.base, hl.base + hl.t.lanes}}
	case !in.Field.IsZero() && !in.Field.IsValidity() && !in.Field.Field.VL:
		return []laneRun{l.runOf(in.Field)}
	}
	return nil
}

// readsOf adds the fields that an expression reads; false where nobody knows which. Headers that
// are in packets are not told: what is in those is never left out.
func (l *lowering) readsOf(e *bmv2json.Expr, to *[]laneRun) bool {
	if e == nil {
		return true
	}
	switch e.Op {
	case bmv2json.OpField:
		if !e.Field.IsValidity() && !e.Field.Field.VL {
			*to = append(*to, l.runOf(e.Field))
		}
	case bmv2json.OpHeader:
		hl := l.c.lay.headers[e.Header.Index]
		*to = append(*to, laneRun{hl.base, hl.base + hl.t.lanes})
	case bmv2json.OpCalculation:
		for _, in := range e.Calc.Input {
			*to = append(*to, l.inputRuns(in)...)
		}
	}
	ok := l.readsOf(e.Cond, to) && l.readsOf(e.Left, to) && l.readsOf(e.Right, to)
	for _, a := range e.Args {
		ok = ok && l.readsOf(a, to)
	}
	return ok
}

// laneSet is a set of lanes.
type laneSet []uint64

func newLaneSet(lanes int) laneSet { return make(laneSet, (lanes+63)/64) }

func (s laneSet) has(lane int) bool { return s[lane>>6]>>(lane&63)&1 != 0 }
func (s laneSet) add(lane int)      { s[lane>>6] |= 1 << (lane & 63) }
func (s laneSet) remove(lane int)   { s[lane>>6] &^= 1 << (lane & 63) }
func (s laneSet) addRuns(runs []laneRun) {
	for _, r := range runs {
		for i := r.from; i < r.to; i++ {
			s.add(i)
		}
	}
}
func (s laneSet) addAll(o laneSet) {
	for i, v := range o {
		s[i] |= v
	}
}
func (s laneSet) fill() {
	for i := range s {
		s[i] = ^uint64(0)
	}
}

// targetHeaders are those in which the target has fields of its own.
func targetHeader(name string) bool {
	return slices.Contains([]string{"standard_metadata", "intrinsic_metadata", "queueing_metadata"},
		name) || strings.HasPrefix(name, "psa_")
}

// private are the lanes of metadata that nothing but a pipeline's own control flow knows of: they
// are 0 where it begins, and nobody asks for them behind it.
func (l *lowering) private(pl *bmv2json.Pipeline) laneSet {
	known := newLaneSet(l.c.lay.lanes)
	var runs []laneRun
	mention := func(e *bmv2json.Expr) { l.readsOf(e, &runs) }
	primitives := func(list []*bmv2json.Primitive) {
		for _, p := range list {
			for _, a := range p.Args {
				mention(a)
			}
		}
	}
	for _, h := range l.c.prog.Headers {
		if hl := l.c.lay.headers[h.Index]; !h.Metadata || targetHeader(h.Name) {
			runs = append(runs, laneRun{hl.base, hl.base + hl.t.lanes})
		}
	}
	for _, q := range l.c.prog.Parsers {
		for _, s := range q.States {
			for _, o := range s.Ops {
				for _, e := range []*bmv2json.Expr{o.Length, o.Value, o.Cond} {
					mention(e)
				}
				if o.Kind == bmv2json.ParserSet && !o.Dest.Field.VL {
					runs = append(runs, l.runOf(o.Dest))
				}
				if o.Primitive != nil {
					primitives([]*bmv2json.Primitive{o.Primitive})
				}
			}
			for _, k := range s.Key {
				mention(k)
			}
		}
	}
	for _, d := range l.c.prog.Deparsers {
		primitives(d.Primitives)
	}
	for _, list := range l.c.fieldList {
		runs = append(runs, list...)
	}
	for _, list := range l.c.prog.LearnLists {
		for _, e := range list.Elements {
			mention(e)
		}
	}
	for _, k := range l.c.prog.Checksums {
		mention(k.Cond)
		runs = append(runs, l.runOf(k.Target))
		for _, in := range k.Calc.Input {
			runs = append(runs, l.inputRuns(in)...)
		}
	}
	for _, pr := range l.c.prog.Profiles() {
		if pr.Selector != nil {
			for _, in := range pr.Selector.Input {
				runs = append(runs, l.inputRuns(in)...)
			}
		}
	}
	for _, name := range []string{"ingress", "egress"} {
		other := l.c.prog.Pipeline(name)
		if other == nil || other == pl {
			continue
		}
		for _, t := range other.Tables {
			for _, k := range t.Keys {
				if !k.Field.IsValidity() {
					runs = append(runs, l.runOf(k.Field))
				}
			}
			if t.DirectMeter != nil {
				runs = append(runs, l.runOf(t.DirectMeter.Result))
			}
			for _, a := range t.Actions {
				primitives(a.Primitives)
			}
			if t.Default != nil {
				primitives(t.Default.Action.Primitives)
			}
		}
		for _, cd := range other.Conditionals {
			mention(cd.Expr)
		}
		for _, a := range other.ActionCalls {
			primitives(a.Action.Primitives)
		}
	}
	known.addRuns(runs)
	out := newLaneSet(l.c.lay.lanes)
	for i := range l.c.lay.lanes {
		if !known.has(i) {
			out.add(i)
		}
	}
	return out
}

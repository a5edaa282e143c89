package vm

import (
	"slices"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// effectsOf returns the effects of a primitive. If they are not known exactly, it returns effects
// that include everything.
func (l *lowering) effectsOf(p *bmv2json.Primitive) *effects {
	types, out := reference.ArgumentTypes[p.Op], &effects{}
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
			all := l.c.Layout.Headers[h].Run()
			out.reads, out.sets = append(out.reads, all), append(out.sets, all)
			out.valid = append(append(out.valid, h), l.c.Layout.Headers[h].Siblings...)
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

// effectsOfExpr returns the effects of an expression.
func (l *lowering) effectsOfExpr(e *bmv2json.Expr) *effects {
	out := &effects{}
	if !l.readsOf(e, &out.reads) {
		return anything
	}
	return out
}

func (l *lowering) runOf(f bmv2json.FieldRef) packet.Run {
	at := l.c.Layout.LaneForTarget(f)
	return packet.Run{From: at, To: at + wideint.Lanes(f.Width())}
}

func (l *lowering) inputRuns(in bmv2json.CalcInput) []packet.Run {
	switch {
	case in.Header != nil:
		hl := l.c.Layout.Headers[in.Header.Index]
		return []packet.Run{hl.Run()}
	case !in.Field.IsZero() && !in.Field.IsValidity() && !in.Field.Field.VL:
		return []packet.Run{l.runOf(in.Field)}
	}
	return nil
}

// readsOf adds the fields that an expression reads. It returns false if these are not known. It
// does not add fields of packet headers, because stores to them are never left out.
func (l *lowering) readsOf(e *bmv2json.Expr, to *[]packet.Run) bool {
	if e == nil {
		return true
	}
	switch e.Op {
	case bmv2json.OpField:
		if !e.Field.IsValidity() && !e.Field.Field.VL {
			*to = append(*to, l.runOf(e.Field))
		}
	case bmv2json.OpHeader:
		hl := l.c.Layout.Headers[e.Header.Index]
		*to = append(*to, hl.Run())
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

// targetHeader reports whether a header has fields that the engine itself uses.
func targetHeader(name string) bool {
	return slices.Contains([]string{"standard_metadata", "intrinsic_metadata", "queueing_metadata"},
		name) || strings.HasPrefix(name, "psa_")
}

// private returns the metadata lanes that only this pipeline's control flow uses. They are 0 at the
// beginning of the pipeline, and nothing reads them after the pipeline.
func (l *lowering) private(pl *bmv2json.Pipeline) laneSet {
	known := newLaneSet(l.c.Layout.Lanes)
	var runs []packet.Run
	for _, h := range l.c.Source.Headers {
		if hl := l.c.Layout.Headers[h.Index]; !h.Metadata || targetHeader(h.Name) {
			runs = append(runs, hl.Run())
		}
	}
	l.readByParsers(&runs)
	for _, list := range l.c.FieldLists {
		runs = append(runs, list...)
	}
	for _, list := range l.c.Source.LearnLists {
		for _, e := range list.Elements {
			l.readsOf(e, &runs)
		}
	}
	for _, k := range l.c.Source.Checksums {
		l.readsOf(k.Cond, &runs)
		runs = append(runs, l.runOf(k.Target))
		for _, in := range k.Calc.Input {
			runs = append(runs, l.inputRuns(in)...)
		}
	}
	for _, pr := range l.c.Source.ActionProfiles() {
		if pr.Selector != nil {
			for _, in := range pr.Selector.Input {
				runs = append(runs, l.inputRuns(in)...)
			}
		}
	}
	l.readByOtherPipeline(pl, &runs)
	known.addRuns(runs)
	out := newLaneSet(l.c.Layout.Lanes)
	for i := range l.c.Layout.Lanes {
		if !known.has(i) {
			out.add(i)
		}
	}
	return out
}

// readByPrimitives adds the fields that arguments of primitives read.
func (l *lowering) readByPrimitives(list []*bmv2json.Primitive, to *[]packet.Run) {
	for _, p := range list {
		for _, a := range p.Args {
			l.readsOf(a, to)
		}
	}
}

// readByParsers adds the fields that parsers and deparsers read and set.
func (l *lowering) readByParsers(to *[]packet.Run) {
	for _, q := range l.c.Source.Parsers {
		for _, s := range q.States {
			for _, o := range s.Ops {
				for _, e := range []*bmv2json.Expr{o.Length, o.Value, o.Cond} {
					l.readsOf(e, to)
				}
				if o.Kind == bmv2json.ParserSet && !o.Dest.Field.VL {
					*to = append(*to, l.runOf(o.Dest))
				}
				if o.Primitive != nil {
					l.readByPrimitives([]*bmv2json.Primitive{o.Primitive}, to)
				}
			}
			for _, k := range s.Key {
				l.readsOf(k, to)
			}
		}
	}
	for _, d := range l.c.Source.Deparsers {
		l.readByPrimitives(d.Primitives, to)
	}
}

// readByOtherPipeline adds the fields that the other pipeline reads.
func (l *lowering) readByOtherPipeline(pl *bmv2json.Pipeline, to *[]packet.Run) {
	for _, name := range []string{"ingress", "egress"} {
		other := l.c.Source.Pipeline(name)
		if other == nil || other == pl {
			continue
		}
		for _, t := range other.Tables {
			for _, k := range t.Keys {
				if !k.Field.IsValidity() {
					*to = append(*to, l.runOf(k.Field))
				}
			}
			if t.DirectMeter != nil {
				*to = append(*to, l.runOf(t.DirectMeter.Result))
			}
			for _, a := range t.Actions {
				l.readByPrimitives(a.Primitives, to)
			}
			if t.Default != nil {
				l.readByPrimitives(t.Default.Action.Primitives, to)
			}
		}
		for _, cd := range other.Conditionals {
			l.readsOf(cd.Expr, to)
		}
		for _, a := range other.ActionCalls {
			l.readByPrimitives(a.Action.Primitives, to)
		}
	}
}

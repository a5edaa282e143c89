package compile

import (
	"cmp"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// readFields are the fields that something reads: single ones, and those of whole headers.
type readFields struct {
	fields  map[bmv2json.FieldRef]bool
	headers map[*bmv2json.Header]bool
}

func (s readFields) has(r bmv2json.FieldRef) bool { return s.fields[r] || s.headers[r.Header] }

// Reads reports whether anything in the program reads a field: what nobody reads need not be set.
func (p *Plan) Reads(r bmv2json.FieldRef) bool { return p.read.has(r) }

// fieldsRead are the fields that anything reads but the tables, actions and conditions of a
// pipeline; without one, that anything reads.
func fieldsRead(prog *bmv2json.Program, without *bmv2json.Pipeline) readFields {
	out := readFields{map[bmv2json.FieldRef]bool{}, map[*bmv2json.Header]bool{}}
	see := func(e *bmv2json.Expr) {
		if e.Op == bmv2json.OpField {
			out.fields[e.Field] = true
		}
	}
	outsidePipelines(prog, uses{see, func(q *bmv2json.Primitive) { walkPrimitive(q, see) },
		func(r bmv2json.FieldRef) { out.fields[r] = true },
		func(h *bmv2json.Header) { out.headers[h] = true }})
	inside := map[*bmv2json.Action]bool{}
	for _, q := range prog.Pipelines {
		for _, n := range nodes(q) {
			for _, a := range actionsOf(n) {
				was, seen := inside[a]
				inside[a] = q == without && (was || !seen)
			}
		}
		for _, c := range q.Conditionals {
			if q != without {
				walk(c.Expr, see)
			}
		}
	}
	for _, a := range prog.Actions {
		for _, q := range a.Primitives {
			if !inside[a] {
				walkPrimitive(q, see)
			}
		}
	}
	for _, t := range prog.Tables() {
		for _, k := range t.Keys {
			if t.Pipeline != without {
				out.fields[k.Field] = true
			}
		}
	}
	for _, d := range prog.Deparsers {
		for _, h := range d.Order {
			out.headers[h] = true
		}
	}
	return out
}

// uses is told of what a program uses: each part of its expressions, primitives, and what is named
// as a field or as a whole header.
type uses struct {
	expr      func(*bmv2json.Expr)
	primitive func(*bmv2json.Primitive)
	field     func(bmv2json.FieldRef)
	header    func(*bmv2json.Header)
}

// outsidePipelines tells of what is used by all that is not a pipeline's, nor an order of headers:
// parsers, calculations, selectors, checksums and lists.
func outsidePipelines(prog *bmv2json.Program, u uses) {
	for _, q := range prog.Parsers {
		for _, s := range q.States {
			for _, k := range s.Key {
				walk(k, u.expr)
			}
			for _, o := range s.Ops {
				walk(o.Value, u.expr)
				walk(o.Cond, u.expr)
				walk(o.Length, u.expr)
				u.primitive(o.Primitive)
			}
		}
	}
	inputs := func(in []bmv2json.CalcInput) {
		for _, i := range in {
			if i.Header != nil {
				u.header(i.Header)
			} else if !i.Field.IsZero() {
				u.field(i.Field)
			}
		}
	}
	for _, c := range prog.Calculations {
		inputs(c.Input)
	}
	for _, a := range prog.Profiles() {
		if a.Selector != nil {
			inputs(a.Selector.Input)
		}
	}
	for _, c := range prog.Checksums {
		u.field(c.Target)
		walk(c.Cond, u.expr)
	}
	for _, l := range prog.FieldLists {
		for _, f := range l.Fields {
			u.field(f)
		}
	}
	for _, l := range prog.LearnLists {
		for _, e := range l.Elements {
			walk(e, u.expr)
		}
	}
}

// refusePriorities refuses a program that gives packets priorities: there are no queues here in
// which one would overtake another.
func refusePriorities(prog *bmv2json.Program) {
	priority := prog.FieldNamed("intrinsic_metadata", "priority")
	if priority.IsZero() {
		return
	}
	written := func(q *bmv2json.Primitive) {
		if q == nil {
			return
		}
		for _, a := range q.Args[:min(1, len(q.Args))] {
			if a.Op == bmv2json.OpField && a.Field == priority {
				ir.Refuse(q.Path, "a packet's priority (%s), as there are no queues between ingress "+
					"and egress", priority)
			}
		}
	}
	for _, a := range prog.Actions {
		for _, q := range a.Primitives {
			written(q)
		}
	}
	for _, q := range prog.Parsers {
		for _, s := range q.States {
			for _, o := range s.Ops {
				written(o.Primitive)
				if o.Dest == priority {
					ir.Refuse(o.Path, "a packet's priority (%s), as there are no queues between "+
						"ingress and egress", priority)
				}
			}
		}
	}
}

// walkPrimitive walks the arguments that a primitive reads; the first one of an assignment is only
// written.
func walkPrimitive(q *bmv2json.Primitive, see func(*bmv2json.Expr)) {
	if q == nil {
		return
	}
	args := q.Args
	if len(args) > 0 && args[0].Op != bmv2json.OpField && args[0].Op != bmv2json.OpHeader {
		walk(args[0], see) // what says which one of a stack it is
	}
	switch q.Op {
	case "mark_to_drop", "add_header", "remove_header":
		return // their argument is a header of which they read nothing
	case "assign", "modify_field", "register_read", "modify_field_with_hash_based_offset",
		"modify_field_rng_uniform":
		args = args[min(1, len(args)):]
	}
	for _, a := range args {
		walk(a, see)
		if a.Op == bmv2json.OpHeader { // a header as a whole: all of its fields
			for _, f := range a.Header.Type.Fields {
				see(&bmv2json.Expr{Op: bmv2json.OpField,
					Field: bmv2json.FieldRef{Header: a.Header, Field: f}})
			}
		}
	}
}

func walk(e *bmv2json.Expr, see func(*bmv2json.Expr)) {
	if e == nil {
		return
	}
	see(e)
	walk(e.Cond, see)
	walk(e.Left, see)
	walk(e.Right, see)
	for _, a := range e.Args {
		walk(a, see)
	}
}

// earlyHeaders finds the headers that the parser may look at, or write to, before it has extracted
// them, or extract and make invalid again. Their fields are 0 when it begins; those of others are
// made 0 when it has ended without extracting them.
func earlyHeaders(prog *bmv2json.Program) map[*bmv2json.Header]bool {
	early := map[*bmv2json.Header]bool{}
	if len(prog.Parsers) == 0 || prog.Parsers[0].Init == nil {
		return early
	}
	// What every way to a state has extracted. It only shrinks.
	extracted := map[*bmv2json.ParseState]map[*bmv2json.Header]bool{prog.Parsers[0].Init: {}}
	pending := []*bmv2json.ParseState{prog.Parsers[0].Init}
	for len(pending) > 0 {
		s := pending[0]
		pending = pending[1:]
		have := maps.Clone(extracted[s])
		see := func(e *bmv2json.Expr) {
			for _, h := range possibleHeaders(e) {
				early[h] = early[h] || !h.Metadata && !have[h]
			}
		}
		for _, o := range s.Ops {
			for _, e := range []*bmv2json.Expr{o.Value, o.Cond, o.Length} {
				walk(e, see)
			}
			if !o.Dest.IsZero() {
				see(&bmv2json.Expr{Op: bmv2json.OpField, Field: o.Dest})
			}
			if o.Primitive != nil {
				for _, e := range o.Primitive.Args {
					walk(e, see)
				}
			}
			// A member of a union that is extracted makes another one invalid, whose fields stay.
			if o.Header != nil && o.Header.Union != nil {
				early[o.Header] = true
			}
			if o.UnionStack != nil {
				for _, h := range members(o) {
					early[h] = true
				}
			}
			// the elements of a stack are extracted one after the other: nobody counts them here
			if o.Header != nil {
				have[o.Header] = true
			}
		}
		for _, k := range s.Key {
			walk(k, see)
		}
		for _, tr := range s.Transitions {
			if tr.Next == nil {
				continue
			}
			before, seen := extracted[tr.Next]
			if !seen {
				extracted[tr.Next] = maps.Clone(have)
				pending = append(pending, tr.Next)
				continue
			}
			n := len(before)
			maps.DeleteFunc(before, func(h *bmv2json.Header, _ bool) bool { return !have[h] })
			if len(before) < n {
				pending = append(pending, tr.Next)
			}
		}
	}
	return early
}

// egressWrites finds what of the PHV egress changes, in whole words: what has to be put back before
// the next copy of a packet goes through it.
func (p *Plan) egressWrites() []span {
	var spans []span
	add := func(off, size int) {
		from := off &^ 7
		spans = append(spans, span{from, (off+size+7)&^7 - from})
	}
	field := func(r bmv2json.FieldRef) {
		if !r.IsZero() && r.Field != nil {
			f := p.Layout.Field(r)
			add(f.Off, f.Size)
		}
	}
	header := func(h *bmv2json.Header) {
		add(p.Layout.Base[h.Index], p.Layout.Types[h.Type].Size)
		add(p.Layout.Validity(h), 1)
	}
	if p.readsPacketLength() {
		add(phvLength, 4)
	}
	for _, r := range []bmv2json.FieldRef{p.std.egressSpec, p.std.egressPort, p.std.egressRid,
		p.std.egressTime, p.std.packetLength, p.std.mcastGroup} {
		field(r)
	}
	if q := p.Prog.Pipeline("egress"); q != nil {
		for _, n := range nodes(q) {
			for _, a := range actionsOf(n) {
				for _, prim := range a.Primitives {
					written := prim.Args[:min(1, len(prim.Args))]
					if prim.Op == "execute_meter" && len(prim.Args) == 3 {
						written = prim.Args[2:]
					}
					for _, e := range written {
						if e.Op == bmv2json.OpField && !e.Field.IsValidity() && !e.Field.Field.VL {
							field(e.Field)
							continue
						}
						for _, h := range possibleHeaders(e) {
							if prim.Op != "mark_to_drop" {
								header(h)
							}
						}
						switch e.Op {
						case bmv2json.OpStack:
							add(p.Layout.NextOf(e.Stack), 1)
						case bmv2json.OpUnionStack:
							add(p.Layout.NextOfUnions(e.UnionStack), 1)
						}
					}
				}
			}
		}
	}
	for _, k := range p.Prog.Checksums {
		if k.Update {
			field(k.Target)
		}
	}
	// Those that touch become one.
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && s.off <= out[n-1].off+out[n-1].size {
			out[n-1].size = max(out[n-1].size, s.off+s.size-out[n-1].off)
			continue
		}
		out = append(out, s)
	}
	return out
}

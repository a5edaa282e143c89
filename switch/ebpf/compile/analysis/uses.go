package analysis

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// ReadFields is a set of fields that are read: single fields, and all fields of some headers.
type ReadFields struct {
	fields  map[bmv2json.FieldRef]bool
	headers map[*bmv2json.Header]bool
}

// Contains reports whether a field is read.
func (s ReadFields) Contains(r bmv2json.FieldRef) bool { return s.fields[r] || s.headers[r.Header] }

// FieldsRead returns the fields that a program reads outside the tables, actions and conditions of
// the pipeline without. If without is nil, it returns all fields that the program reads.
func FieldsRead(prog *bmv2json.Program, without *bmv2json.Pipeline) ReadFields {
	out := ReadFields{map[bmv2json.FieldRef]bool{}, map[*bmv2json.Header]bool{}}
	see := func(e *bmv2json.Expr) {
		if e.Op == bmv2json.OpField {
			out.fields[e.Field] = true
		}
	}
	visitOutsidePipelines(prog, visitor{see, func(q *bmv2json.Primitive) { walkReads(q, see) },
		func(r bmv2json.FieldRef) { out.fields[r] = true },
		func(h *bmv2json.Header) { out.headers[h] = true }})
	inside := map[*bmv2json.Action]bool{}
	for _, q := range prog.Pipelines {
		for _, n := range Nodes(q) {
			for _, a := range ActionsOf(n) {
				was, seen := inside[a]
				inside[a] = q == without && (was || !seen)
			}
		}
		for _, c := range q.Conditionals {
			if q != without {
				WalkExpr(c.Expr, see)
			}
		}
	}
	for _, a := range prog.Actions {
		for _, q := range a.Primitives {
			if !inside[a] {
				walkReads(q, see)
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

// visitor has functions that are called for everything that a program uses: the parts of its
// expressions, its primitives, and its named fields and headers.
type visitor struct {
	expr      func(*bmv2json.Expr)
	primitive func(*bmv2json.Primitive)
	field     func(bmv2json.FieldRef)
	header    func(*bmv2json.Header)
}

// visitOutsidePipelines calls u for what a program uses outside its pipelines: in parsers,
// calculations, selectors, checksums and lists. It ignores the header orders of deparsers.
func visitOutsidePipelines(prog *bmv2json.Program, u visitor) {
	for _, q := range prog.Parsers {
		for _, s := range q.States {
			for _, k := range s.Key {
				WalkExpr(k, u.expr)
			}
			for _, o := range s.Ops {
				WalkExpr(o.Value, u.expr)
				WalkExpr(o.Cond, u.expr)
				WalkExpr(o.Length, u.expr)
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
	for _, a := range prog.ActionProfiles() {
		if a.Selector != nil {
			inputs(a.Selector.Input)
		}
	}
	for _, c := range prog.Checksums {
		u.field(c.Target)
		WalkExpr(c.Cond, u.expr)
	}
	for _, l := range prog.FieldLists {
		for _, f := range l.Fields {
			u.field(f)
		}
	}
	for _, l := range prog.LearnLists {
		for _, e := range l.Elements {
			WalkExpr(e, u.expr)
		}
	}
}

// walkReads calls see for the arguments that a primitive reads. The first argument of an assignment
// is only written, so walkReads skips it.
func walkReads(q *bmv2json.Primitive, see func(*bmv2json.Expr)) {
	if q == nil {
		return
	}
	args := q.Args
	if len(args) > 0 && args[0].Op != bmv2json.OpField && args[0].Op != bmv2json.OpHeader {
		WalkExpr(args[0], see) // The index of a stack's element is still read.
	}
	switch q.Op {
	case "mark_to_drop", "add_header", "remove_header":
		return // These primitives read no field of the header that is their argument.
	case "assign", "modify_field", "register_read", "modify_field_with_hash_based_offset",
		"modify_field_rng_uniform":
		args = args[min(1, len(args)):]
	}
	for _, a := range args {
		WalkExpr(a, see)
		if a.Op == bmv2json.OpHeader { // A header as a whole stands for all of its fields.
			for _, f := range a.Header.Type.Fields {
				see(&bmv2json.Expr{Op: bmv2json.OpField,
					Field: bmv2json.FieldRef{Header: a.Header, Field: f}})
			}
		}
	}
}

// WalkExpr calls see for an expression and for all of its parts.
func WalkExpr(e *bmv2json.Expr, see func(*bmv2json.Expr)) {
	if e == nil {
		return
	}
	see(e)
	WalkExpr(e.Cond, see)
	WalkExpr(e.Left, see)
	WalkExpr(e.Right, see)
	for _, a := range e.Args {
		WalkExpr(a, see)
	}
}

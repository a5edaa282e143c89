package analysis

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// HasVarbit reports whether one of a deparser's headers has a field of variable length.
func HasVarbit(d *bmv2json.Deparser) bool {
	return slices.ContainsFunc(d.Order, func(h *bmv2json.Header) bool { return h.Type.VL >= 0 })
}

// PossibleHeaders returns all headers that a primitive with the first argument e may change.
func PossibleHeaders(e *bmv2json.Expr) (list []*bmv2json.Header) {
	member := func(h *bmv2json.Header) {
		if list = append(list, h); h.Union != nil {
			list = append(list, h.Union.Headers...)
		}
	}
	switch e.Op {
	case bmv2json.OpHeader:
		member(e.Header)
	case bmv2json.OpStack:
		list = e.Stack.Headers
	case bmv2json.OpUnion:
		list = e.Union.Headers
	case bmv2json.OpUnionStack:
		for _, u := range e.UnionStack.Unions {
			list = append(list, u.Headers...)
		}
	case bmv2json.OpField:
		member(e.Field.Header)
	case bmv2json.OpAccessField, bmv2json.OpStackElem, bmv2json.OpUnionHeader,
		bmv2json.OpUnionStackElem:
		list = PossibleHeaders(e.Left)
	}
	return list
}

// OnlyMoved returns the headers whose fields a program only moves between frames and registers. The
// program may examine their validity.
func OnlyMoved(prog *bmv2json.Program) map[*bmv2json.Header]bool {
	out := map[*bmv2json.Header]bool{}
	for _, h := range prog.Headers {
		out[h] = !h.Metadata
	}
	see := func(e *bmv2json.Expr) {
		for _, h := range PossibleHeaders(e) {
			if e.Op != bmv2json.OpField || !e.Field.IsValidity() {
				out[h] = false
			}
		}
	}
	primitive := func(q *bmv2json.Primitive) {
		if q == nil {
			return
		}
		for i, a := range q.Args {
			field := a.Op == bmv2json.OpField && !a.Field.IsValidity()
			switch {
			case q.Op == "register_read" && i == 0 && field,
				q.Op == "register_write" && i == 2 && field && q.Args[0].Op == bmv2json.OpRegisterArray &&
					q.Args[0].Register.Width == a.Width,
				q.Op == "remove_header" && a.Op == bmv2json.OpHeader:
			default:
				WalkExpr(a, see)
			}
		}
	}
	of := func(r bmv2json.FieldRef) {
		if !r.IsZero() && !r.IsValidity() {
			out[r.Header] = false
		}
	}
	visitOutsidePipelines(prog, visitor{see, primitive, of, func(h *bmv2json.Header) { out[h] = false }})
	for _, q := range prog.Pipelines {
		for _, c := range q.Conditionals {
			WalkExpr(c.Expr, see)
		}
	}
	for _, a := range prog.Actions {
		for _, q := range a.Primitives {
			primitive(q)
		}
	}
	for _, d := range prog.Deparsers {
		for _, q := range d.Primitives {
			primitive(q)
		}
	}
	for _, t := range prog.Tables() {
		for _, k := range t.Keys {
			of(k.Field)
		}
	}
	return out
}

package memory

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/affine"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// planRanges finds the values that are assigned anywhere to the program's own metadata.
func (p *Plan) planRanges() {
	p.assigned, p.otherwise = map[int][]*bmv2json.Expr{}, map[int]bool{}
	field := func(r bmv2json.FieldRef) int {
		if r.IsValidity() {
			return p.Layout.Validity(r.Header)
		}
		return p.Layout.Field(r).Off
	}
	other := func(e *bmv2json.Expr) {
		analysis.WalkExpr(e, func(x *bmv2json.Expr) {
			switch {
			case x.Op == bmv2json.OpField:
				p.otherwise[field(x.Field)] = true
			case x.Op == bmv2json.OpHeader:
				for _, f := range x.Header.Type.Fields {
					p.otherwise[p.Layout.Field(bmv2json.FieldRef{Header: x.Header, Field: f}).Off] =
						true
				}
			}
		})
	}
	for _, a := range p.Prog.Actions {
		for _, q := range a.Primitives {
			switch q.Op {
			case "assign", "modify_field":
				if dst := q.Args[0]; dst.Op == bmv2json.OpField {
					off := field(dst.Field)
					p.assigned[off] = append(p.assigned[off], q.Args[1])
					continue
				}
				other(q.Args[0])
			case "register_read":
				other(q.Args[0])
			case "register_write", "count", "no_op", "log_msg", "mark_to_drop", "drop", "_jump",
				"_jump_if_zero":
			default:
				for _, e := range q.Args {
					other(e)
				}
			}
		}
	}
	for _, t := range p.Prog.Tables() {
		if t.DirectMeter != nil {
			p.otherwise[field(t.DirectMeter.Result)] = true
		}
	}
	for _, q := range p.Prog.Parsers {
		for _, s := range q.States {
			for _, o := range s.Ops {
				if !o.Dest.IsZero() {
					p.otherwise[field(o.Dest)] = true
				}
				if o.Primitive != nil {
					for _, e := range o.Primitive.Args {
						other(e)
					}
				}
			}
		}
	}
}

// WhereverRead returns the affine form that a field has anywhere in the program. open has the
// fields that are being analysed.
func (p *Plan) WhereverRead(w affine.Evaluator, r bmv2json.FieldRef, open map[int]bool) affine.Form {
	if r.IsValidity() {
		return affine.Unknown()
	}
	off := p.Layout.Field(r).Off
	itself := affine.OfField(p.Layout, r)
	if !r.Header.Metadata || slices.Contains(analysis.StandardHeaders, r.Header.Name) || p.otherwise[off] ||
		open[off] || len(p.assigned[off]) == 0 {
		return itself
	}
	open[off] = true
	defer delete(open, off)
	all := w.Assigned(r.Field, p.assigned[off][0])
	for _, e := range p.assigned[off][1:] {
		all = all.Either(w.Assigned(r.Field, e))
	}
	switch {
	case all.IsUnknown() || all.Base == nil && all.Most == ir.Ones(r.Field.Width):
		return itself
	case all.Base == nil:
		return all.Either(affine.Constant(0)) // metadata begins as 0
	}
	return all
}

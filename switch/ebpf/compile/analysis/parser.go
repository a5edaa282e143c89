package analysis

import (
	"maps"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// EarlyHeaders returns the headers that the parser may access before it has extracted them, or may
// extract and then invalidate. Their fields are set to 0 when the parser begins. The fields of
// other headers are set to 0 only if the parser ends without extracting the header.
func EarlyHeaders(prog *bmv2json.Program) map[*bmv2json.Header]bool {
	early := map[*bmv2json.Header]bool{}
	if len(prog.Parsers) == 0 || prog.Parsers[0].Init == nil {
		return early
	}
	// extracted contains, for each state, the headers that every path to that state has extracted.
	// These sets only shrink.
	extracted := map[*bmv2json.ParseState]map[*bmv2json.Header]bool{prog.Parsers[0].Init: {}}
	pending := []*bmv2json.ParseState{prog.Parsers[0].Init}
	for len(pending) > 0 {
		s := pending[0]
		pending = pending[1:]
		have := maps.Clone(extracted[s])
		see := func(e *bmv2json.Expr) {
			for _, h := range PossibleHeaders(e) {
				early[h] = early[h] || !h.Metadata && !have[h]
			}
		}
		for _, o := range s.Ops {
			for _, e := range []*bmv2json.Expr{o.Value, o.Cond, o.Length} {
				WalkExpr(e, see)
			}
			if !o.Dest.IsZero() {
				see(&bmv2json.Expr{Op: bmv2json.OpField, Field: o.Dest})
			}
			if o.Primitive != nil {
				for _, e := range o.Primitive.Args {
					WalkExpr(e, see)
				}
			}
			// Extracting a member of a union makes the other members invalid, but they keep their
			// fields.
			if o.Header != nil && o.Header.Union != nil {
				early[o.Header] = true
			}
			if o.UnionStack != nil {
				for _, h := range UnionMembers(o) {
					early[h] = true
				}
			}
			// This analysis does not count the elements of a stack, which are extracted one after
			// the other.
			if o.Header != nil {
				have[o.Header] = true
			}
		}
		for _, k := range s.Key {
			WalkExpr(k, see)
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

// IsCycle reports whether control can return to a parser state.
func IsCycle(s *bmv2json.ParseState) bool {
	seen := map[*bmv2json.ParseState]bool{}
	var reach func(*bmv2json.ParseState) bool
	reach = func(at *bmv2json.ParseState) bool {
		for _, tr := range at.Transitions {
			if tr.Next == s {
				return true
			}
			if tr.Next != nil && !seen[tr.Next] {
				seen[tr.Next] = true
				if reach(tr.Next) {
					return true
				}
			}
		}
		return false
	}
	return reach(s)
}

// UnionMembers returns the headers that may be filled when the parser extracts a member of the next
// union of a stack.
func UnionMembers(o *bmv2json.ParserOp) (list []*bmv2json.Header) {
	for _, u := range o.UnionStack.Unions {
		list = append(list, u.Headers[o.UnionMember])
	}
	return list
}

// ParserOperands returns the expressions that a parser operation computes.
func ParserOperands(o *bmv2json.ParserOp) (out []ir.Operand) {
	if o.Kind == bmv2json.ParserSet && o.Value.Op != bmv2json.OpLookahead {
		out = append(out, ir.NewOperand(o.Value, ir.WordsOf(o.Dest.Width())))
	}
	for _, e := range []*bmv2json.Expr{o.Cond, o.Length} {
		if e != nil {
			out = append(out, ir.NewOperand(e, 1))
		}
	}
	return out
}

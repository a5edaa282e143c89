package memory

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Unread reports whether an assignment can be omitted, because it sets the program's own metadata
// and nothing reads the field.
func (p *Plan) Unread(dst *bmv2json.Expr) bool {
	if dst.Op != bmv2json.OpField || dst.Field.IsValidity() || !dst.Field.Header.Metadata ||
		slices.Contains(analysis.StandardHeaders, dst.Field.Header.Name) {
		return false
	}
	return !p.Reads(dst.Field)
}

// Reads reports whether any part of the program reads a field. If no part does, the field need not
// be set.
func (p *Plan) Reads(r bmv2json.FieldRef) bool { return p.fieldsRead.Contains(r) }

// planClock finds out whether the program can read the clock only when a packet needs it.
func (p *Plan) planClock() {
	ts := p.Std.IngressTime
	p.LateClock = !ts.IsZero() && p.Reads(ts) &&
		!analysis.FieldsRead(p.Prog, p.Prog.Pipeline("ingress")).Contains(ts)
}

// ReadsClockLate reports whether the program reads the clock only when a packet needs the time,
// instead of for each packet.
func (p *Plan) ReadsClockLate() bool { return p.LateClock }

// ReadsPacketLength reports whether the program reads packet_length, which BMv2 updates whenever
// the program adds or removes a header.
func (p *Plan) ReadsPacketLength() bool {
	return !p.Std.PacketLength.IsZero() &&
		p.Reads(p.Std.PacketLength)
}

// ParserTouches returns a function that reports whether the parser may read or set a field.
func (p *Plan) ParserTouches() func(off int) bool {
	set := map[int]bool{}
	see := func(e *bmv2json.Expr) {
		switch {
		case e.Op == bmv2json.OpField && !e.Field.IsValidity():
			set[p.Layout.Field(e.Field).Off] = true
		case e.Op == bmv2json.OpHeader:
			for _, off := range p.FieldsOf(e.Header) {
				set[off] = true
			}
		}
	}
	for _, q := range p.Prog.Parsers {
		for _, s := range q.States {
			for _, k := range s.Key {
				analysis.WalkExpr(k, see)
			}
			for _, o := range s.Ops {
				if !o.Dest.IsZero() {
					see(&bmv2json.Expr{Op: bmv2json.OpField, Field: o.Dest})
				}
				for _, e := range []*bmv2json.Expr{o.Value, o.Cond, o.Length} {
					analysis.WalkExpr(e, see)
				}
				if o.Primitive != nil {
					for _, e := range o.Primitive.Args {
						analysis.WalkExpr(e, see)
					}
				}
			}
		}
	}
	return func(off int) bool { return set[off] }
}

// FieldsOf returns the offsets of a header's fields and of its validity.
func (p *Plan) FieldsOf(h *bmv2json.Header) (offs []int) {
	for _, f := range h.Type.Fields {
		offs = append(offs, p.Layout.Field(bmv2json.FieldRef{Header: h, Field: f}).Off)
	}
	return append(offs, p.Layout.Validity(h))
}

// ReadsQueueDepth reports whether the program reads the number of packets that wait at a port.
func (p *Plan) ReadsQueueDepth() bool {
	return slices.ContainsFunc(p.QueueDepths(), p.Reads)
}

// QueueDepths returns the fields for queue depths. This engine reports the same depth for a packet
// that enters the queue and for a packet that leaves it.
func (p *Plan) QueueDepths() []bmv2json.FieldRef {
	var out []bmv2json.FieldRef
	for _, r := range []bmv2json.FieldRef{p.Std.EnqDepth, p.Std.DeqDepth} {
		if !r.IsZero() {
			out = append(out, r)
		}
	}
	return out
}

// FieldIf calls use with the field's Place if the program has the field.
func (p *Plan) FieldIf(r bmv2json.FieldRef, use func(ir.Place)) {
	if !r.IsZero() {
		use(p.Layout.Field(r))
	}
}

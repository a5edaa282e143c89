package memory

import (
	"cmp"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
)

// egressWrites returns the parts of the PHV that egress changes, in whole words. The program
// restores them before the next copy of a packet passes egress.
func (p *Plan) egressWrites() []Span {
	var spans []Span
	add := func(off, size int) {
		from := off &^ 7
		spans = append(spans, Span{from, (off+size+7)&^7 - from})
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
	if p.ReadsPacketLength() {
		add(PHVLength, 4)
	}
	for _, r := range []bmv2json.FieldRef{p.Std.EgressSpec, p.Std.EgressPort, p.Std.EgressRid,
		p.Std.EgressTime, p.Std.PacketLength, p.Std.McastGroup} {
		field(r)
	}
	if q := p.Prog.Pipeline("egress"); q != nil {
		for _, n := range analysis.Nodes(q) {
			for _, a := range analysis.ActionsOf(n) {
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
						for _, h := range analysis.PossibleHeaders(e) {
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
	// Merge adjacent spans.
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Off, b.Off) })
	var out []Span
	for _, s := range spans {
		if n := len(out); n > 0 && s.Off <= out[n-1].Off+out[n-1].Size {
			out[n-1].Size = max(out[n-1].Size, s.Off+s.Size-out[n-1].Off)
			continue
		}
		out = append(out, s)
	}
	return out
}

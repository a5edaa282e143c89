package packet

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// Layout says where each field lives in a packet's lanes.
//
// Every field has its own run of 64-bit lanes in state.w, least significant lane first, holding the
// field's bits as an unsigned number (a signed field is sign-extended when it is read). Fields of
// up to 64 bits, nearly all, have one lane and cost one load. The fields of a header are laid out
// alike in all headers of a type, so that copying a header is copying a run of lanes. A varbit
// field has no lanes: its bytes are in state.vl.
type Layout struct {
	Lanes   int
	Headers []HeaderLayout // by Header.Index

	metadata     []bool // by header
	metaLanes    []Run  // the lanes of each metadata header
	varbits      []int  // headers with a varbit field
	stacks       int    // stacks of headers, and of unions
	ScratchLanes int    // lanes that a packet's wide expressions are computed in
	Zeroed       []int  // those of scratch that are 0 when a packet comes in

	Used map[bmv2json.FieldRef]bool // fields that something in the program mentions
}

type HeaderLayout struct {
	Base int // first lane
	Type *typeLayout
	// siblings are the other members of the header's union.
	Siblings []int
}

// typeLayout is the part of the layout that headers of one type share.
type typeLayout struct {
	Lanes      int
	FieldLanes []int // lane of each field, from the header's base
	// fixed fields in wire order, with bit offsets from the header's start, before the varbit field
	Wire        []WireField
	AfterVarbit []WireField // those after the varbit field, with offsets from the first byte after it
	FixedBits   int         // of all fixed fields
	HeadBits    int         // bits before the varbit field
	hasVarbit   bool
	MaxBytes    int // largest size in bytes, with a varbit field
}

func NewLayout(p *bmv2json.Program) *Layout {
	types := map[*bmv2json.HeaderType]*typeLayout{}
	for _, t := range p.HeaderTypes {
		tl := &typeLayout{FixedBits: t.FixedBits, HeadBits: t.FixedBits, hasVarbit: t.VL >= 0, MaxBytes: t.MaxBytes}
		off := 0
		for _, f := range t.Fields {
			tl.FieldLanes = append(tl.FieldLanes, tl.Lanes)
			if f.VL {
				tl.HeadBits, off = off, 0
				continue
			}
			at := NewWireField(tl.Lanes, off, f.Width)
			if tl.hasVarbit && f.Index > t.VL {
				tl.AfterVarbit = append(tl.AfterVarbit, at)
			} else {
				tl.Wire = append(tl.Wire, at)
			}
			off += f.Width
			tl.Lanes += wideint.Lanes(f.Width)
		}
		types[t] = tl
	}
	l := &Layout{stacks: len(p.Stacks) + len(p.UnionStacks)}
	for _, h := range p.Headers {
		hl := HeaderLayout{Base: l.Lanes, Type: types[h.Type]}
		if h.Union != nil {
			for _, s := range h.Union.Headers {
				if s != h {
					hl.Siblings = append(hl.Siblings, s.Index)
				}
			}
		}
		l.Headers = append(l.Headers, hl)
		l.metadata = append(l.metadata, h.Metadata)
		if h.Metadata {
			l.metaLanes = append(l.metaLanes, Run{l.Lanes, l.Lanes + hl.Type.Lanes})
		}
		if hl.Type.hasVarbit {
			l.varbits = append(l.varbits, h.Index)
		}
		l.Lanes += hl.Type.Lanes
	}
	return l
}

// LaneOf is the first lane of r.
func (l *Layout) LaneOf(r bmv2json.FieldRef) int {
	if l.Used == nil {
		l.Used = map[bmv2json.FieldRef]bool{}
	}
	l.Used[r] = true
	return l.LaneOfUnused(r)
}

// LaneOfUnused is the same for a field that the target itself sets, whether the program uses it or
// not.
func (l *Layout) LaneOfUnused(r bmv2json.FieldRef) int {
	hl := &l.Headers[r.Header.Index]
	return hl.Base + hl.Type.FieldLanes[r.Field.Index]
}

// Widths are how many bits of each lane may be set.
func (l *Layout) Widths() []int {
	out := make([]int, l.Lanes)
	for i := range out {
		out[i] = 64
	}
	for _, h := range l.Headers {
		for _, f := range slices.Concat(h.Type.Wire, h.Type.AfterVarbit) {
			if f.Width%64 != 0 {
				out[h.Base+f.Lane+f.Width/64] = f.Width % 64
			}
		}
	}
	return out
}

// Run is a field as a run of lanes.
type Run struct{ From, To int }

// Parameter is where an action's parameter is in the lanes of a call.
type Parameter struct {
	Lane, Width int
}

// ParametersOf is where the parameters of an action are, and how many lanes they take together.
func ParametersOf(a *bmv2json.Action) (params []Parameter, lanes int) {
	for _, p := range a.Params {
		params = append(params, Parameter{lanes, p.Width})
		lanes += wideint.Lanes(p.Width)
	}
	return params, lanes
}

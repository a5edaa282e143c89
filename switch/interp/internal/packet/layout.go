package packet

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// Layout says in which lanes of a packet each field is.
//
// Every field has its own run of 64-bit lanes in State.Lanes, with the least significant lane
// first. The lanes hold the field's bits as an unsigned number. A signed field is sign-extended
// when it is read. Nearly all fields have up to 64 bits. They have one lane, and reading them is
// one load. All headers of a type have the same layout, so copying a header means copying a run of
// lanes. A varbit field has no lanes. Its bytes are in State.Varbits.
type Layout struct {
	// Lanes is the total number of lanes of all fields.
	Lanes int
	// Headers has the layout of each header, by Header.Index.
	Headers []HeaderLayout
	// ScratchLanes is the number of lanes for computing a packet's wide expressions. The compilers
	// increase it.
	ScratchLanes int
	// Zeroed lists the scratch lanes that must be 0 when a packet arrives.
	Zeroed []int
	// Used has the fields that the program mentions.
	Used map[bmv2json.FieldRef]bool

	metadata  []bool // whether each header is metadata, by Header.Index
	metaLanes []Run  // the lanes of each metadata header
	varbits   []int  // indices of headers with a varbit field
	stacks    int    // number of header stacks and union stacks
}

// HeaderLayout is the layout of a header's fields.
type HeaderLayout struct {
	Base int // index of the first lane
	Type *TypeLayout
	// Siblings are the other members of the header's union.
	Siblings []int
}

// Run returns the lanes of the header.
func (h *HeaderLayout) Run() Run { return Run{From: h.Base, To: h.Base + h.Type.Lanes} }

// TypeLayout is the part of the layout that headers of one type share.
type TypeLayout struct {
	Lanes int
	// FieldLanes has the first lane of each field, relative to the header's base.
	FieldLanes []int
	// Wire has the fixed fields before the varbit field, or all fields if there is none, in wire
	// order.
	Wire []WireField
	// AfterVarbit has the fixed fields after the varbit field, with offsets from the first byte
	// after it.
	AfterVarbit []WireField
	// FixedBits is the total size of all fixed fields in bits, and HeadBits the size of those
	// before the varbit field.
	FixedBits, HeadBits int
	// MaxBytes is the header's largest size in bytes, including the varbit field.
	MaxBytes int

	hasVarbit bool
}

// NewLayout lays out the headers of a program.
func NewLayout(p *bmv2json.Program) *Layout {
	types := map[*bmv2json.HeaderType]*TypeLayout{}
	for _, t := range p.HeaderTypes {
		tl := &TypeLayout{FixedBits: t.FixedBits, HeadBits: t.FixedBits, hasVarbit: t.VL >= 0,
			MaxBytes: t.MaxBytes}
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

// LaneOf returns the first lane of a field that the program uses.
func (l *Layout) LaneOf(r bmv2json.FieldRef) int {
	if l.Used == nil {
		l.Used = map[bmv2json.FieldRef]bool{}
	}
	l.Used[r] = true
	return l.LaneForTarget(r)
}

// LaneForTarget returns the first lane of a field that the engine sets, whether or not the program
// uses the field.
func (l *Layout) LaneForTarget(r bmv2json.FieldRef) int {
	hl := &l.Headers[r.Header.Index]
	return hl.Base + hl.Type.FieldLanes[r.Field.Index]
}

// Widths returns the number of bits of each lane that may be set.
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

// Run is a run of lanes, for example the lanes of a field. It begins with From and ends before To.
type Run struct{ From, To int }

// Parameter says in which lanes of a call an action's parameter is.
type Parameter struct {
	Lane, Width int
}

// ParametersOf returns the lanes of an action's parameters, and their total number of lanes.
func ParametersOf(a *bmv2json.Action) (params []Parameter, lanes int) {
	for _, p := range a.Params {
		params = append(params, Parameter{lanes, p.Width})
		lanes += wideint.Lanes(p.Width)
	}
	return params, lanes
}

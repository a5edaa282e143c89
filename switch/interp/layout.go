package interp

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// layout says where each field lives in a packet's lanes.
//
// Every field has its own run of 64-bit lanes in state.w, least significant lane first, holding the
// field's bits as an unsigned number (a signed field is sign-extended when it is read). Fields of
// up to 64 bits, nearly all, have one lane and cost one load. The fields of a header are laid out
// alike in all headers of a type, so that copying a header is copying a run of lanes. A varbit
// field has no lanes: its bytes are in state.vl.
type layout struct {
	lanes   int
	headers []headerLayout // by Header.Index

	metadata  []bool    // by header
	metaLanes []laneRun // the lanes of each metadata header
	varbits   []int     // headers with a varbit field
	stacks    int       // stacks of headers, and of unions
	scratch   int       // lanes that a packet's wide expressions are computed in
	sums      []int     // those of scratch that are 0 when a packet comes in

	used map[bmv2json.FieldRef]bool // fields that something in the program mentions
}

type headerLayout struct {
	base int // first lane
	t    *typeLayout
	// siblings are the other members of the header's union.
	siblings []int
}

// typeLayout is the part of the layout that headers of one type share.
type typeLayout struct {
	lanes int
	rel   []int // lane of each field, from the header's base
	// fixed fields in wire order, with bit offsets from the header's start, before the varbit field
	wire  []bitsAt
	after []bitsAt // those after the varbit field, with offsets from the first byte after it
	bits  int      // of all fixed fields
	head  int      // bits before the varbit field
	vl    bool
	max   int // largest size in bytes, with a varbit field
}

// bitsAt is one field on the wire.
type bitsAt struct {
	kind  bitsKind
	rel   int // lane, from the header's base
	off   int // first bit
	byte0 int // off/8
	width int
}

type bitsKind uint8

const (
	bits8 bitsKind = iota // whole bytes, on a byte boundary
	bits16
	bits32
	bits48
	bits64
	bitsIn8  // within one byte
	bitsAny  // up to 64 bits anywhere
	bitsWide // over 64 bits, anywhere
)

func newLayout(p *bmv2json.Program) *layout {
	types := map[*bmv2json.HeaderType]*typeLayout{}
	for _, t := range p.HeaderTypes {
		tl := &typeLayout{bits: t.FixedBits, head: t.FixedBits, vl: t.VL >= 0, max: t.MaxBytes}
		off := 0
		for _, f := range t.Fields {
			tl.rel = append(tl.rel, tl.lanes)
			if f.VL {
				tl.head, off = off, 0
				continue
			}
			at := bitsAt{kind: kindOf(off, f.Width), rel: tl.lanes, off: off, byte0: off / 8,
				width: f.Width}
			if tl.vl && f.Index > t.VL {
				tl.after = append(tl.after, at)
			} else {
				tl.wire = append(tl.wire, at)
			}
			off += f.Width
			tl.lanes += lanesOf(f.Width)
		}
		types[t] = tl
	}
	l := &layout{stacks: len(p.Stacks) + len(p.UnionStacks)}
	for _, h := range p.Headers {
		hl := headerLayout{base: l.lanes, t: types[h.Type]}
		if h.Union != nil {
			for _, s := range h.Union.Headers {
				if s != h {
					hl.siblings = append(hl.siblings, s.Index)
				}
			}
		}
		l.headers = append(l.headers, hl)
		l.metadata = append(l.metadata, h.Metadata)
		if h.Metadata {
			l.metaLanes = append(l.metaLanes, laneRun{l.lanes, l.lanes + hl.t.lanes})
		}
		if hl.t.vl {
			l.varbits = append(l.varbits, h.Index)
		}
		l.lanes += hl.t.lanes
	}
	return l
}

func kindOf(off, width int) bitsKind {
	if off%8 == 0 {
		switch width {
		case 8:
			return bits8
		case 16:
			return bits16
		case 32:
			return bits32
		case 48:
			return bits48
		case 64:
			return bits64
		}
	}
	switch {
	case width > 64:
		return bitsWide
	case off%8+width <= 8:
		return bitsIn8
	}
	return bitsAny
}

// lane is the first lane of r.
func (l *layout) lane(r bmv2json.FieldRef) int {
	if l.used == nil {
		l.used = map[bmv2json.FieldRef]bool{}
	}
	l.used[r] = true
	return l.laneOfTarget(r)
}

// laneOfTarget is the same for a field that the target itself sets, whether the program uses it or
// not.
func (l *layout) laneOfTarget(r bmv2json.FieldRef) int {
	hl := &l.headers[r.Header.Index]
	return hl.base + hl.t.rel[r.Field.Index]
}

// widths are how many bits of each lane may be set.
func (l *layout) widths() []int {
	out := make([]int, l.lanes)
	for i := range out {
		out[i] = 64
	}
	for _, h := range l.headers {
		for _, f := range slices.Concat(h.t.wire, h.t.after) {
			if f.width%64 != 0 {
				out[h.base+f.rel+f.width/64] = f.width % 64
			}
		}
	}
	return out
}

// laneRun is a field as a run of lanes.
type laneRun struct{ from, to int }

// paramAt is where an action's parameter is in the lanes of a call.
type paramAt struct {
	lane, width int
}

// paramsOf is where the parameters of an action are, and how many lanes they take together.
func paramsOf(a *bmv2json.Action) (params []paramAt, lanes int) {
	for _, p := range a.Params {
		params = append(params, paramAt{lanes, p.Width})
		lanes += lanesOf(p.Width)
	}
	return params, lanes
}

package ir

import (
	"cmp"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// Layout says where each field is in the PHV, the value of a per-CPU map that holds one packet's
// fields.
//
// A field of up to 64 bits is a number in host order in 1, 2, 4 or 8 bytes. These bytes hold
// nothing else, so a load yields the field. A wider field is a big-endian byte string, padded at
// its front to whole 8-byte words. It has the same form on the wire and in a register. So the most
// common operation, moving it between the wire, the PHV and a register, only moves words. All
// headers of a type have the same layout, so that the elements of a stack are a fixed stride apart.
type Layout struct {
	Types map[*bmv2json.HeaderType]*typeLayout
	Base  []int // indexed by Header.Index
	valid int   // offset of an array with one byte for each header, by Header.Index
	// Offset of an array with one byte for each stack, by Index, followed by one for each stack of
	// unions. The byte is the number of elements in use.
	Next    int
	stacks  int // number of header stacks
	Meta    int // metadata headers are at [Meta, Headers)
	Headers int // packet headers are at [Headers, End)
	End     int
}

// typeLayout is the part of the layout that all headers of one type share.
type typeLayout struct {
	Size   int // bytes in the PHV, a multiple of 8
	Fields []fieldLayout
	Bytes  int // bytes on the wire, without a varbit field
	// Block is set if the bytes in the PHV are the same as on the wire. The header then has only
	// wide fields of whole words, and one copy moves it between packet and PHV.
	Block bool
	// VarbitMax is the largest length of the header's varbit field in bytes. VarbitLength is the
	// offset from the header's base of 2 bytes with the field's current length.
	VarbitMax, VarbitLength int
}

// fieldLayout says where one field of a header is.
type fieldLayout struct {
	Off  int // offset from the header's base
	Size int // bytes in the PHV
	Bit  int // offset in bits from the header's start on the wire
}

// blockBytes is the smallest size of a header that is moved separately. Smaller headers share one
// buffer.
const blockBytes = 64

// Wide reports whether a field of width bits needs more than one word. Such a field is stored as a
// big-endian byte string.
func Wide(width int) bool { return width > 64 }

// SlotSize returns the number of bytes in the PHV for a field of width bits.
func SlotSize(width int) int {
	switch {
	case width <= 8:
		return 1
	case width <= 16:
		return 2
	case width <= 32:
		return 4
	}
	return (width + 63) / 64 * 8
}

func newTypeLayout(t *bmv2json.HeaderType) *typeLayout {
	l := &typeLayout{Fields: make([]fieldLayout, len(t.Fields)), Bytes: t.FixedBits / 8,
		Block: t.FixedBits/8 >= blockBytes}
	order := make([]int, len(t.Fields))
	for i, f := range t.Fields {
		order[i] = i
		l.Fields[i] = fieldLayout{Size: SlotSize(f.Width), Bit: f.Offset}
		if f.VL {
			l.Fields[i].Size = (f.Width + 63) / 64 * 8
			l.VarbitMax = f.Width / 8
		}
		if f.Width%64 != 0 || f.VL {
			l.Block = false
		}
	}
	if !l.Block { // Large slots come first, so that each slot is aligned.
		slices.SortStableFunc(order, func(a,
			b int) int {
			return cmp.Compare(l.Fields[b].Size, l.Fields[a].Size)
		})
	}
	for _, i := range order {
		if l.Block && !Wide(t.Fields[i].Width) {
			l.Block = false // a number in host order differs from the bytes on the wire
		}
		l.Fields[i].Off = l.Size
		l.Size += l.Fields[i].Size
	}
	if t.VL >= 0 {
		l.VarbitLength = l.Size
		l.Size += 2
	}
	l.Size = (l.Size + 7) &^ 7
	return l
}

// NewLayout lays out the fields of a program. from is the first offset in the PHV, in bytes.
func NewLayout(p *bmv2json.Program, from int) *Layout {
	l := &Layout{Types: map[*bmv2json.HeaderType]*typeLayout{}, Base: make([]int, len(p.Headers))}
	for _, t := range p.HeaderTypes {
		l.Types[t] = newTypeLayout(t)
	}
	at := from
	l.Next, l.stacks = at, len(p.Stacks)
	at += len(p.Stacks) + len(p.UnionStacks)
	l.valid = at
	at = (at + len(p.Headers) + 7) &^ 7
	place := func(metadata bool) {
		for _, h := range p.Headers {
			if h.Metadata == metadata {
				l.Base[h.Index] = at
				at += l.Types[h.Type].Size
			}
		}
	}
	l.Meta = at
	place(true)
	l.Headers = at
	// The elements of a stack are adjacent in Program.Headers only by p4c's convention. This loop
	// makes them adjacent in the PHV.
	for _, s := range p.Stacks {
		for _, h := range s.Headers {
			l.Base[h.Index] = at
			at += l.Types[h.Type].Size
		}
	}
	for _, s := range p.UnionStacks {
		for _, u := range s.Unions {
			for _, h := range u.Headers {
				l.Base[h.Index] = at
				at += l.Types[h.Type].Size
			}
		}
	}
	for _, h := range p.Headers {
		if !h.Metadata && h.Stack == nil && (h.Union == nil || h.Union.Stack == nil) {
			l.Base[h.Index] = at
			at += l.Types[h.Type].Size
		}
	}
	l.End = at
	return l
}

// Place says where a field is in the PHV, and how wide it is.
type Place struct {
	Off, Size, Width int
	Signed           bool
	// LastElement is set for a field of the last element in use of a stack. Off is then the offset
	// in the first element, and Next the offset of the stack's count.
	LastElement            bool
	Next, elements, stride int
}

// Field returns the Place of a field, with its offset in bytes from the PHV's start.
func (l *Layout) Field(r bmv2json.FieldRef) Place {
	f := l.Types[r.Header.Type].Fields[r.Field.Index]
	return Place{Off: l.Base[r.Header.Index] + f.Off, Size: f.Size, Width: r.Field.Width,
		Signed: r.Field.Signed}
}

// NextOf and NextOfUnions return the offset of a stack's count of elements in use.
func (l *Layout) NextOf(s *bmv2json.HeaderStack) int { return l.Next + s.Index }
func (l *Layout) NextOfUnions(s *bmv2json.HeaderUnionStack) int {
	return l.Next + l.stacks + s.Index
}

// Validity returns the offset of the byte that says whether a header is valid.
func (l *Layout) Validity(h *bmv2json.Header) int { return l.valid + h.Index }

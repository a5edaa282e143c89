package ir

import (
	"cmp"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// Layout says where each field lives in the PHV, the value of a per-CPU map that holds one packet's
// fields.
//
// A field of up to 64 bits is a number in host order in 1, 2, 4 or 8 bytes; these bytes hold
// nothing else, so a load yields the field. A wider one is a big-endian byte string, padded at its
// front to whole 8-byte words. This is its form on the wire and in a register, so the most common
// operation, moving it between the three, only moves words. All headers of a type are laid out
// alike, so that the elements of a stack are a fixed stride apart.
type Layout struct {
	Types map[*bmv2json.HeaderType]*typeLayout
	Base  []int // by Header.Index
	valid int   // one byte for each header, by Header.Index
	// one byte for each stack, and then for each stack of unions, by Index: how many elements are
	// in use
	Next    int
	stacks  int // how many stacks of headers there are
	Meta    int // metadata headers: [Meta, Headers)
	Headers int // packet headers: [Headers, End)
	End     int
}

// typeLayout is the part of the layout that all headers of one type share.
type typeLayout struct {
	Size   int // bytes in the PHV, a multiple of 8
	Fields []fieldLayout
	Bytes  int // bytes on the wire, without a varbit field's
	// Block is set if the PHV's bytes are the wire's bytes: only wide fields of whole words. Such a
	// header goes between packet and PHV in one copy.
	Block bool
	// VarbitMax is the largest length of the header's varbit field, in bytes, and VarbitLength the
	// offset from the header's base of the 2 bytes with its current length.
	VarbitMax, VarbitLength int
}

// fieldLayout is where one field is.
type fieldLayout struct {
	Off  int // from the header's base
	Size int // bytes in the PHV
	Bit  int // offset in bits on the wire, from the header's start
}

// blockBytes is the size from which a header is moved separately instead of through the buffer that
// all small ones share.
const blockBytes = 64

// Wide reports whether a field of width bits takes more than one word, and is therefore stored as a
// big-endian byte string.
func Wide(width int) bool { return width > 64 }

// SlotSize is the number of bytes in the PHV that a field of width bits takes.
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
	if !l.Block { // large slots first, so that each is aligned
		slices.SortStableFunc(order, func(a,
			b int) int {
			return cmp.Compare(l.Fields[b].Size, l.Fields[a].Size)
		})
	}
	for _, i := range order {
		if l.Block && !Wide(t.Fields[i].Width) {
			l.Block = false // a number in host order: not the wire's bytes
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

// NewLayout lays out the fields of a program from an offset in the PHV on, in bytes.
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
	// The elements of a stack are adjacent in Program.Headers only by p4c's convention; ensure that
	// here.
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

// Place is a field's place and width.
type Place struct {
	Off, Size, Width int
	Signed           bool
	// LastElement is set for a field of the last element in use of a stack: Off is that of the
	// first element, and Next the place of the stack's count.
	LastElement            bool
	Next, elements, stride int
}

// Field is the place of a field, in bytes from the PHV's start.
func (l *Layout) Field(r bmv2json.FieldRef) Place {
	f := l.Types[r.Header.Type].Fields[r.Field.Index]
	return Place{Off: l.Base[r.Header.Index] + f.Off, Size: f.Size, Width: r.Field.Width,
		Signed: r.Field.Signed}
}

// NextOf and NextOfUnions return the place of the count of a stack's elements in use.
func (l *Layout) NextOf(s *bmv2json.HeaderStack) int { return l.Next + s.Index }
func (l *Layout) NextOfUnions(s *bmv2json.HeaderUnionStack) int {
	return l.Next + l.stacks + s.Index
}

// Validity is the place of the byte that says whether a header is valid.
func (l *Layout) Validity(h *bmv2json.Header) int { return l.valid + h.Index }

package ebpf

import (
	"cmp"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// layout says where each field lives in the PHV, the value of a per-CPU map that holds one packet's fields.
//
// A field of up to 64 bits is a number in host order in 1, 2, 4 or 8 bytes; nothing else is in them, so a load is the field. A wider one is a big-endian byte
// string, padded at its front to whole 8-byte words: the form that it has on the wire and in a register, so that the commonest thing done with it, moving it
// between the three, is moving words. All headers of a type are laid out alike, so that the elements of a stack are a fixed stride apart.
type layout struct {
	types   map[*bmv2json.HeaderType]*typeLayout
	base    []int // by Header.Index
	valid   int   // one byte for each header, by Header.Index
	next    int   // one byte for each stack, and then for each stack of unions, by Index: how many elements are in use
	stacks  int   // how many stacks of headers there are
	meta    int   // metadata headers: [meta, headers)
	headers int   // packet headers: [headers, end)
	end     int
}

// typeLayout is the part of the layout that headers of one type share.
type typeLayout struct {
	size   int // bytes in the PHV, a multiple of 8
	fields []fieldLayout
	bytes  int // on the wire
	// block is set where the PHV's bytes are the wire's bytes: wide fields of whole words alone. Such a header goes between packet and PHV in one copy.
	block bool
	// vlMax is the largest length of the header's varbit field, in bytes, and vlLength where the 2 bytes are, from the header's base, that say its length now.
	vlMax, vlLength int
}

// fieldLayout is where one field is.
type fieldLayout struct {
	off  int // from the header's base
	size int // bytes in the PHV
	bit  int // on the wire, from the header's start
}

// blockBytes is the size from which a header is moved on its own rather than through the buffer that all small ones share.
const blockBytes = 64

func wide(width int) bool { return width > 64 }

// slotSize is how many bytes a field of width bits takes.
func slotSize(width int) int {
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
	l := &typeLayout{fields: make([]fieldLayout, len(t.Fields)), bytes: t.FixedBits / 8, block: t.FixedBits/8 >= blockBytes}
	order := make([]int, len(t.Fields))
	for i, f := range t.Fields {
		order[i] = i
		l.fields[i] = fieldLayout{size: slotSize(f.Width), bit: f.Offset}
		if f.VL {
			l.fields[i].size = (f.Width + 63) / 64 * 8
			l.vlMax = f.Width / 8
		}
		if f.Width%64 != 0 || f.VL {
			l.block = false
		}
	}
	if !l.block { // large slots first, so that each is aligned
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l.fields[b].size, l.fields[a].size) })
	}
	for _, i := range order {
		if l.block && !wide(t.Fields[i].Width) {
			l.block = false // a number in host order: not the wire's bytes
		}
		l.fields[i].off = l.size
		l.size += l.fields[i].size
	}
	if t.VL >= 0 {
		l.vlLength = l.size
		l.size += 2
	}
	l.size = (l.size + 7) &^ 7
	return l
}

func newLayout(p *bmv2json.Program, from int) *layout {
	l := &layout{types: map[*bmv2json.HeaderType]*typeLayout{}, base: make([]int, len(p.Headers))}
	for _, t := range p.HeaderTypes {
		l.types[t] = newTypeLayout(t)
	}
	at := from
	l.next, l.stacks = at, len(p.Stacks)
	at += len(p.Stacks) + len(p.UnionStacks)
	l.valid = at
	at = (at + len(p.Headers) + 7) &^ 7
	place := func(metadata bool) {
		for _, h := range p.Headers {
			if h.Metadata == metadata {
				l.base[h.Index] = at
				at += l.types[h.Type].size
			}
		}
	}
	l.meta = at
	place(true)
	l.headers = at
	// The elements of a stack are neighbours in Program.Headers only by p4c's habit; make them so here.
	for _, s := range p.Stacks {
		for _, h := range s.Headers {
			l.base[h.Index] = at
			at += l.types[h.Type].size
		}
	}
	for _, s := range p.UnionStacks {
		for _, u := range s.Unions {
			for _, h := range u.Headers {
				l.base[h.Index] = at
				at += l.types[h.Type].size
			}
		}
	}
	for _, h := range p.Headers {
		if !h.Metadata && h.Stack == nil && (h.Union == nil || h.Union.Stack == nil) {
			l.base[h.Index] = at
			at += l.types[h.Type].size
		}
	}
	l.end = at
	return l
}

// place is where a field is, and how wide.
type place struct {
	off, size, width int
	signed           bool
	// last is set for a field of the last element in use of a stack: off is that of the first element, next where the stack's count is.
	last                   bool
	next, elements, stride int
}

func (l *layout) field(r bmv2json.FieldRef) place {
	f := l.types[r.Header.Type].fields[r.Field.Index]
	return place{off: l.base[r.Header.Index] + f.off, size: f.size, width: r.Field.Width, signed: r.Field.Signed}
}

// nextOf and nextOfUnions are where the count of a stack's elements in use is.
func (l *layout) nextOf(s *bmv2json.HeaderStack) int            { return l.next + s.Index }
func (l *layout) nextOfUnions(s *bmv2json.HeaderUnionStack) int { return l.next + l.stacks + s.Index }

func (l *layout) validity(h *bmv2json.Header) int { return l.valid + h.Index }

package packet

import (
	"encoding/binary"

	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// ReadFields reads fields from b into lanes. b must be long enough.
func ReadFields(lanes []uint64, fields []WireField, b []byte) {
	for i := range fields {
		f := &fields[i]
		switch f.kind {
		case bits8:
			lanes[f.Lane] = uint64(b[f.firstByte])
		case bits16:
			lanes[f.Lane] = uint64(binary.BigEndian.Uint16(b[f.firstByte:]))
		case bits32:
			lanes[f.Lane] = uint64(binary.BigEndian.Uint32(b[f.firstByte:]))
		case bits48:
			lanes[f.Lane] = uint64(binary.BigEndian.Uint16(
				b[f.firstByte:]))<<32 | uint64(binary.BigEndian.Uint32(b[f.firstByte+2:]))
		case bits64:
			lanes[f.Lane] = binary.BigEndian.Uint64(b[f.firstByte:])
		case bitsIn8:
			lanes[f.Lane] = uint64(b[f.firstByte]) >> (8 - f.Offset&7 - f.Width) & (1<<f.Width - 1)
		case bitsAny:
			lanes[f.Lane] = wideint.ReadBits(b, f.Offset, f.Width)
		case bitsWide:
			wideint.ReadWide(lanes[f.Lane:f.Lane+wideint.Lanes(f.Width)], b, f.Offset, f.Width)
		}
	}
}

// WriteFields writes fields from lanes to b. It keeps the bits of b around the fields.
func WriteFields(b []byte, lanes []uint64, fields []WireField) {
	for i := range fields {
		f := &fields[i]
		v := lanes[f.Lane]
		switch f.kind {
		case bits8:
			b[f.firstByte] = byte(v)
		case bits16:
			binary.BigEndian.PutUint16(b[f.firstByte:], uint16(v))
		case bits32:
			binary.BigEndian.PutUint32(b[f.firstByte:], uint32(v))
		case bits48:
			binary.BigEndian.PutUint16(b[f.firstByte:], uint16(v>>32))
			binary.BigEndian.PutUint32(b[f.firstByte+2:], uint32(v))
		case bits64:
			binary.BigEndian.PutUint64(b[f.firstByte:], v)
		case bitsIn8:
			shift := 8 - f.Offset&7 - f.Width
			mask := byte(1<<f.Width-1) << shift
			b[f.firstByte] = b[f.firstByte]&^mask | byte(v<<shift)&mask
		case bitsAny:
			wideint.WriteBits(b, f.Offset, f.Width, v)
		case bitsWide:
			wideint.WriteWide(b, f.Offset, f.Width, lanes[f.Lane:f.Lane+wideint.Lanes(f.Width)])
		}
	}
}

// NewWireField returns a field of width bits. On the wire it begins at bit off of the header, and
// in memory it is in a lane.
func NewWireField(lane, off, width int) WireField {
	return WireField{kind: kindOf(off, width), Lane: lane, Offset: off, firstByte: off / 8,
		Width: width}
}

// WireField describes where one field is on the wire and in memory.
type WireField struct {
	kind      bitsKind
	Lane      int // first lane, counted from the header's base
	Offset    int // first bit, counted from the header's start
	firstByte int // the byte that contains the first bit: Offset/8
	Width     int
}

type bitsKind uint8

const (
	bits8 bitsKind = iota // whole bytes on a byte boundary
	bits16
	bits32
	bits48
	bits64
	bitsIn8  // bits within one byte
	bitsAny  // up to 64 bits anywhere
	bitsWide // more than 64 bits anywhere
)

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

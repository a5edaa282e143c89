package interp

import "encoding/binary"

// extractFields reads fields out of b, which must be long enough, into lanes.
func extractFields(lanes []uint64, fields []bitsAt, b []byte) {
	for i := range fields {
		f := &fields[i]
		switch f.kind {
		case bits8:
			lanes[f.rel] = uint64(b[f.byte0])
		case bits16:
			lanes[f.rel] = uint64(binary.BigEndian.Uint16(b[f.byte0:]))
		case bits32:
			lanes[f.rel] = uint64(binary.BigEndian.Uint32(b[f.byte0:]))
		case bits48:
			lanes[f.rel] = uint64(binary.BigEndian.Uint16(
				b[f.byte0:]))<<32 | uint64(binary.BigEndian.Uint32(b[f.byte0+2:]))
		case bits64:
			lanes[f.rel] = binary.BigEndian.Uint64(b[f.byte0:])
		case bitsIn8:
			lanes[f.rel] = uint64(b[f.byte0]) >> (8 - f.off&7 - f.width) & (1<<f.width - 1)
		case bitsAny:
			lanes[f.rel] = readBits(b, f.off, f.width)
		case bitsWide:
			readWide(lanes[f.rel:f.rel+lanesOf(f.width)], b, f.off, f.width)
		}
	}
}

// depositFields is extractFields the other way; the bits of b around the fields are kept.
func depositFields(b []byte, lanes []uint64, fields []bitsAt) {
	for i := range fields {
		f := &fields[i]
		v := lanes[f.rel]
		switch f.kind {
		case bits8:
			b[f.byte0] = byte(v)
		case bits16:
			binary.BigEndian.PutUint16(b[f.byte0:], uint16(v))
		case bits32:
			binary.BigEndian.PutUint32(b[f.byte0:], uint32(v))
		case bits48:
			binary.BigEndian.PutUint16(b[f.byte0:], uint16(v>>32))
			binary.BigEndian.PutUint32(b[f.byte0+2:], uint32(v))
		case bits64:
			binary.BigEndian.PutUint64(b[f.byte0:], v)
		case bitsIn8:
			shift := 8 - f.off&7 - f.width
			mask := byte(1<<f.width-1) << shift
			b[f.byte0] = b[f.byte0]&^mask | byte(v<<shift)&mask
		case bitsAny:
			writeBits(b, f.off, f.width, v)
		case bitsWide:
			writeWide(b, f.off, f.width, lanes[f.rel:f.rel+lanesOf(f.width)])
		}
	}
}

package interp

import "encoding/binary"

// Bits are numbered from the most significant bit of the first byte, as on the wire.

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

// readBits reads up to 64 bits at bit offset off.
func readBits(b []byte, off, width int) uint64 {
	i, skip := off>>3, off&7
	if i+8 <= len(b) && skip+width <= 64 {
		return binary.BigEndian.Uint64(b[i:]) << skip >> (64 - width)
	}
	var v uint64
	left := width + skip // bits from the start of byte i
	for n := 0; left > 0; n++ {
		c := uint64(b[i+n])
		if n == 0 {
			c &= 0xff >> skip
		}
		if left >= 8 {
			v = v<<8 | c
		} else {
			v = v<<left | c>>(8-left)
		}
		left -= 8
	}
	return v
}

// writeBits writes the low width bits of v, up to 64, at bit offset off.
func writeBits(b []byte, off, width int, v uint64) {
	if i, shift := off>>3, 64-off&7-width; i+8 <= len(b) && shift >= 0 {
		mask := ^uint64(0) >> (64 - width) << shift
		binary.BigEndian.PutUint64(b[i:], binary.BigEndian.Uint64(b[i:])&^mask|v<<shift&mask)
		return
	}
	for width > 0 {
		i, skip := off>>3, off&7
		n := min(8-skip, width)
		shift := 8 - skip - n
		mask := byte(1<<n-1) << shift
		b[i] = b[i]&^mask | byte(v>>(width-n)<<shift)&mask
		off += n
		width -= n
	}
}

// readWide reads width bits into lanes, least significant first.
func readWide(lanes []uint64, b []byte, off, width int) {
	end := off + width
	n := 0
	if end&7 == 0 { // the least significant bits end on a byte: whole words from the end backwards
		e := end >> 3
		for ; width >= 64; width -= 64 {
			lanes[n] = binary.BigEndian.Uint64(b[e-8:])
			e -= 8
			n++
		}
	} else {
		for ; width >= 64; width -= 64 {
			lanes[n] = readBits(b, off+width-64, 64)
			n++
		}
	}
	if width > 0 {
		lanes[n] = readBits(b, off, width)
		n++
	}
	clear(lanes[n:])
}

// writeWide writes the low width bits of lanes at bit offset off.
func writeWide(b []byte, off, width int, lanes []uint64) {
	end := off + width
	n := 0
	if end&7 == 0 {
		e := end >> 3
		for ; width >= 64; width -= 64 {
			binary.BigEndian.PutUint64(b[e-8:], lanes[n])
			e -= 8
			n++
		}
	} else {
		for ; width >= 64; width -= 64 {
			writeBits(b, off+width-64, 64, lanes[n])
			n++
		}
	}
	if width > 0 {
		writeBits(b, off, width, lanes[n])
	}
}

// lanesFromBytes sets lanes to a big-endian number, whose bytes beyond the lanes are dropped.
func lanesFromBytes(lanes []uint64, b []byte) {
	readWide(lanes, b, max(0, len(b)*8-len(lanes)*64), min(len(b)*8, len(lanes)*64))
}

// bytesFromLanes is the number in lanes as (width+7)/8 big-endian bytes.
func bytesFromLanes(lanes []uint64, width int) []byte { return appendLanes(nil, lanes, width) }

// appendLanes appends the same to a slice.
func appendLanes(to []byte, lanes []uint64, width int) []byte {
	n := (width + 7) / 8
	to = append(to, make([]byte, n)...)
	writeWide(to[len(to)-n:], n*8-width, width, lanes)
	return to
}

// topMask is the mask of the bits in use in the most significant lane of a number of width bits.
func topMask(width int) uint64 {
	if r := width & 63; r != 0 {
		return 1<<r - 1
	}
	return ^uint64(0)
}

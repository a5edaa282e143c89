package wideint

import (
	"encoding/binary"
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// Lanes returns the number of lanes that hold a number of width bits.
func Lanes(width int) int { return (width + 63) / 64 }

// Bits are numbered from the most significant bit of the first byte, as on the wire.

// ReadBits reads up to 64 bits at bit offset off.
func ReadBits(b []byte, off, width int) uint64 {
	i, skip := off>>3, off&7
	if i+8 <= len(b) && skip+width <= 64 {
		return binary.BigEndian.Uint64(b[i:]) << skip >> (64 - width)
	}
	var v uint64
	left := width + skip // number of bits from the start of byte i
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

// WriteBits writes the low width bits of v, up to 64, at bit offset off.
func WriteBits(b []byte, off, width int, v uint64) {
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

// ReadWide reads width bits into lanes, least significant first.
func ReadWide(lanes []uint64, b []byte, off, width int) {
	end := off + width
	n := 0
	// The least significant bits end on a byte boundary, so whole words can be read from the end
	// backwards.
	if end&7 == 0 {
		e := end >> 3
		for ; width >= 64; width -= 64 {
			lanes[n] = binary.BigEndian.Uint64(b[e-8:])
			e -= 8
			n++
		}
	} else {
		for ; width >= 64; width -= 64 {
			lanes[n] = ReadBits(b, off+width-64, 64)
			n++
		}
	}
	if width > 0 {
		lanes[n] = ReadBits(b, off, width)
		n++
	}
	clear(lanes[n:])
}

// WriteWide writes the low width bits of lanes at bit offset off.
func WriteWide(b []byte, off, width int, lanes []uint64) {
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
			WriteBits(b, off+width-64, 64, lanes[n])
			n++
		}
	}
	if width > 0 {
		WriteBits(b, off, width, lanes[n])
	}
}

// SetBytes sets lanes to a big-endian number. It drops bytes that do not fit.
func SetBytes(lanes []uint64, b []byte) {
	ReadWide(lanes, b, max(0, len(b)*8-len(lanes)*64), min(len(b)*8, len(lanes)*64))
}

// Bytes returns the number in lanes as (width+7)/8 big-endian bytes.
func Bytes(lanes []uint64, width int) []byte { return AppendBytes(nil, lanes, width) }

// AppendBytes appends the big-endian bytes of the number in lanes to a slice.
func AppendBytes(to []byte, lanes []uint64, width int) []byte {
	n := (width + 7) / 8
	to = append(to, make([]byte, n)...)
	WriteWide(to[len(to)-n:], n*8-width, width, lanes)
	return to
}

// TopMask returns the mask of the used bits in the most significant lane of a number of width bits.
func TopMask(width int) uint64 {
	if r := width & 63; r != 0 {
		return 1<<r - 1
	}
	return ^uint64(0)
}

// CheckBytes returns an error unless b is a value of width bits.
func CheckBytes(b []byte, width int) error {
	if len(b) != (width+7)/8 {
		return fmt.Errorf("%d bytes instead of %d: %w", len(b), (width+7)/8, target.ErrInvalid)
	}
	if r := width & 7; r != 0 && b[0]>>r != 0 {
		return fmt.Errorf("0x%x does not fit %d bits: %w", b, width, target.ErrInvalid)
	}
	return nil
}

package translate

import (
	"bytes"
	"math/bits"

	"google.golang.org/grpc/codes"
)

// Byte strings (specification section 8.4). On the wire, an integer is the shortest big-endian
// string that holds it, and longer strings are accepted. Engines use exactly (width+7)/8 bytes.

// Widen checks that b is an unsigned number of at most width bits, and returns it in full width.
// The error has the code OUT_OF_RANGE, as section 8.4 requires. Callers change the code if another
// section requires another.
func Widen(b []byte, width int) ([]byte, error) {
	if len(b) == 0 {
		return nil, Errorf(codes.OutOfRange, "the value is empty; zero is written as one zero byte")
	}
	v := bytes.TrimLeft(b, "\x00")
	if len(v) > 0 && (len(v)-1)*8+bits.Len8(v[0]) > width {
		return nil, Errorf(codes.OutOfRange, "the value 0x%x has %d bits, of which %d fit", v,
			(len(v)-1)*8+bits.Len8(v[0]), width)
	}
	out := make([]byte, (width+7)/8)
	copy(out[len(out)-len(v):], v)
	return out, nil
}

// Shorten returns the canonical form of an unsigned number.
func Shorten(b []byte) []byte {
	v := bytes.TrimLeft(b, "\x00")
	if len(v) == 0 {
		return []byte{0}
	}
	return bytes.Clone(v)
}

// widenSigned does what Widen does, for int<width>. b is a two's complement number of any length.
// In the result, the bits above width are zero, as engines require.
func widenSigned(b []byte, width int) ([]byte, error) {
	if len(b) == 0 {
		return nil, Errorf(codes.OutOfRange, "the value is empty; zero is written as one zero byte")
	}
	var sign byte
	if b[0]&0x80 != 0 {
		sign = 0xff
	}
	v := b
	for len(v) > 1 && v[0] == sign && (v[1]^sign)&0x80 == 0 {
		v = v[1:]
	}
	// The smallest possible width is the number of bits of the magnitude, plus one bit for the
	// sign.
	if need := (len(v)-1)*8 + bits.Len8(v[0]^sign) + 1; need > width {
		return nil, Errorf(codes.OutOfRange,
			"the value 0x%x needs %d bits as a signed number, of which %d fit", b, need, width)
	}
	out := bytes.Repeat([]byte{sign}, (width+7)/8)
	if len(v) > len(out) { // the leading byte has only sign bits
		v = v[len(v)-len(out):]
	}
	copy(out[len(out)-len(v):], v)
	if extra := len(out)*8 - width; extra > 0 {
		out[0] &= 0xff >> extra
	}
	return out, nil
}

// shortenSigned returns the canonical form of an int<width> that comes from an engine.
func shortenSigned(b []byte, width int) []byte {
	v := bytes.Clone(b)
	if len(v) == 0 {
		return []byte{0}
	}
	var sign byte
	top := (width - 1) % 8
	if v[0]>>top&1 == 1 {
		sign = 0xff
		v[0] |= 0xff << top
	}
	for len(v) > 1 && v[0] == sign && (v[1]^sign)&0x80 == 0 {
		v = v[1:]
	}
	return v
}

// allOnes returns the largest number of width bits.
func allOnes(width int) []byte {
	out := bytes.Repeat([]byte{0xff}, (width+7)/8)
	if extra := len(out)*8 - width; extra > 0 {
		out[0] >>= extra
	}
	return out
}

func IsZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// prefixMask returns width bits of which the first n are ones.
func prefixMask(n, width int) []byte {
	out := make([]byte, (width+7)/8)
	pad := len(out)*8 - width
	for i := pad; i < pad+n; i++ {
		out[i/8] |= 0x80 >> (i % 8)
	}
	return out
}

// covers reports whether value has no bit that is not in mask. Both have the same length.
func covers(mask, value []byte) bool {
	for i := range value {
		if value[i]&^mask[i] != 0 {
			return false
		}
	}
	return true
}

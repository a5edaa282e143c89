package wideint

import (
	"math/big"
	"math/bits"

	"github.com/netcraq/netcraq/switch/interval"
)

// Fill sets all lanes to v.
func Fill(dst []uint64, v uint64) {
	for i := range dst {
		dst[i] = v
	}
}

// CopyExtended sets dst to the number in the low width bits of src. It sign-extends the number if
// signed is set.
func CopyExtended(dst, src []uint64, width int, signed bool) {
	n := copy(dst, src)
	if !signed {
		clear(dst[n:])
		return
	}
	top := (width - 1) >> 6
	negative := src[top]>>((width-1)&63)&1 == 1
	if !negative {
		clear(dst[n:])
		return
	}
	Fill(dst[n:], ^uint64(0))
	if top < len(dst) {
		dst[top] |= ^TopMask(width)
	}
}

// SetBig sets dst to v in two's complement, truncated to len(dst) lanes.
func SetBig(dst []uint64, v *big.Int) {
	for i := range dst {
		dst[i] = interval.Word(v, i)
	}
}

// Big returns the unsigned number in lanes.
func Big(src []uint64) *big.Int {
	return new(big.Int).SetBytes(Bytes(src, len(src)*64))
}

// Add adds t to dst. Both have the same number of lanes.
func Add(dst, t []uint64) {
	var carry uint64
	for i := range dst {
		dst[i], carry = bits.Add64(dst[i], t[i], carry)
	}
}

// Sub subtracts t from dst.
func Sub(dst, t []uint64) {
	var borrow uint64
	for i := range dst {
		dst[i], borrow = bits.Sub64(dst[i], t[i], borrow)
	}
}

// And clears the bits of dst that are 0 in t.
func And(dst, t []uint64) {
	for i := range dst {
		dst[i] &= t[i]
	}
}

// Or sets the bits of dst that are 1 in t.
func Or(dst, t []uint64) {
	for i := range dst {
		dst[i] |= t[i]
	}
}

// Xor inverts the bits of dst that are 1 in t.
func Xor(dst, t []uint64) {
	for i := range dst {
		dst[i] ^= t[i]
	}
}

// Multiply sets dst to the low lanes of x times y. dst, x and y must not overlap.
func Multiply(dst, x, y []uint64) {
	clear(dst)
	for i := range x {
		var carry uint64
		for j := 0; i+j < len(dst); j++ {
			hi, lo := bits.Mul64(x[i], y[j])
			var c uint64
			lo, c = bits.Add64(lo, dst[i+j], 0)
			hi += c
			dst[i+j], c = bits.Add64(lo, carry, 0)
			carry = hi + c
		}
	}
}

// ShiftLeft shifts x left by k bits.
func ShiftLeft(x []uint64, k uint64) {
	if k >= uint64(64*len(x)) {
		clear(x)
		return
	}
	by, r := int(k>>6), k&63
	for i := len(x) - 1; i >= 0; i-- {
		var v uint64
		if i >= by {
			v = x[i-by] << r
			if r != 0 && i > by {
				v |= x[i-by-1] >> (64 - r)
			}
		}
		x[i] = v
	}
}

// ShiftRightSigned shifts x right by k bits and fills it with its sign.
func ShiftRightSigned(x []uint64, k uint64) {
	sign := uint64(int64(x[len(x)-1]) >> 63)
	if k >= uint64(64*len(x)) {
		Fill(x, sign)
		return
	}
	by, r := int(k>>6), k&63
	at := func(i int) uint64 {
		if i < len(x) {
			return x[i]
		}
		return sign
	}
	for i := range x {
		v := at(i+by) >> r
		if r != 0 {
			v |= at(i+by+1) << (64 - r)
		}
		x[i] = v
	}
}

// CompareSigned compares two signed numbers with the same number of lanes.
func CompareSigned(x, y []uint64) int {
	for i := len(x) - 1; i >= 0; i-- {
		if x[i] == y[i] {
			continue
		}
		if i == len(x)-1 {
			if int64(x[i]) < int64(y[i]) {
				return -1
			}
			return 1
		}
		if x[i] < y[i] {
			return -1
		}
		return 1
	}
	return 0
}

package p4rt

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"reflect"
)

// Value is an unsigned number of any width, in the big-endian form that P4Runtime uses. The
// canonical form has no leading zero bytes, but at least one byte.
type Value []byte

// Uint64 returns the value's low 64 bits.
func (v Value) Uint64() uint64 {
	var n uint64
	for _, b := range v {
		n = n<<8 | uint64(b)
	}
	return n
}

// Canonical returns the shortest form of the value (P4Runtime 1.5, section 9.1.1).
func (v Value) Canonical() Value {
	i := 0
	for i < len(v)-1 && v[i] == 0 {
		i++
	}
	if i == len(v) {
		return Value{0}
	}
	return v[i:]
}

// Equal reports whether two values are the same number. Padding does not matter.
func (v Value) Equal(w Value) bool { return string(v.Canonical()) == string(w.Canonical()) }

// Bits returns the number of bits that the value needs.
func (v Value) Bits() int {
	c := v.Canonical()
	return len(c)*8 - bits.LeadingZeros8(c[0])
}

// Addr returns the value as an IPv4 address, or the zero Addr if the value needs more than 32 bits.
func (v Value) Addr() netip.Addr {
	if v.Bits() > 32 {
		return netip.Addr{}
	}
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], uint32(v.Uint64()))
	return netip.AddrFrom4(a)
}

func (v Value) String() string { return "0x" + hex.EncodeToString(v.Canonical()) }

// padded returns the value in exactly n bytes. The value must fit.
func (v Value) padded(n int) []byte {
	c := v.Canonical()
	out := make([]byte, n)
	if len(c) > n { // only the value zero in a field of no bytes is too long
		return out
	}
	copy(out[n-len(c):], c)
	return out
}

// MakeValue turns x into a canonical value of at most width bits. x is an unsigned or non-negative
// integer of any size, a bool, a []byte or Value (big-endian), a netip.Addr (IPv4) or a
// net.HardwareAddr.
func MakeValue(x any, width int) (Value, error) {
	var v Value
	switch x := x.(type) {
	case Value:
		v = x
	case []byte:
		v = x
	case net.HardwareAddr:
		v = Value(x)
	case netip.Addr:
		if !x.Is4() {
			return nil, fmt.Errorf("%s is not an IPv4 address", x)
		}
		a := x.As4()
		v = a[:]
	case bool:
		v = Value{0}
		if x {
			v = Value{1}
		}
	default:
		r := reflect.ValueOf(x)
		var n uint64
		switch {
		case r.CanUint():
			n = r.Uint()
		case r.CanInt() && r.Int() >= 0:
			n = uint64(r.Int())
		case r.CanInt():
			return nil, fmt.Errorf("%d is negative; P4Runtime values are unsigned", r.Int())
		default:
			return nil, fmt.Errorf("a %T cannot be a P4Runtime value", x)
		}
		v = binary.BigEndian.AppendUint64(nil, n)
	}
	v = v.Canonical()
	if v.Bits() > width {
		return nil, fmt.Errorf("%v needs %d bits, but the field has %d", v, v.Bits(), width)
	}
	return append(Value(nil), v...), nil
}

// mask keeps the highest prefix bits of a value of width bits, and clears the others.
func (v Value) mask(prefix, width int) Value {
	n := (width + 7) / 8
	b := v.padded(n)
	for i := range b {
		// The bits of this byte start at position first, counted from the field's highest bit.
		first := i*8 - (n*8 - width)
		keep := min(max(prefix-first, 0), 8)
		b[i] &= byte(uint16(0xFF00) >> keep)
	}
	return Value(b).Canonical()
}

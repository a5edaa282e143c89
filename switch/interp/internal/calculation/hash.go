package calculation

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"

	"github.com/netcraq/netcraq/switch/target"
)

// Hash is a function that hashes bytes. The caller uses as many of the result's low bits as it
// needs.
type Hash func([]byte) uint64

var (
	crc16Table = reflectedTable(bits.Reverse16(0x8005))
	ccittTable = straightTable[uint16](0x1021)
	crc64Table = reflectedTable(bits.Reverse64(0x1b))
	crc8Table  = straightTable[uint8](0x07)
)

// Algorithm returns the algorithm with this name in p4c, or nil. The "custom" CRCs have BMv2's
// initial parameters. CustomCRC returns CRCs with other parameters. random is the source of random
// numbers.
func Algorithm(name string, random *rand.PCG) Hash {
	switch name {
	case "crc32", "crc32_custom":
		return func(b []byte) uint64 { return uint64(crc32.ChecksumIEEE(b)) }
	case "crc16", "crc16_custom": // this is CRC-16/ARC
		return crc16
	case "crcCCITT": // this is CRC-16/IBM-3740
		return crcCCITT
	case "crc8_custom": // this is CRC-8/SMBUS
		return crc8
	case "crc64_custom": // the polynomial is 0x1b, reflected
		return crc64
	case "csum16", "cksum16":
		return InternetChecksum
	case "xor16":
		return xor16
	case "xor32":
		return xor32
	case "identity":
		return identity
	case "random":
		return func([]byte) uint64 { return random.Uint64() }
	}
	return nil
}

// reflectedTable returns the table of a CRC that processes the low bit first. reversed is the
// bit-reversed polynomial.
func reflectedTable[T uint16 | uint64](reversed T) (t [256]T) {
	for i := range t {
		v := T(i)
		for range 8 {
			if v&1 == 1 {
				v = v>>1 ^ reversed
			} else {
				v >>= 1
			}
		}
		t[i] = v
	}
	return t
}

// straightTable returns the table of a CRC that processes the high bit first.
func straightTable[T uint8 | uint16](poly T) (t [256]T) {
	high := ^(^T(0) >> 1)
	for i := range t {
		v := T(i) << (bits.Len64(uint64(high)) - 8)
		for range 8 {
			if v&high != 0 {
				v = v<<1 ^ poly
			} else {
				v <<= 1
			}
		}
		t[i] = v
	}
	return t
}

func crc16(b []byte) uint64 {
	var v uint16
	for _, x := range b {
		v = v>>8 ^ crc16Table[byte(v)^x]
	}
	return uint64(v)
}

func crcCCITT(b []byte) uint64 {
	v := uint16(0xffff)
	for _, x := range b {
		v = v<<8 ^ ccittTable[byte(v>>8)^x]
	}
	return uint64(v)
}

func crc8(b []byte) uint64 {
	var v uint8
	for _, x := range b {
		v = crc8Table[v^x]
	}
	return uint64(v)
}

func crc64(b []byte) uint64 {
	var v uint64
	for _, x := range b {
		v = v>>8 ^ crc64Table[byte(v)^x]
	}
	return v
}

// InternetChecksum returns the checksum of RFC 1071. If the number of bytes is odd, the last byte
// counts as the upper half of a word.
func InternetChecksum(b []byte) uint64 {
	var sum uint64
	for ; len(b) >= 8; b = b[8:] {
		v := binary.BigEndian.Uint64(b)
		sum += v>>32 + v&0xffffffff
	}
	for ; len(b) >= 2; b = b[2:] {
		sum += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint64(^uint16(sum))
}

func xor16(b []byte) uint64 {
	var v uint16
	for ; len(b) >= 2; b = b[2:] {
		v ^= binary.BigEndian.Uint16(b)
	}
	if len(b) == 1 {
		v ^= uint16(b[0]) << 8
	}
	return uint64(v)
}

func xor32(b []byte) uint64 {
	var v uint32
	for ; len(b) >= 4; b = b[4:] {
		v ^= binary.BigEndian.Uint32(b)
	}
	for i, x := range b {
		v ^= uint32(x) << (24 - 8*i)
	}
	return uint64(v)
}

// identity returns the first eight bytes as a number, or all bytes if there are fewer.
func identity(b []byte) uint64 {
	var v uint64
	for _, x := range b[:min(8, len(b))] {
		v = v<<8 | uint64(x)
	}
	return v
}

// crcWith returns a CRC of width bits. It processes the high bit first. Reflection reverses the
// bits of each input byte, and of the result.
func crcWith(width int, c target.CRC) Hash {
	mask := uint32(1<<width - 1)
	var table [256]uint32
	for i := range table {
		v := uint32(i) << (width - 8)
		for range 8 {
			if v>>(width-1)&1 == 1 {
				v = v<<1 ^ c.Polynomial
			} else {
				v <<= 1
			}
		}
		table[i] = v & mask
	}
	return func(b []byte) uint64 {
		v := c.Init & mask
		for _, x := range b {
			if c.ReflectIn {
				x = bits.Reverse8(x)
			}
			v = (v<<8 ^ table[byte(v>>(width-8))^x]) & mask
		}
		if c.ReflectOut {
			v = bits.Reverse32(v) >> (32 - width)
		}
		return uint64((v ^ c.XorOut) & mask)
	}
}

// CustomCRC returns the CRC named algo with the parameters c. It returns nil if the parameters of
// this algorithm cannot be changed.
func CustomCRC(algo string, c target.CRC) Hash {
	switch algo {
	case "crc16_custom":
		return crcWith(16, c)
	case "crc32_custom":
		return crcWith(32, c)
	}
	return nil
}

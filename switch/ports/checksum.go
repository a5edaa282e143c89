package ports

import (
	"encoding/binary"
	"math/bits"
)

// completeChecksum finishes an Internet checksum (RFC 1071) that the sending stack left to its
// device: the 16 bits at frame[start+offset:] hold the pseudo header's sum, and the checksum of
// everything from start on replaces them. Offsets outside the frame leave it alone.
func completeChecksum(frame []byte, start, offset int) {
	if start < 0 || offset < 0 || start+offset+2 > len(frame) {
		return
	}
	sum := ^onesSum(frame[start:])
	if sum == 0 {
		sum = 0xffff // a UDP checksum of 0 means "none"; for TCP the two are equal
	}
	binary.BigEndian.PutUint16(frame[start+offset:], sum)
}

// onesSum is the ones' complement sum of b as big-endian 16-bit words, the last odd byte padded
// with zero.
func onesSum(b []byte) uint16 {
	var sum, carry uint64
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	var tail [8]byte
	copy(tail[:], b)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(tail[:]), carry)
	sum, carry = bits.Add64(sum, 0, carry)
	sum += carry
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

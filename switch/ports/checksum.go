package ports

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Byte offsets of the checksum in TCP (RFC 9293), UDP (RFC 768) and SCTP (RFC 9260) headers.
var checksumAt = map[byte]int{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6, unix.IPPROTO_SCTP: 8}

// unfinished reports whether a sending stack can have left a checksum in a frame unfinished. It
// must be a checksum of TCP, UDP or SCTP over the bytes from start on, and be at start + offset.
// The sender of a frame chooses both numbers. Without this check, a sender could make the switch
// change any two bytes of the frame.
func unfinished(frame []byte, start, offset int) bool {
	const ethernet, tags, extensions = 12, 4, 6
	at := ethernet
	kind := func() uint16 {
		if len(frame) < at+2 {
			return 0
		}
		return binary.BigEndian.Uint16(frame[at:])
	}
	for range tags {
		if t := kind(); t != unix.ETH_P_8021Q && t != unix.ETH_P_8021AD && t != unix.ETH_P_QINQ1 {
			break
		}
		at += 4
	}
	next := 0
	switch kind() {
	case unix.ETH_P_IP:
		at += 2
		if len(frame) < at+20 || frame[at]>>4 != 4 || frame[at]&15 < 5 ||
			binary.BigEndian.Uint16(frame[at+6:])&0x3fff != 0 { // fragments have no unfinished checksum
			return false
		}
		next = int(frame[at+9])
		at += int(frame[at]&15) * 4
	case unix.ETH_P_IPV6:
		at += 2
		if len(frame) < at+40 {
			return false
		}
		next = int(frame[at+6])
		at += 40
		for range extensions {
			if next != unix.IPPROTO_HOPOPTS && next != unix.IPPROTO_ROUTING && next != unix.IPPROTO_DSTOPTS {
				break
			}
			if len(frame) < at+2 {
				return false
			}
			next = int(frame[at])
			at += (int(frame[at+1]) + 1) * 8
		}
	}
	want, known := checksumAt[byte(next)]
	return known && start == at && offset == want
}

// completeChecksum completes an Internet checksum (RFC 1071) that the sending stack left to its
// device. The 16 bits at frame[start+offset:] contain the sum of the pseudo header.
// completeChecksum replaces them by the checksum of all bytes from start on. If the offsets are
// outside the frame, it does nothing.
func completeChecksum(frame []byte, start, offset int) {
	if start < 0 || offset < 0 || start+offset+2 > len(frame) {
		return
	}
	sum := ^onesSum(frame[start:])
	if sum == 0 {
		sum = 0xffff // a UDP checksum of 0 means "no checksum"; for TCP, 0 and 0xffff are equal
	}
	binary.BigEndian.PutUint16(frame[start+offset:], sum)
}

// onesSum returns the ones' complement sum of b as big-endian 16-bit words. It pads an odd last
// byte with zero.
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

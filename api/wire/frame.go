package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// These are the lengths, in bytes, of the headers in front of the packet in a frame.
const (
	ethernetBytes = 14
	ipv4Bytes     = 20 // an IPv4 header without options, because switches accept no options
	udpBytes      = 8

	// FrameOverhead is the number of bytes that a frame has in addition to its packet.
	FrameOverhead = ethernetBytes + ipv4Bytes + udpBytes
)

const (
	etherTypeIPv4 = 0x0800
	protocolUDP   = 17
	ttl           = 64
)

// ErrFrame means that the bytes are not a frame that a switch accepts. Such a frame is Ethernet
// with IPv4 (without options, not a fragment) and UDP, with lengths that agree. ParseFrame wraps
// ErrFrame with details.
var ErrFrame = errors.New("netcraq: not a frame that a switch takes")

// Frame has the addresses and other header fields around a packet on the wire. It is for programs
// that send through a switch's packet-out, or that implement the network themselves (simulator,
// tests). Clients send through UDP sockets and do not need it.
type Frame struct {
	EthernetDst, EthernetSrc [6]byte
	// IPv4 addresses and UDP ports; requests are sent to Port, and replies come from Port
	Src, Dst netip.AddrPort
	// Principal identifies the sender of a request. It is in IPv4's identification field (16 bits).
	// The first switch sets it, and overwrites any value from the host.
	Principal uint16
}

// AppendTo appends the whole Ethernet frame around payload to b. The IPv4 header has a checksum and
// a TTL of 64. UDP has no checksum (0 means unused, RFC 768).
func (f *Frame) AppendTo(b, payload []byte) ([]byte, error) {
	if !f.Src.Addr().Is4() || !f.Dst.Addr().Is4() {
		return b, fmt.Errorf("%w: addresses %v and %v are not both IPv4", ErrFrame, f.Src, f.Dst)
	}
	total := ipv4Bytes + udpBytes + len(payload)
	if total > 0xFFFF {
		return b, fmt.Errorf("%w: %d bytes do not fit an IPv4 packet", ErrFrame, len(payload))
	}
	b = append(b, f.EthernetDst[:]...)
	b = append(b, f.EthernetSrc[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv4)

	ip := len(b)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(total))
	b = binary.BigEndian.AppendUint16(b, f.Principal)
	b = append(b, 0, 0, ttl, protocolUDP, 0, 0)
	src, dst := f.Src.Addr().As4(), f.Dst.Addr().As4()
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	binary.BigEndian.PutUint16(b[ip+10:], ^onesSum(b[ip:ip+ipv4Bytes]))

	b = binary.BigEndian.AppendUint16(b, f.Src.Port())
	b = binary.BigEndian.AppendUint16(b, f.Dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(udpBytes+len(payload)))
	b = append(b, 0, 0)
	return append(b, payload...), nil
}

// ParseFrame parses an Ethernet frame. The payload is a part of b, not a copy. Padding that
// Ethernet added after the IPv4 packet is cut off. The caller must check whether the ports are
// NetCRAQ's.
func ParseFrame(b []byte) (f Frame, payload []byte, err error) {
	bad := func(format string, args ...any) (Frame, []byte, error) {
		return Frame{}, nil, fmt.Errorf("%w: "+format, append([]any{ErrFrame}, args...)...)
	}
	if len(b) < FrameOverhead {
		return bad("%d bytes, the headers alone are %d", len(b), FrameOverhead)
	}
	copy(f.EthernetDst[:], b)
	copy(f.EthernetSrc[:], b[6:])
	if t := binary.BigEndian.Uint16(b[12:]); t != etherTypeIPv4 {
		return bad("EtherType 0x%04x", t)
	}
	ip := b[ethernetBytes:]
	total := int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case ip[0] != 0x45:
		return bad("IPv4 version and header length 0x%02x, want 0x45", ip[0])
	case total > len(ip) || total < ipv4Bytes+udpBytes:
		return bad("IPv4 total length %d, the frame has room for %d", total, len(ip))
	case binary.BigEndian.Uint16(ip[6:])&0x3FFF != 0:
		return bad("a fragment")
	case ip[9] != protocolUDP:
		return bad("IPv4 protocol %d", ip[9])
	case onesSum(ip[:ipv4Bytes]) != 0xFFFF:
		return bad("IPv4 header checksum")
	}
	f.Principal = binary.BigEndian.Uint16(ip[4:])
	udp := ip[ipv4Bytes:total]
	if n := int(binary.BigEndian.Uint16(udp[4:])); n != len(udp) {
		return bad("UDP length %d in an IPv4 payload of %d", n, len(udp))
	}
	f.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), binary.BigEndian.Uint16(udp))
	f.Dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), binary.BigEndian.Uint16(udp[2:]))
	return f, udp[udpBytes:], nil
}

// onesSum returns the ones' complement sum of the 16-bit words of b (RFC 1071). The length of b
// must be even.
func onesSum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	return uint16(sum)
}

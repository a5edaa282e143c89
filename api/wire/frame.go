package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// The lengths of the headers in front of the packet in a frame, in bytes.
const (
	ethernetBytes = 14
	ipv4Bytes     = 20 // without options, because switches accept no others
	udpBytes      = 8

	// FrameOverhead is the difference between the lengths of a frame and of its packet.
	FrameOverhead = ethernetBytes + ipv4Bytes + udpBytes
)

const (
	etherTypeIPv4 = 0x0800
	protocolUDP   = 17
	ttl           = 64
)

// ErrFrame: the bytes are not an Ethernet frame with IPv4 (without options, not a fragment) and UDP
// whose lengths agree. ParseFrame wraps it with details.
var ErrFrame = errors.New("netcraq: not a frame that a switch takes")

// Frame is everything around a packet on the wire. It is for programs that send through a switch's
// packet-out, or that implement the network themselves (simulator, tests). Clients send through UDP
// sockets and do not need it.
type Frame struct {
	EthernetDst, EthernetSrc [6]byte
	Src, Dst                 netip.AddrPort // IPv4. Requests are sent to Port, replies come from it
	// Principal identifies the sender of a request (in IPv4's identification field, 16 bits). The
	// first switch sets it, and overwrites the host's value.
	Principal uint16
}

// AppendTo appends the whole Ethernet frame around payload to b: IPv4 with its checksum and a TTL
// of 64, UDP without a checksum (0: not used, RFC 768).
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

// ParseFrame parses an Ethernet frame. The payload is a part of b; padding that Ethernet added
// after the IPv4 packet is cut off. The caller checks whether the ports are NetCRAQ's.
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

// onesSum returns the ones' complement sum of b's 16-bit words (RFC 1071). len(b) must be even.
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

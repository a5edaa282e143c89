package udptest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// IPv6 extension headers that a packet may have before UDP (RFC 8200, section 4).
const (
	hopByHop    = 0
	destination = 60
	fragment    = 44
	authentic   = 51
)

// datagram6 returns the UDP header, with the checksum that IPv6 requires, and the payload.
func (p Packet) datagram6() []byte {
	d := p.datagram()
	sum := uint32(len(d)) + unix.IPPROTO_UDP
	for _, part := range [][]byte{p.Src.Addr().AsSlice(), p.Dst.Addr().AsSlice(), d} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(part[i]) << 8
			if i+1 < len(part) {
				sum += uint32(part[i+1])
			}
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum == 0xffff { // a UDP checksum of 0 would mean "no checksum"
		sum = 0
	}
	binary.BigEndian.PutUint16(d[6:], ^uint16(sum))
	return d
}

// frame6 returns a frame whose IPv6 header is followed by rest. rest begins with a header of type
// next.
func (p Packet) frame6(next byte, rest []byte) []byte {
	f := p.headers()
	binary.BigEndian.PutUint16(f[len(f)-2:], 0x86dd)
	f = append(f, 0x60, 0, 0, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(len(rest)))
	f = append(f, next, 64)
	f = append(f, p.Src.Addr().AsSlice()...)
	f = append(f, p.Dst.Addr().AsSlice()...)
	return append(f, rest...)
}

// options6 returns an extension header of 8 bytes of padding (PadN), followed by rest.
func options6(next byte, rest []byte) []byte {
	return append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, rest...)
}

// fragments6 splits whole, which follows a header of type next, into fragments. They end at the
// offsets ends, which are multiples of 8.
func (p Packet) fragments6(next byte, whole []byte, ends ...int) (out [][]byte) {
	at := 0
	for i, end := range append(ends, len(whole)) {
		word := uint16(at)
		if i < len(ends) {
			word |= 1
		}
		h := binary.BigEndian.AppendUint16([]byte{next, 0}, word)
		h = binary.BigEndian.AppendUint32(h, 0x4e43<<16|uint32(p.ID))
		out = append(out, p.frame6(fragment, append(h, whole[at:end]...)))
		at = end
	}
	return out
}

// Wrap6 does what Wrap does, for an IPv6 packet.
func Wrap6(p Packet) (out []Wrapped) {
	add := func(name string, make func(Packet) [][]byte) {
		for _, outer := range [][]Tag{nil, {{Type: 0x8100}}, {{Type: 0x8100}, {Type: 0x8100}},
			{{Type: 0x88a8}, {Type: 0x8100}}, slices.Repeat([]Tag{{Type: 0x8100}}, 6)} {
			q := p
			q.Payload = slices.Clone(p.Payload)
			binary.BigEndian.PutUint16(q.Payload[q.Mark:], uint16(len(out)))
			q.ID, q.Tags = uint16(len(out)), outer
			full := name
			for _, t := range outer {
				full += fmt.Sprintf(", tag %04x", t.Type)
			}
			out = append(out, Wrapped{full, make(q)})
		}
	}
	add("plain", func(q Packet) [][]byte { return [][]byte{q.frame6(unix.IPPROTO_UDP, q.datagram6())} })
	add("hop-by-hop options", func(q Packet) [][]byte {
		return [][]byte{q.frame6(hopByHop, options6(unix.IPPROTO_UDP, q.datagram6()))}
	})
	for _, n := range []int{1, 2, 8, 9, 20} {
		add(fmt.Sprintf("%d headers of options", n), func(q Packet) [][]byte {
			rest := options6(unix.IPPROTO_UDP, q.datagram6())
			for range n - 1 {
				rest = options6(destination, rest)
			}
			return [][]byte{q.frame6(destination, rest)}
		})
	}
	add("a fragment alone", func(q Packet) [][]byte { return q.fragments6(unix.IPPROTO_UDP, q.datagram6()) })
	for _, ends := range [][]int{{8}, {24}, {8, 16}} {
		add(fmt.Sprintf("fragments of %d", ends), func(q Packet) [][]byte {
			return q.fragments6(unix.IPPROTO_UDP, q.datagram6(), ends...)
		})
		add(fmt.Sprintf("fragments of %d, the last one first", ends), func(q Packet) [][]byte {
			f := q.fragments6(unix.IPPROTO_UDP, q.datagram6(), ends...)
			slices.Reverse(f)
			return f
		})
		add(fmt.Sprintf("fragments of %d with options", ends), func(q Packet) [][]byte {
			return q.fragments6(destination, options6(unix.IPPROTO_UDP, q.datagram6()), ends...)
		})
	}
	add("an authentication header", func(q Packet) [][]byte {
		h := append([]byte{unix.IPPROTO_UDP, 4, 0, 0}, make([]byte, 20)...)
		return [][]byte{q.frame6(authentic, append(h, q.datagram6()...))}
	})
	return out
}

// Frame6 returns the complete packet as an IPv6 frame.
func (p Packet) Frame6() []byte { return p.frame6(unix.IPPROTO_UDP, p.datagram6()) }

// UDP6 records all UDP packets that the namespace's own IPv6 stack accepts. They are reassembled
// and unwrapped, and begin with the UDP header.
func (s *Space) UDP6() *Recorder {
	s.t.Helper()
	return s.record(s.socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_UDP))
}

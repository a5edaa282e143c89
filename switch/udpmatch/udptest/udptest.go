// Package udptest creates frames for tests of filters: a UDP packet in all encapsulations that a
// kernel unwraps, and random changes of such frames.
package udptest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
)

// Packet is a UDP packet in an Ethernet frame.
type Packet struct {
	EthernetDst, EthernetSrc net.HardwareAddr
	Tags                     []Tag // the outermost tag comes first
	Src, Dst                 netip.AddrPort
	// The protocol in the IPv4 header. 0 means UDP. The payload is the same for all protocols.
	Protocol uint8
	Options  []byte // IPv4 options, a multiple of 4 bytes and at most 40 bytes
	ID       uint16 // the identification in the IPv4 header
	Payload  []byte
	Mark     int // offset in the payload at which Wrap writes the number of the encapsulation
}

// Tag is an 802.1Q or 802.1ad tag.
type Tag struct {
	Type uint16 // EtherType, such as 0x8100
	VLAN uint16 // 0 stands for a priority tag
}

// Types are the EtherTypes of tags.
var Types = []uint16{0x8100, 0x88a8, 0x9100}

// headers returns the Ethernet header and the tags, which precede the IPv4 header.
func (p Packet) headers() []byte {
	f := append(append([]byte{}, p.EthernetDst...), p.EthernetSrc...)
	for _, t := range p.Tags {
		f = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(f, t.Type), t.VLAN)
	}
	return append(f, 8, 0)
}

// datagram returns the UDP header, without a checksum, and the payload.
func (p Packet) datagram() []byte {
	d := binary.BigEndian.AppendUint16(nil, p.Src.Port())
	d = binary.BigEndian.AppendUint16(d, p.Dst.Port())
	d = binary.BigEndian.AppendUint16(d, uint16(8+len(p.Payload)))
	return append(append(d, 0, 0), p.Payload...)
}

// frame returns a frame with a part of the datagram. fragment is the IPv4 field with flags and
// offset.
func (p Packet) frame(piece []byte, fragment uint16) []byte {
	f := p.headers()
	at := len(f)
	header := 20 + len(p.Options)
	f = append(f, 0x40|byte(header/4), 0)
	f = binary.BigEndian.AppendUint16(f, uint16(header+len(piece)))
	f = binary.BigEndian.AppendUint16(f, p.ID)
	f = binary.BigEndian.AppendUint16(f, fragment)
	f = append(f, 64, cmp.Or(p.Protocol, 17), 0, 0)
	f = append(f, p.Src.Addr().AsSlice()...)
	f = append(f, p.Dst.Addr().AsSlice()...)
	f = append(f, p.Options...)
	Checksum(f[at:])
	return append(f, piece...)
}

// Checksum writes the IPv4 header checksum into a packet whose header is otherwise complete.
func Checksum(ip []byte) {
	if len(ip) < 20 || int(ip[0]&15)*4 > len(ip) {
		return
	}
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < int(ip[0]&15)*4; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// Frame returns the complete packet.
func (p Packet) Frame() []byte { return p.frame(p.datagram(), 0) }

// Fragments returns the packet as fragments. They end at the offsets ends of the datagram, which
// are multiples of 8.
func (p Packet) Fragments(ends ...int) (out [][]byte) {
	d, at := p.datagram(), 0
	for _, end := range ends {
		out = append(out, p.frame(d[at:end], uint16(at/8)|0x2000))
		at = end
	}
	return append(out, p.frame(d[at:], uint16(at/8)))
}

// Wrapped is a packet in an encapsulation.
type Wrapped struct {
	Name   string
	Frames [][]byte
}

// noop is IPv4's no-operation option.
const noop = 1

// Wrap returns a packet in all encapsulations that a kernel unwraps.
func Wrap(p Packet) (out []Wrapped) {
	add := func(name string, make func(Packet) [][]byte) {
		q := p
		q.Payload = slices.Clone(p.Payload)
		binary.BigEndian.PutUint16(q.Payload[q.Mark:], uint16(len(out)))
		q.ID = uint16(len(out))
		out = append(out, Wrapped{name, make(q)})
	}
	whole := func(q Packet) [][]byte { return [][]byte{q.Frame()} }
	add("plain", whole)
	var tags func(before []Tag, name string)
	tags = func(before []Tag, name string) {
		for _, kind := range Types {
			these := append(slices.Clone(before), Tag{Type: kind})
			name := fmt.Sprintf("%s %04x", name, kind)
			add("tags"+name, func(q Packet) [][]byte { q.Tags = these; return whole(q) })
			add("tags"+name+", VLAN 5 inside", func(q Packet) [][]byte {
				q.Tags = slices.Clone(these)
				q.Tags[len(these)-1].VLAN = 5
				return whole(q)
			})
			if len(these) < 3 {
				tags(these, name)
			}
		}
	}
	tags(nil, "")
	for _, depth := range []int{4, 5, 6, 100} {
		add(fmt.Sprintf("%d priority tags", depth), func(q Packet) [][]byte {
			q.Tags = slices.Repeat([]Tag{{Type: 0x8100}}, depth)
			return whole(q)
		})
	}
	for _, outer := range [][]Tag{nil, {{Type: 0x8100}}, {{Type: 0x8100}, {Type: 0x8100}},
		{{Type: 0x88a8}, {Type: 0x8100}}} {
		name := fmt.Sprintf(", %d tags", len(outer))
		if len(outer) == 2 {
			name += fmt.Sprintf(" (%04x outside)", outer[0].Type)
		}
		for _, n := range []int{4, 40} {
			add(fmt.Sprintf("%d bytes of options", n)+name, func(q Packet) [][]byte {
				q.Tags, q.Options = outer, slices.Repeat([]byte{noop}, n)
				return whole(q)
			})
		}
		add("fragments, 8 bytes first"+name,
			func(q Packet) [][]byte { q.Tags = outer; return q.Fragments(8) })
		add("fragments, 24 bytes first"+name,
			func(q Packet) [][]byte { q.Tags = outer; return q.Fragments(24) })
		add("three fragments"+name, func(q Packet) [][]byte {
			q.Tags = outer
			return q.Fragments(8,
				16)
		})
		add("fragments, the later one first"+name, func(q Packet) [][]byte {
			q.Tags = outer
			pieces := q.Fragments(8)
			slices.Reverse(pieces)
			return pieces
		})
		add("fragments with options"+name, func(q Packet) [][]byte {
			q.Tags, q.Options = outer, slices.Repeat([]byte{noop}, 4)
			return q.Fragments(8)
		})
		add("a first fragment to another port, then ours over it"+name, func(q Packet) [][]byte {
			q.Tags = outer
			other := q
			other.Src, other.Dst = netip.AddrPortFrom(q.Src.Addr(), 9),
				netip.AddrPortFrom(q.Dst.Addr(), 9)
			return append(other.Fragments(8)[:1], q.Fragments(8)...)
		})
	}
	return out
}

// Mutate returns a packet in a random encapsulation, with random changes: 1 to 4 bytes of its
// headers, or truncation. Usually it corrects the IPv4 checksum afterwards, so that a kernel does
// not refuse the packet only because of its checksum.
func Mutate(r *rand.Rand, p Packet) []byte {
	for range r.IntN(5) {
		t := Tag{Type: Types[r.IntN(len(Types))]}
		if r.IntN(8) == 0 {
			t.VLAN = uint16(r.Uint32())
		}
		p.Tags = append(p.Tags, t)
	}
	if r.IntN(3) == 0 {
		p.Options = slices.Repeat([]byte{noop}, 4*(1+r.IntN(10)))
	}
	p.ID = uint16(r.IntN(64)) // fragments of different packets sometimes fit together
	var f []byte
	if pieces := p.Fragments(8 * (1 + r.IntN(3))); r.IntN(3) == 0 {
		f = pieces[r.IntN(len(pieces))]
	} else {
		f = p.Frame()
	}
	ip := len(p.headers())
	for range r.IntN(5) {
		at := 12 + r.IntN(min(len(f), ip+20+len(p.Options)+8)-12)
		switch r.IntN(3) {
		case 0:
			f[at] = byte(r.Uint32())
		case 1:
			f[at] ^= 1 << r.IntN(8)
		case 2: // change a type field
			binary.BigEndian.PutUint16(f[12:], []uint16{0x0800, 0x8100, 0x88a8, 0x9100, 0x86dd,
				0x8847}[r.IntN(6)])
		}
	}
	if r.IntN(10) > 0 {
		Checksum(f[ip:])
	}
	if r.IntN(10) == 0 {
		f = f[:14+r.IntN(len(f)-14)]
	}
	return f
}

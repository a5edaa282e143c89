package kernelload

import (
	"net/netip"

	"github.com/netcraq/netcraq/api/wire"
)

// Protocol is the format of queries and answers. Operations are called READ and WRITE as in
// NetCRAQ, whatever their numbers in the protocol.
type Protocol interface {
	Shape() Shape
	// Query makes the UDP payload of a query, and returns its destination. A WRITE's value has
	// [Value]'s form.
	Query(op wire.Op, key wire.Key, request uint32, session uint16) (to netip.AddrPort,
		payload []byte, err error)
}

// Shape has the offsets of fields in the UDP payload, in bytes. All fields are in network byte
// order.
type Shape struct {
	Port       uint16 // UDP source port of the answers
	Size       int
	Op, Status int // offsets of fields of 8 bits; status 0 means done, with a value
	// Replies holds the operation codes of the answers to a READ and to a WRITE, in the bits of
	// OpMask.
	Replies           [2]byte
	OpMask            byte
	Key               int // offset of the key, which has 32 bits
	Value, ValueBytes int
	// Query and Answer are the offsets of the request number (32 bits) by which an answer is
	// recognized, for a READ and for a WRITE. If an offset is negative, the protocol has no such
	// number. An answer is then recognized by its UDP port, operation and key.
	Query, Answer [2]int
	// Session and Length are offsets of the session and of the value's length in bytes, which have
	// 16 bits each. Like Status, they are negative if the protocol has no such field.
	Session, Length int
}

// covered returns the length of the part of a frame that is the same in all queries of an
// operation, except for single fields. It is the whole frame, or the part before a value at the
// frame's end.
func (s Shape) covered() int {
	if s.Value+s.ValueBytes == s.Size {
		return headers + s.Value
	}
	return headers + s.Size
}

// shape returns the protocol in the form for the kernel's program, with offsets of fields in a
// frame.
func (c *Config) shape() kernelShape {
	s := c.protocol().Shape()
	in := func(off int) uint32 {
		if off < 0 {
			return 0 // the protocol has no such field
		}
		return uint32(headers + off)
	}
	shape := kernelShape{
		Length: in(s.Size), Covered: uint32(s.covered()), Op: in(s.Op), Status: in(s.Status),
		Key: in(s.Key), Query: [2]uint32{in(s.Query[0]), in(s.Query[1])},
		Answer: [2]uint32{in(s.Answer[0]), in(s.Answer[1])}, First: in(s.Value),
		Last: in(s.Value + s.ValueBytes - 8), Session: in(s.Session), ValueLength: in(s.Length),
		OpMask: uint32(s.OpMask), Replies: [2]uint32{uint32(s.Replies[0]), uint32(s.Replies[1])},
		ValueBytes: uint32(s.ValueBytes), Port: uint32(s.Port), FirstPort: uint32(c.FirstPort),
		Outstanding: uint32(c.Outstanding), WritePercent: uint32(c.WritePercent),
	}
	if c.Reflected {
		shape.Reflected = 1
	}
	return shape
}

func (c *Config) protocol() Protocol {
	if c.Protocol != nil {
		return c.Protocol
	}
	return netcraq{c.Profile, c.Target}
}

// netcraq is NetCRAQ's protocol (docs/protocol.md).
type netcraq struct {
	profile wire.Profile
	target  netip.AddrPort
}

func (n netcraq) Shape() Shape {
	return Shape{Port: wire.Port, Size: wire.HeaderBytes + n.profile.ValueBytes(), Op: 0, Status: 1,
		Replies: [2]byte{byte(wire.ReadReply), byte(wire.WriteReply)}, OpMask: 0xff,
		Session: 4, Length: 6, Key: 12, Value: wire.HeaderBytes,
		ValueBytes: n.profile.ValueBytes(), Query: [2]int{8, 8}, Answer: [2]int{8, 8}}
}

func (n netcraq) Query(op wire.Op, key wire.Key, request uint32, session uint16) (netip.AddrPort,
	[]byte, error) {
	p := wire.Packet{Op: op, Key: key, Request: request}
	if op == wire.Write {
		p.Session, p.Value = session, Value(n.profile, key, request)
	}
	payload, err := p.Marshal(n.profile)
	return n.target, payload, err
}

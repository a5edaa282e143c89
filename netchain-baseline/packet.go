package netchain

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// MaxGroups is the maximum number of virtual groups.
const MaxGroups = 256

// Key returns the i-th key. The top 8 bits of the key are its virtual group. A recovery restores a
// switch's place for one group at a time, and only the writes of that group have to wait (NetChain,
// section 5.2).
func Key(i, groups int) uint32 { return uint32(i%groups)<<24 | uint32(i) }

// Port is NetChain's UDP port (NSDI 2018, section 3).
const Port = 8888

// These are sizes in bytes, and the maximum length of a chain.
const (
	ValueBytes = 16
	MaxChain   = 9 // maximum number of switches: the destination, and eight switches in the list
	listBytes  = 4 * (MaxChain - 1)
	fixedBytes = 1 + 1 + 2 + 4
)

// Op is the operation, in 8 bits. The Op of a reply is the Op of its request plus one.
type Op uint8

const (
	Read        Op = 1
	ReadReply   Op = 2
	Write       Op = 3
	WriteReply  Op = 4
	CAS         Op = 5
	CASReply    Op = 6
	Delete      Op = 7
	DeleteReply Op = 8
)

// Status is the outcome in a reply, in 8 bits.
type Status uint8

const (
	OK        Status = 0
	NotFound  Status = 1
	CASFailed Status = 2
	Gone      Status = 3 // no switch of the packet's list works
)

var (
	opNames = map[Op]string{Read: "READ", ReadReply: "READ_REPLY", Write: "WRITE",
		WriteReply: "WRITE_REPLY", CAS: "CAS", CASReply: "CAS_REPLY", Delete: "DELETE", DeleteReply: "DELETE_REPLY"}
	statusNames = map[Status]string{OK: "OK", NotFound: "NOT_FOUND", CASFailed: "CAS_FAILED", Gone: "GONE"}
)

func (o Op) String() string     { return cmp.Or(opNames[o], fmt.Sprintf("Op(%d)", uint8(o))) }
func (s Status) String() string { return cmp.Or(statusNames[s], fmt.Sprintf("Status(%d)", uint8(s))) }

// numbered is set in a request's status when the head has given it a sequence number.
const numbered Status = 0x80

// Packet is a NetChain header. In a CAS, the first 8 bytes of the value are the expected value,
// which is compared with the last 8 bytes of the stored value. The last 8 bytes are the new value.
type Packet struct {
	Op     Op
	Status Status
	Key    uint32 // the key, whose top 8 bits are the virtual group (see the function Key)
	// Seq is the sequence number. With 128 bits, the session (32 bits) is in the upper half of
	// High, and a count (96 bits) is in the remaining bits. With 16 bits, Low is the count.
	Seq   Seq
	Value [ValueBytes]byte
	// Rest lists the switches that follow the switch in the IPv4 destination. Their number is the
	// header field SC. In a reply, Rest is the remaining part of the request's list.
	Rest []netip.Addr
	// Tag is a number by which the sender recognizes the answer. It takes the last 32 bits of the
	// list, which chains of up to eight switches leave free. A switch that removes an address from
	// the list also moves the tag up: see tagOf.
	Tag uint32
}

// Seq is a sequence number of up to 128 bits.
type Seq struct{ High, Low uint64 }

// ErrMalformed is the error for an invalid NetChain packet.
var ErrMalformed = errors.New("malformed NetChain packet")

// Size returns the size of a packet in bytes, for sequence numbers of seqBits bits. It is 58 with
// 16 bits and 72 with 128 bits.
func Size(seqBits int) int { return fixedBytes + seqBits/8 + ValueBytes + listBytes }

// Marshal encodes a packet as a UDP payload, in network byte order. The fields are OP and STATUS (8
// bits each), SC (16), KEY (32), SEQ, VALUE (128), and eight addresses.
func (p *Packet) Marshal(seqBits int) ([]byte, error) {
	if len(p.Rest) > MaxChain-1 {
		return nil, fmt.Errorf("a chain of %d switches: at most %d fit a packet", len(p.Rest)+1, MaxChain)
	}
	b := make([]byte, 0, Size(seqBits))
	b = append(b, byte(p.Op), byte(p.Status))
	b = binary.BigEndian.AppendUint16(b, uint16(len(p.Rest)))
	b = binary.BigEndian.AppendUint32(b, p.Key)
	switch seqBits {
	case 16:
		b = binary.BigEndian.AppendUint16(b, uint16(p.Seq.Low))
	case 128:
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, p.Seq.High), p.Seq.Low)
	default:
		return nil, fmt.Errorf("sequence numbers of %d bits: there are 16 and 128", seqBits)
	}
	b = append(b, p.Value[:]...)
	for _, a := range p.Rest {
		if !a.Is4() {
			return nil, fmt.Errorf("%v in the chain is no IPv4 address", a)
		}
		b = append(b, a.AsSlice()...)
	}
	b = append(b, make([]byte, Size(seqBits)-len(b))...)
	if len(p.Rest) < MaxChain-1 {
		binary.BigEndian.PutUint32(b[len(b)-4:], p.Tag)
	}
	return b, nil
}

// tagOf returns the tag in the UDP payload of an answer. sent is the number of switches in the list
// of the request.
func tagOf(b []byte, sent int) uint32 {
	at := len(b) - 4 - 4*(sent-int(binary.BigEndian.Uint16(b[2:])))
	if at < len(b)-listBytes || at > len(b)-4 {
		return 0
	}
	return binary.BigEndian.Uint32(b[at:])
}

// Unmarshal decodes a UDP payload. It does not set the tag.
func (p *Packet) Unmarshal(b []byte, seqBits int) error {
	if len(b) != Size(seqBits) {
		return fmt.Errorf("%w: %d bytes instead of %d", ErrMalformed, len(b), Size(seqBits))
	}
	left := int(binary.BigEndian.Uint16(b[2:]))
	if left > MaxChain-1 {
		return fmt.Errorf("%w: a list of %d switches", ErrMalformed, left)
	}
	*p = Packet{Op: Op(b[0]), Status: Status(b[1]), Key: binary.BigEndian.Uint32(b[4:])}
	b = b[fixedBytes:]
	if seqBits == 16 {
		p.Seq.Low = uint64(binary.BigEndian.Uint16(b))
	} else {
		p.Seq = Seq{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
	}
	b = b[seqBits/8:]
	copy(p.Value[:], b)
	b = b[ValueBytes:]
	for i := range left {
		p.Rest = append(p.Rest, netip.AddrFrom4([4]byte(b[4*i:])))
	}
	return nil
}

// Request prepares a packet for a chain, whose first switch is the head. It returns the switch to
// which the packet must be sent. A READ goes to the tail, and lists the other switches from the
// tail to the head. Other packets go to the head.
func (p *Packet) Request(chain []netip.Addr) (to netip.Addr) {
	p.Status, p.Rest = 0, nil
	if p.Op != Read {
		p.Rest = append(p.Rest, chain[1:]...)
		return chain[0]
	}
	for i := len(chain) - 2; i >= 0; i-- {
		p.Rest = append(p.Rest, chain[i])
	}
	return chain[len(chain)-1]
}

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// These are the errors of packets. Marshal and Unmarshal wrap them with details.
var (
	ErrProfile = errors.New("netcraq: no such profile") // VALUE_BITS is not one of the four supported widths
	// the packet is shorter than the header and the value field
	ErrTruncated = errors.New("netcraq: packet is truncated")
	// the packet is longer than the header and the value field, so it belongs to another profile or
	// protocol
	ErrLength = errors.New("netcraq: packet has the wrong length")
	ErrOp     = errors.New("netcraq: unknown op") //
	// the value is longer than the value field, or than the length field can express
	ErrValue     = errors.New("netcraq: value is longer than the value field")
	ErrTombstone = errors.New("netcraq: a tombstone has no value") // returned only by Marshal
	// returned only by Marshal: Flags in a reply, or Status in a request
	ErrMeaning = errors.New("netcraq: second byte has a meaning the op lacks")
)

// Packet is one NetCRAQ packet. The zero Packet is not valid, because it has no Op.
type Packet struct {
	Op     Op
	Flags  Flags  // only in requests and chain packets; must be 0 in replies
	Status Status // only in replies; must be 0 otherwise
	// Epoch is the epoch of the sender's chain configuration. It is 0 in client requests. In
	// Stamped writes it is the epoch for fencing, and in replies the epoch of the answering switch.
	Epoch   uint16
	Session uint16 // session of the writer; 0 means no session, so writes are executed at least once
	// counts the requests of the session from 1; any number in a READ; a duration in microseconds
	// in a LEASE
	Request uint32
	Key     Key //
	// Version is the version of the key. In a CAS request it is the version that the client
	// expects. In a LEASE it is the switch's clock in microseconds.
	Version Version

	// Tombstone means that the packet has no value. A WRITE with it is a DELETE. A reply with it
	// means NOT_FOUND.
	Tombstone bool
	// Value is the used part of the value field. Its length is at most Profile.ValueBytes. It is
	// empty if Tombstone is set.
	Value []byte
}

// AppendTo appends the packet, as a packet of the profile, to b. On an error it returns b
// unchanged.
func (p *Packet) AppendTo(b []byte, profile Profile) ([]byte, error) {
	second := uint8(p.Flags)
	length := uint16(len(p.Value))
	switch {
	case !profile.Valid():
		return b, fmt.Errorf("%w: VALUE_BITS %d", ErrProfile, int(profile))
	case !p.Op.Valid():
		return b, fmt.Errorf("%w %d", ErrOp, uint8(p.Op))
	case len(p.Value) > profile.ValueBytes():
		return b, fmt.Errorf("%w: %d bytes, the profile's field has %d", ErrValue, len(p.Value), profile.ValueBytes())
	case p.Tombstone && len(p.Value) > 0:
		return b, fmt.Errorf("%w, this one has %d bytes", ErrTombstone, len(p.Value))
	case p.Tombstone:
		length = lengthTombstone
	}
	if p.Op.IsReply() {
		if p.Flags != 0 {
			return b, fmt.Errorf("%w: flags %v in a %v", ErrMeaning, p.Flags, p.Op)
		}
		second = uint8(p.Status)
	} else if p.Status != 0 {
		return b, fmt.Errorf("%w: status %v in a %v", ErrMeaning, p.Status, p.Op)
	}
	b = append(b, uint8(p.Op), second)
	b = binary.BigEndian.AppendUint16(b, p.Epoch)
	b = binary.BigEndian.AppendUint16(b, p.Session)
	b = binary.BigEndian.AppendUint16(b, length)
	b = binary.BigEndian.AppendUint32(b, p.Request)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Key))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Version))
	b = append(b, p.Value...)
	return append(b, zeros[:profile.ValueBytes()-len(p.Value)]...), nil
}

var zeros [Profile8192 / 8]byte

// Marshal returns the packet as a UDP payload of the profile.
func (p *Packet) Marshal(profile Profile) ([]byte, error) {
	if !profile.Valid() {
		return nil, fmt.Errorf("%w: VALUE_BITS %d", ErrProfile, int(profile))
	}
	b, err := p.AppendTo(make([]byte, 0, profile.PacketBytes()), profile)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Unmarshal parses a UDP payload of the profile into p. Value is a part of b, not a copy. Like
// switches, Unmarshal ignores the bytes of the value field that follow the value. If Unmarshal
// fails, p is unchanged.
func (p *Packet) Unmarshal(b []byte, profile Profile) error {
	switch {
	case !profile.Valid():
		return fmt.Errorf("%w: VALUE_BITS %d", ErrProfile, int(profile))
	case len(b) < profile.PacketBytes():
		return fmt.Errorf("%w: %d bytes, want %d (header %d, value field %d)", ErrTruncated, len(b), profile.PacketBytes(), HeaderBytes, profile.ValueBytes())
	case len(b) > profile.PacketBytes():
		return fmt.Errorf("%w: %d bytes, want %d (header %d, value field %d)", ErrLength, len(b), profile.PacketBytes(), HeaderBytes, profile.ValueBytes())
	case !Op(b[0]).Valid():
		return fmt.Errorf("%w %d", ErrOp, b[0])
	}
	length := int(binary.BigEndian.Uint16(b[6:]))
	if length != lengthTombstone && length > profile.ValueBytes() {
		return fmt.Errorf("%w: length %d, the profile's field has %d", ErrValue, length, profile.ValueBytes())
	}
	*p = Packet{
		Op:        Op(b[0]),
		Epoch:     binary.BigEndian.Uint16(b[2:]),
		Session:   binary.BigEndian.Uint16(b[4:]),
		Request:   binary.BigEndian.Uint32(b[8:]),
		Key:       Key(binary.BigEndian.Uint32(b[12:])),
		Version:   Version(binary.BigEndian.Uint64(b[16:])),
		Tombstone: length == lengthTombstone,
	}
	if p.Op.IsReply() {
		p.Status = Status(b[1])
	} else {
		p.Flags = Flags(b[1])
	}
	if !p.Tombstone {
		p.Value = b[HeaderBytes : HeaderBytes+length : HeaderBytes+length]
	}
	return nil
}

// String returns the packet in one line for people, without the fields that are zero. For example:
// "WRITE key=0x01000007 session=3 request=9 flags=STAMPED epoch=1 version=1.4 value="on"".
func (p *Packet) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v key=%v", p.Op, p.Key)
	if p.Session != 0 {
		fmt.Fprintf(&s, " session=%d", p.Session)
	}
	if p.Request != 0 {
		fmt.Fprintf(&s, " request=%d", p.Request)
	}
	if p.Op.IsReply() {
		fmt.Fprintf(&s, " status=%v", p.Status)
	} else if p.Flags != 0 {
		fmt.Fprintf(&s, " flags=%v", p.Flags)
	}
	if p.Epoch != 0 {
		fmt.Fprintf(&s, " epoch=%d", p.Epoch)
	}
	if p.Version != 0 {
		fmt.Fprintf(&s, " version=%v", p.Version)
	}
	switch {
	case p.Tombstone:
		s.WriteString(" tombstone")
	case len(p.Value) > 0:
		s.WriteString(" value=" + FormatValue(p.Value, 64))
	}
	return s.String()
}

// FormatValue formats a value for people. It quotes printable text, and writes other values in
// hexadecimal after "hex:". It truncates values longer than limit bytes, and then adds the number
// of omitted bytes. A limit of 0 means no limit.
func FormatValue(v []byte, limit int) string {
	cut := v
	if limit > 0 && len(v) > limit {
		cut = v[:limit]
		// avoid cutting in the middle of a character
		for i := 0; i < utf8.UTFMax-1 && !utf8.Valid(cut) && utf8.Valid(v); i++ {
			cut = cut[:len(cut)-1]
		}
	}
	var s string
	if Printable(v) {
		s = fmt.Sprintf("%q", cut)
	} else {
		s = fmt.Sprintf("hex:%x", cut)
	}
	if left := len(v) - len(cut); left > 0 {
		s += fmt.Sprintf("... (%d bytes more)", left)
	}
	return s
}

// Printable reports whether v is UTF-8 text that a terminal can show: printable characters, spaces,
// tabs and line ends.
func Printable(v []byte) bool {
	if !utf8.Valid(v) {
		return false
	}
	for _, r := range string(v) {
		if !unicode.IsPrint(r) && r != '\t' && r != '\n' && r != '\r' {
			return false
		}
	}
	return true
}

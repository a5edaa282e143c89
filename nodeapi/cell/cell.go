// Package cell is the format of the values that the node API keeps in the store: a header, followed
// by a program's value or by the data of coordination. docs/coordination.md is normative.
//
// The first byte is the header: the kind in its lower four bits, and how the value is packed in the
// three above them. The highest bit is 0. After it follow, depending on the kind:
//
//	Plain     value
//	Bound     lease (6 bytes), value
//	Lease     time to live in milliseconds (3 bytes), the node that granted it
//	Lock      lease (6 bytes), nonce (3 bytes), the leader's value
//	Instance  lease (6 bytes), address
//
// Numbers are big-endian. A value that is shorter as a number, or as an IPv4 address with a port,
// is stored in that form and is decoded to the same text, because the smallest profile has 16 bytes
// for all of this.
package cell

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Kind is the kind of a cell.
type Kind byte

// The kinds.
const (
	Plain    Kind = iota // a program's value
	Bound                // a program's value that is deleted when its lease ends
	Lease                // a lease
	Lock                 // a lock, leadership or permit that a lease holds
	Instance             // an instance of a service that lives while its lease does
	kinds
)

// ReservedPrefix begins the names that the node API keeps for itself: programs cannot use them.
const ReservedPrefix = "~"

// Reserved reports whether programs may not use a name.
func Reserved(name string) bool { return strings.HasPrefix(name, ReservedPrefix) }

// Sizes of the fields, in bytes.
const (
	leaseBytes = len(LeaseID{})
	nonceBytes = 3
	ttlBytes   = 3
)

// MaxTTLMillis is the longest time to live that a cell can hold.
const MaxTTLMillis = 1<<(8*ttlBytes) - 1

// Overhead is how many bytes of a cell are not part of the value.
func (k Kind) Overhead() int {
	switch k {
	case Bound, Instance:
		return 1 + leaseBytes
	case Lock:
		return 1 + leaseBytes + nonceBytes
	case Lease:
		return 1 + ttlBytes
	}
	return 1
}

// LeaseID names a lease within its namespace. It is chosen at random. With 10,000 leases that exist
// or are still referred to, a new one equals one of them with a probability of 1 in 28,000,000,000.
type LeaseID [6]byte

func (id LeaseID) String() string { return hex.EncodeToString(id[:]) }

// ParseLeaseID parses the format of String.
func ParseLeaseID(s string) (LeaseID, error) {
	var id LeaseID
	if len(s) != 2*len(id) || strings.ToLower(s) != s {
		return id, fmt.Errorf("a lease is named by %d hexadecimal digits, not %q", 2*len(id), s)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("a lease is named by %d hexadecimal digits, not %q", 2*len(id), s)
	}
	return id, nil
}

// Nonce tells two cells of one lease apart.
type Nonce [nonceBytes]byte

// Cell is a value of the store in decoded form.
type Cell struct {
	Kind      Kind
	Lease     LeaseID // in a Bound, Lock or Instance: the lease that it depends on
	Nonce     Nonce   // in a Lock
	TTLMillis int     // in a Lease: 0 to MaxTTLMillis
	Value     []byte
}

// Hangs reports whether the cell is valid only while its lease exists.
func (c Cell) Hangs() bool { return c.Kind == Bound || c.Kind == Lock || c.Kind == Instance }

// Encode returns the bytes to store.
func (c Cell) Encode() []byte {
	how, packed := pack(c.Value)
	b := make([]byte, 0, c.Kind.Overhead()+len(packed))
	b = append(b, byte(c.Kind)|byte(how)<<4)
	switch c.Kind {
	case Bound, Instance:
		b = append(b, c.Lease[:]...)
	case Lock:
		b = append(append(b, c.Lease[:]...), c.Nonce[:]...)
	case Lease:
		b = append(b, byte(c.TTLMillis>>16), byte(c.TTLMillis>>8), byte(c.TTLMillis))
	}
	return append(b, packed...)
}

// ErrForeign means that the node API has not written a value: another program wrote to the key
// directly.
var ErrForeign = errors.New("the value was not written by the node API")

// Decode decodes a value from the store. Its Value may share b's memory.
func Decode(b []byte) (Cell, error) {
	if len(b) == 0 {
		return Cell{}, ErrForeign
	}
	c := Cell{Kind: Kind(b[0] & 0x0F)}
	if c.Kind >= kinds || len(b) < c.Kind.Overhead() {
		return Cell{}, ErrForeign
	}
	rest := b[1:]
	switch c.Kind {
	case Bound, Instance:
		rest = rest[copy(c.Lease[:], rest):]
	case Lock:
		rest = rest[copy(c.Lease[:], rest):]
		rest = rest[copy(c.Nonce[:], rest):]
	case Lease:
		c.TTLMillis = int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2])
		rest = rest[ttlBytes:]
	}
	value, err := unpack(packing(b[0]>>4), rest)
	c.Value = value
	return c, err
}

// packing is how a value is encoded.
type packing byte

const (
	raw     packing = iota
	number          // a 64-bit integer, in two's complement with as few bytes as possible
	address         // IPv4 address and port
)

// pack chooses the shortest encoding. unpack restores the same bytes.
func pack(value []byte) (packing, []byte) {
	if n := len(value); n < 2 || n > len("255.255.255.255:65535") || !decimal(value[n-1]) {
		return raw, value
	}
	s := string(value)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s {
		b := binary.BigEndian.AppendUint64(nil, uint64(n))
		for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xFF && b[1] >= 0x80) {
			b = b[1:]
		}
		if len(b) < len(value) {
			return number, b
		}
		return raw, value
	}
	if a, err := netip.ParseAddrPort(s); err == nil && a.Addr().Is4() && a.String() == s {
		ip := a.Addr().As4()
		return address, binary.BigEndian.AppendUint16(ip[:], a.Port())
	}
	return raw, value
}

func decimal(b byte) bool { return '0' <= b && b <= '9' }

func unpack(how packing, b []byte) ([]byte, error) {
	switch {
	case how == raw:
		return b, nil
	case how == number && 1 <= len(b) && len(b) <= 8:
		n := int64(int8(b[0]))
		for _, x := range b[1:] {
			n = n<<8 | int64(x)
		}
		return strconv.AppendInt(nil, n, 10), nil
	case how == address && len(b) == 6:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.BigEndian.Uint16(b[4:])).AppendTo(nil), nil
	}
	return nil, ErrForeign
}

// PackedLen returns how many bytes a value takes in a cell.
func PackedLen(value []byte) int {
	_, b := pack(value)
	return len(b)
}

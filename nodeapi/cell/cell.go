// Package cell encodes the values that the node API keeps in the store. Such a value, called a
// cell, is a header followed by a program's value or by the data of a lease, lock or service.
// docs/coordination.md is normative.
//
// The first byte is the header. Its lower four bits are the kind of the cell. The next three bits
// say how the value is packed, and the highest bit is 0. The following data depend on the kind:
//
//	Plain     value
//	Bound     lease (6 bytes), value
//	Lease     time to live in milliseconds (3 bytes), the node that granted it
//	Lock      lease (6 bytes), nonce (3 bytes), the leader's value
//	Instance  lease (6 bytes), address
//
// Numbers are big-endian. If a value is shorter as a binary number, or as a binary IPv4 address
// with a port, it is stored in that form. It is decoded to the same text. This saves bytes, because
// a cell has only 16 bytes in the smallest profile.
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

// These are the kinds of cells.
const (
	Plain    Kind = iota // a value of a program
	Bound                // a value of a program that is deleted when its lease ends
	Lease                // a lease
	Lock                 // a lock, leadership or permit that a lease holds
	Instance             // an instance of a service, which lives as long as its lease
	kinds
)

// ReservedPrefix is the prefix of the names that the node API reserves for itself.
const ReservedPrefix = "~"

// Reserved reports whether a name is reserved, so that programs cannot use it.
func Reserved(name string) bool { return strings.HasPrefix(name, ReservedPrefix) }

// These are the sizes of the fields of a cell, in bytes.
const (
	leaseBytes = len(LeaseID{})
	nonceBytes = 3
	ttlBytes   = 3
)

// MaxTTLMillis is the longest time to live, in milliseconds, that a cell can hold.
const MaxTTLMillis = 1<<(8*ttlBytes) - 1

// Overhead returns the number of bytes of a cell that are not part of the value.
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

// LeaseID identifies a lease within its namespace. It is chosen at random. If there are 10,000
// leases, including ended leases to which some key still refers, a new LeaseID equals one of them
// with a probability of 1 in 28,000,000,000.
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

// Nonce is a random number that makes two cells of the same lease different.
type Nonce [nonceBytes]byte

// Cell is the decoded form of a value in the store.
type Cell struct {
	Kind      Kind
	Lease     LeaseID // the lease on which a Bound, Lock or Instance depends
	Nonce     Nonce   // set in a Lock
	TTLMillis int     // time to live of a Lease, from 0 to MaxTTLMillis
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

// ErrForeign means that the node API did not write a value. Another program wrote to the key
// directly.
var ErrForeign = errors.New("the value was not written by the node API")

// Decode decodes a value from the store. The Value of the result may share memory with b.
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

// packing says how a value is encoded.
type packing byte

const (
	raw     packing = iota
	number          // a 64-bit integer, in two's complement with as few bytes as possible
	address         // IPv4 address and port
)

// pack chooses the shortest encoding of a value. The function unpack restores the same bytes.
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

// PackedLen returns the number of bytes that a value takes in a cell.
func PackedLen(value []byte) int {
	_, b := pack(value)
	return len(b)
}

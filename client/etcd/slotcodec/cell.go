package slotcodec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Kind is the kind of a cell.
type Kind uint8

// These are the kinds of cells. The kind's number is the first byte of the cell. The first byte of
// a value can also be the constant compressed.
const (
	Clear  Kind = 1 // nothing is known about the key
	Value  Kind = 2 // the key's value in etcd
	Absent Kind = 4 // the key does not exist in etcd
	Guard  Kind = 5 // a gateway is about to change the key in etcd, or has just done so
	Unfit  Kind = 6 // the key's value cannot be stored in the slot
)

// compressed is the first byte of a cell whose value is compressed.
const compressed = 3

func (k Kind) String() string {
	switch k {
	case Clear:
		return "clear"
	case Value:
		return "value"
	case Absent:
		return "absent"
	case Guard:
		return "guard"
	case Unfit:
		return "unfit"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Cell is the content of a slot. Its kind determines which fields are used. Unused fields are zero.
type Cell struct {
	Kind Kind

	// Create, Mod and Version belong to a value, as in etcd's KeyValue. Version is the number of
	// changes since the key's creation, and is at most Mod - Create + 1.
	Create, Mod, Version int64
	Value                []byte

	// Revision belongs to an absent key. It is a revision of etcd at which the key did not exist.
	Revision int64

	// Lease and Number belong to a guard. Lease is the session that has taken the guard, and Number
	// is the session's number for the write.
	Lease  int64
	Number uint64
}

// MaxNumber is the largest number of a guard. With a number up to MaxNumber and any lease, a guard
// has at most GuardSize bytes.
const MaxNumber = 1<<42 - 1

// GuardSize is the maximum length of a guard. A sealed slot has at least this much space in
// addition to its seal.
const GuardSize = 16

// MaxValue is the largest uncompressed value, in bytes, that Encode accepts and Decode returns.
const MaxValue = 64 << 10

// These are the kinds of failures. The package's errors wrap one of them.
var (
	// ErrTooLarge means that the value does not fit into the slot.
	ErrTooLarge = errors.New("too large for the slot")
	// ErrMalformed means that the bytes are not a cell.
	ErrMalformed = errors.New("malformed cell")
	// ErrDictionary means that the value is compressed with a dictionary that the codec does not
	// have. A *DictionaryError wraps it and names the dictionary.
	ErrDictionary = errors.New("unknown dictionary")
)

// DictionaryError says which dictionary a cell needs. It wraps ErrDictionary.
type DictionaryError struct{ Version uint32 }

func (e *DictionaryError) Error() string {
	return fmt.Sprintf("the value is compressed with dictionary %d, which is not known here", e.Version)
}

func (e *DictionaryError) Is(target error) bool { return target == ErrDictionary }

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Encode encodes a cell in at most size bytes. It fails with ErrTooLarge only if a value does not
// fit.
func (c *Codec) Encode(cell Cell, size int) ([]byte, error) {
	if err := cell.check(); err != nil {
		return nil, err
	}
	if size < 1 { // the slot's size is unknown
		return nil, fmt.Errorf("%w: it has %d bytes", ErrTooLarge, size)
	}
	b := make([]byte, 1, min(size, 64))
	b[0] = byte(cell.Kind)
	switch cell.Kind {
	case Value:
		b = binary.AppendUvarint(b, uint64(cell.Mod))
		b = binary.AppendUvarint(b, uint64(cell.Mod-cell.Create))
		b = binary.AppendUvarint(b, uint64(cell.Version))
		if small := c.compress(cell.Value, size-len(b)); small != nil {
			b[0] = compressed
			b = append(b, small...)
		} else {
			if len(b)+len(cell.Value) > size {
				return nil, fmt.Errorf("%w: a value of %d bytes, the slot has %d", ErrTooLarge, len(cell.Value), size)
			}
			b = append(b, cell.Value...)
		}
	case Absent:
		b = binary.AppendUvarint(b, uint64(cell.Revision))
	case Guard:
		b = binary.AppendUvarint(b, uint64(cell.Lease))
		b = binary.AppendUvarint(b, cell.Number)
	}
	if len(b) > size {
		return nil, fmt.Errorf("%w: %v needs %d bytes, the slot has %d", ErrTooLarge, cell.Kind, len(b), size)
	}
	return b, nil
}

// check returns an error if a cell is not valid.
func (c *Cell) check() error {
	want := Cell{Kind: c.Kind}
	switch c.Kind {
	case Value:
		if c.Create <= 0 || c.Mod < c.Create || c.Version <= 0 || c.Version-1 > c.Mod-c.Create {
			return malformed("created at %d, changed at %d, version %d", c.Create, c.Mod, c.Version)
		}
		want.Create, want.Mod, want.Version = c.Create, c.Mod, c.Version
	case Absent:
		if c.Revision <= 0 {
			return malformed("absent at revision %d", c.Revision)
		}
		want.Revision = c.Revision
	case Guard:
		if c.Lease <= 0 || c.Number > MaxNumber {
			return malformed("a guard of lease %d, number %d", c.Lease, c.Number)
		}
		want.Lease, want.Number = c.Lease, c.Number
	case Clear, Unfit:
	default:
		return malformed("%v", c.Kind)
	}
	if c.Kind != Value && c.Value != nil || c.Create != want.Create || c.Mod != want.Mod ||
		c.Version != want.Version || c.Revision != want.Revision || c.Lease != want.Lease ||
		c.Number != want.Number {
		return malformed("%v does not have all of what is given: %+v", c.Kind, *c)
	}
	return nil
}

// Decode decodes a cell. The result does not share memory with b. Decode rejects all bytes that
// Encode cannot have produced.
func (c *Codec) Decode(b []byte) (Cell, error) {
	if len(b) == 0 {
		return Cell{}, malformed("no bytes")
	}
	r := reader{rest: b[1:]}
	var cell Cell
	switch b[0] {
	case byte(Value), compressed:
		cell.Kind, cell.Mod = Value, r.number()
		cell.Create = cell.Mod - r.number()
		cell.Version = r.number()
		switch {
		case r.err != nil:
		case b[0] == compressed:
			cell.Value, r.err = c.decompress(r.rest)
		case len(r.rest) > MaxValue:
			r.err = malformed("a value of %d bytes", len(r.rest))
		default:
			cell.Value = append([]byte{}, r.rest...)
		}
		r.rest = nil
	case byte(Absent):
		cell.Kind, cell.Revision = Absent, r.number()
	case byte(Guard):
		cell.Kind, cell.Lease, cell.Number = Guard, r.number(), uint64(r.number())
	default:
		cell.Kind = Kind(b[0])
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = malformed("%d bytes too many", len(r.rest))
	}
	if r.err == nil {
		r.err = cell.check()
	}
	if r.err != nil {
		return Cell{}, r.err
	}
	return cell, nil
}

// reader reads numbers from the beginning of bytes. It stops at the first malformed number.
type reader struct {
	rest []byte
	err  error
}

// number reads a varint. The varint must have its shortest form and fit in an int64.
func (r *reader) number() int64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > math.MaxInt64 || size > 1 && r.rest[size-1] == 0 {
		r.err = malformed("no number in %x", r.rest[:min(len(r.rest), binary.MaxVarintLen64)])
		return 0
	}
	r.rest = r.rest[size:]
	return int64(n)
}

package placed

import (
	"encoding/binary"
	"fmt"
)

// Kind is what a slot of a placed key says, by its first byte (docs/etcd.md, "What a slot holds"). The gateways read all of a slot (etcd-monitor/cell); who only places keys
// reads this, and the revision.
type Kind byte

// The kinds of slots. A slot that is NOT_FOUND has none, and is not Clear.
const (
	Clear  Kind = 1 // nothing is known: may be populated
	Value  Kind = 2 // a value, readable
	Absent Kind = 4 // there is no such key, readable
	Guard  Kind = 5 // somebody is writing the key
	Unfit  Kind = 6 // the value does not fit
)

// compressed is the first byte of a Value that is compressed.
const compressed = 3

// Sealed is set in the first byte of a slot that a gateway has written: what follows its head can be opened by gateways only (etcd-monitor/seal).
const Sealed = 0x80

// SealOverhead is how many bytes sealing adds to a cell: 5 for the number of the key, 12 for the nonce, 16 for the tag.
const SealOverhead = 33

// LeastSlot is how many bytes a slot must hold for keys of etcd's: as many as the longest guard has, sealed.
const LeastSlot = 16 + SealOverhead

// Unsealed is the one slot that is not sealed: Clear, as placement writes it when it makes a slot. It holds in the version of the placement alone (Entry.Version).
const Unsealed = string(rune(Clear))

func (k Kind) String() string {
	if n := [...]string{Clear: "clear", Value: "value", Absent: "absent", Guard: "guard", Unfit: "unfit"}; int(k) < len(n) && n[k] != "" {
		return n[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// ReadSlot reads the head of a slot, which is in plain text: its kind and, of a Value and of an Absent, the revision that follows it (an unsigned varint): the value's mod revision, or the one at which the
// key was known not to exist. size is how many bytes the head has. Whether it is true only gateways can tell.
func ReadSlot(slot []byte) (kind Kind, revision int64, size int, err error) {
	if len(slot) == 0 {
		return 0, 0, 0, fmt.Errorf("%w: a slot without a byte", ErrInvalid)
	}
	if kind = Kind(slot[0] &^ Sealed); kind == compressed {
		kind = Value
	}
	switch kind {
	case Clear, Guard, Unfit:
		return kind, 0, 1, nil
	case Value, Absent:
		r, n := binary.Uvarint(slot[1:])
		if n <= 0 || r == 0 || r > 1<<63-1 {
			return 0, 0, 0, fmt.Errorf("%w: a slot with a %v and no revision", ErrInvalid, kind)
		}
		return kind, int64(r), 1 + n, nil
	}
	return 0, 0, 0, fmt.Errorf("%w: a slot of %v", ErrInvalid, kind)
}

// CheckSlot says what shows, without opening a slot, that no gateway and no placement has written it.
func CheckSlot(slot []byte, version uint64, e Entry) error {
	if string(slot) == Unsealed {
		if version != uint64(e.Version) {
			return fmt.Errorf("%w: a slot without a seal, in version %d: placement made it in version %d", ErrInvalid, version, uint64(e.Version))
		}
		return nil
	}
	_, _, size, err := ReadSlot(slot)
	switch {
	case err != nil:
		return err
	case slot[0]&Sealed == 0:
		return fmt.Errorf("%w: a slot without a seal", ErrInvalid)
	case len(slot) < size+SealOverhead:
		return fmt.Errorf("%w: a slot of %d bytes, which is too short for a seal", ErrInvalid, len(slot))
	}
	return nil
}

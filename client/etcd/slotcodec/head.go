package slotcodec

import (
	"encoding/binary"
	"fmt"
)

// Sealed is set in the first byte of a slot that a gateway has written: only gateways can open what
// follows its head (client/etcd/seal).
const Sealed = 0x80

// SealOverhead is how many bytes sealing adds to a cell: 5 for the number of the key, 12 for the
// nonce, 16 for the tag.
const SealOverhead = 33

// LeastSlot is how many bytes a slot must hold for etcd's keys: the size of the longest guard,
// sealed.
const LeastSlot = GuardSize + SealOverhead

// Unsealed is the only valid content of a slot that is not sealed: Clear, as placement writes it
// when it makes a slot. It is valid only in the version that the placement names
// (placement.Entry.Version).
const Unsealed = string(rune(Clear))

// ReadSlot reads the head of a slot, which is in plain text: its kind and, for a Value and an
// Absent, the revision that follows (an unsigned varint). The revision is the value's mod revision,
// or one at which the key was known not to exist. size is the length of the head in bytes. Only
// gateways can tell whether the head is true.
func ReadSlot(slot []byte) (kind Kind, revision int64, size int, err error) {
	if len(slot) == 0 {
		return 0, 0, 0, fmt.Errorf("%w: a slot without a byte", ErrMalformed)
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
			return 0, 0, 0, fmt.Errorf("%w: a slot with a %v and no revision", ErrMalformed, kind)
		}
		return kind, int64(r), 1 + n, nil
	}
	return 0, 0, 0, fmt.Errorf("%w: a slot of %v", ErrMalformed, kind)
}

// CheckSlot checks the content that a slot has in a version, without opening it, for signs that no
// gateway and no placement has written it. made is the version in which placement made the slot.
func CheckSlot(slot []byte, version, made uint64) error {
	if string(slot) == Unsealed {
		if version != made {
			return fmt.Errorf("%w: a slot without a seal, in version %d: placement made it in version %d", ErrMalformed, version, made)
		}
		return nil
	}
	_, _, size, err := ReadSlot(slot)
	switch {
	case err != nil:
		return err
	case slot[0]&Sealed == 0:
		return fmt.Errorf("%w: a slot without a seal", ErrMalformed)
	case len(slot) < size+SealOverhead:
		return fmt.Errorf("%w: a slot of %d bytes, which is too short for a seal", ErrMalformed, len(slot))
	}
	return nil
}

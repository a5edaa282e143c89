package slotcodec

import (
	"encoding/binary"
	"fmt"
)

// Sealed is a bit in the first byte of a slot. It is set if a gateway has written the slot. Only
// gateways can decrypt the bytes after the head (client/etcd/seal).
const Sealed = 0x80

// SealOverhead is the number of bytes that sealing adds to a cell. The number of the key takes 5
// bytes, the nonce 12, and the tag 16.
const SealOverhead = 33

// LeastSlot is the minimum size in bytes of a slot for etcd's keys. It is the size of the longest
// guard when it is sealed.
const LeastSlot = GuardSize + SealOverhead

// Unsealed is the only valid content of a slot that is not sealed. It is a cell of kind Clear,
// which placement writes when it creates a slot. It is valid only in the version that the placement
// names (placement.Entry.Version).
const Unsealed = string(rune(Clear))

// ReadSlot reads the head of a slot, which is not encrypted. The head has the kind and, for a Value
// and an Absent, a revision as an unsigned varint. The revision is the value's mod revision, or a
// revision at which the key did not exist. size is the length of the head in bytes. Only gateways
// can tell whether the head is genuine.
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

// CheckSlot looks for signs that neither a gateway nor placement has written the content of a slot.
// It does not need the sealing key. version is the slot's version, and made is the version in which
// placement created the slot.
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

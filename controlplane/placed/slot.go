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

func (k Kind) String() string {
	if n := [...]string{Clear: "clear", Value: "value", Absent: "absent", Guard: "guard", Unfit: "unfit"}; int(k) < len(n) && n[k] != "" {
		return n[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// ReadSlot reads the beginning of a slot: its kind and, of a Value and of an Absent, the revision that follows it (an unsigned varint): the value's mod revision, or the one at which the key was known
// not to exist.
func ReadSlot(slot []byte) (kind Kind, revision int64, err error) {
	if len(slot) == 0 {
		return 0, 0, fmt.Errorf("%w: a slot without a byte", ErrInvalid)
	}
	if kind = Kind(slot[0]); kind == compressed {
		kind = Value
	}
	switch kind {
	case Clear, Guard, Unfit:
		return kind, 0, nil
	case Value, Absent:
		r, n := binary.Uvarint(slot[1:])
		if n <= 0 || r == 0 || r > 1<<63-1 {
			return 0, 0, fmt.Errorf("%w: a slot with a %v and no revision", ErrInvalid, kind)
		}
		return kind, int64(r), nil
	}
	return 0, 0, fmt.Errorf("%w: a slot of %v", ErrInvalid, kind)
}

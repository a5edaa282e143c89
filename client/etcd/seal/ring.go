package seal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// Overhead is the number of bytes that sealing adds to a cell.
const Overhead = slotcodec.SealOverhead

// tinkPrefix is the number of bytes with which Tink identifies the key (the output prefix type
// TINK). They are a byte with the value 1, and the key's number.
const tinkPrefix = 5

// ErrForged means that no gateway has sealed these bytes for this place.
var ErrForged = errors.New("not sealed by a gateway for this slot")

// UnknownKeyError says that a cell is sealed with a key that this gateway does not know. Only etcd
// can say whether gateways use that key.
type UnknownKeyError struct{ ID uint32 }

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("sealed with key %d, which is not known here", e.ID)
}

// Place identifies the place of a cell. It consists of the slot and the version of the slot while
// it has the cell. Only the sequence of the version matters.
type Place struct {
	Name    string // name of the key in etcd
	ID      wire.Key
	Version wire.Version
}

// After returns the place of a cell that replaces, by CAS, the cell with the expected version.
func After(name string, id wire.Key, expected wire.Version) Place {
	return Place{name, id, wire.MakeVersion(expected.Epoch(), expected.Sequence()+1)}
}

// Ring holds the keys for sealing and opening cells. It is safe for concurrent use. It is
// immutable, except for the count of sealed cells.
type Ring struct {
	handle  *keyset.Handle
	aead    tink.AEAD
	made    map[uint32]time.Time
	primary uint32
	sealed  atomic.Int64
}

// NewRing makes a ring with one new key.
func NewRing() (*Ring, error) {
	h, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("making a key to seal cells with: %w", err)
	}
	return newRing(h, map[uint32]time.Time{})
}

func newRing(h *keyset.Handle, made map[uint32]time.Time) (*Ring, error) {
	a, err := aead.New(h)
	if err != nil {
		return nil, fmt.Errorf("the keys that cells are sealed with: %w", err)
	}
	r := &Ring{handle: h, aead: a, primary: h.KeysetInfo().GetPrimaryKeyId(), made: map[uint32]time.Time{}}
	for _, k := range h.KeysetInfo().GetKeyInfo() {
		r.made[k.GetKeyId()] = made[k.GetKeyId()]
	}
	if made[r.primary].IsZero() {
		r.made[r.primary] = time.Now().UTC()
	}
	return r, nil
}

// record is the form of a ring in etcd.
type record struct {
	Made   map[uint32]time.Time `json:"made"`
	Keyset json.RawMessage      `json:"keyset"`
}

// parse reads a ring from its form in etcd.
func parse(b []byte) (*Ring, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("the keys that cells are sealed with: %w", err)
	}
	h, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(r.Keyset)))
	if err != nil {
		return nil, fmt.Errorf("the keys that cells are sealed with: %w", err)
	}
	return newRing(h, r.Made)
}

// marshal encodes a ring as it is stored in etcd. The result is secret.
func (r *Ring) marshal() (string, error) {
	var b bytes.Buffer
	if err := insecurecleartextkeyset.Write(r.handle, keyset.NewJSONWriter(&b)); err != nil {
		return "", fmt.Errorf("writing the keys that cells are sealed with: %w", err)
	}
	out, err := json.Marshal(record{Made: r.made, Keyset: b.Bytes()})
	if err != nil {
		return "", fmt.Errorf("writing the keys that cells are sealed with: %w", err)
	}
	return string(out), nil
}

// Rotated returns a ring with an additional new key. The new ring seals with this key.
func (r *Ring) Rotated() (*Ring, error) {
	m := keyset.NewManagerFromHandle(r.handle)
	id, err := m.Add(aead.AES256GCMKeyTemplate())
	if err == nil {
		err = m.SetPrimary(id)
	}
	if err != nil {
		return nil, fmt.Errorf("making a key to seal cells with: %w", err)
	}
	return r.of(m)
}

// Without returns a ring without the given keys. The current sealing key always stays.
func (r *Ring) Without(ids ...uint32) (*Ring, error) {
	m := keyset.NewManagerFromHandle(r.handle)
	for _, id := range ids {
		if !r.Knows(id) || id == r.primary {
			continue
		}
		if err := m.Delete(id); err != nil {
			return nil, fmt.Errorf("dropping key %d: %w", id, err)
		}
	}
	return r.of(m)
}

func (r *Ring) of(m *keyset.Manager) (*Ring, error) {
	h, err := m.Handle()
	if err != nil {
		return nil, fmt.Errorf("the keys that cells are sealed with: %w", err)
	}
	return newRing(h, r.made)
}

// Primary returns the number and the creation time of the current sealing key.
func (r *Ring) Primary() (id uint32, made time.Time) { return r.primary, r.made[r.primary] }

// replaced returns when the next key after the given key was created. For the newest key, it
// returns the end of time.
func (r *Ring) replaced(id uint32) time.Time {
	at := time.Unix(1<<40, 0)
	for _, t := range r.made {
		if t.After(r.made[id]) && t.Before(at) {
			at = t
		}
	}
	return at
}

// Knows reports whether the ring has a key.
func (r *Ring) Knows(id uint32) bool {
	_, ok := r.made[id]
	return ok
}

// Keys returns the numbers and creation times of all keys.
func (r *Ring) Keys() map[uint32]time.Time {
	out := make(map[uint32]time.Time, len(r.made))
	for id, t := range r.made {
		out[id] = t
	}
	return out
}

// Sealed returns how many cells this ring has sealed in this process.
func (r *Ring) Sealed() int64 { return r.sealed.Load() }

// Seal seals a cell for the place where it will be. Package slotcodec has encoded the cell.
func (r *Ring) Seal(cell []byte, at Place) ([]byte, error) {
	_, _, size, err := slotcodec.ReadSlot(cell)
	if err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	head := append(make([]byte, 0, len(cell)+Overhead), cell[:size]...)
	head[0] |= slotcodec.Sealed
	closed, err := r.aead.Encrypt(cell[size:], associated(head, at))
	if err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	r.sealed.Add(1)
	return append(head, closed...), nil
}

// Open returns the cell that was sealed for this place. It fails with an *UnknownKeyError if the
// cell's key is not in the ring, and with ErrForged if the cell was not sealed for this place with
// a key of the ring.
func (r *Ring) Open(sealed []byte, at Place) ([]byte, error) {
	_, _, size, err := slotcodec.ReadSlot(sealed)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrForged, err)
	case sealed[0]&slotcodec.Sealed == 0:
		return nil, fmt.Errorf("%w: there is no seal", ErrForged)
	case len(sealed) < size+Overhead || sealed[size] != 1:
		return nil, fmt.Errorf("%w: %d bytes are no seal", ErrForged, len(sealed)-size)
	}
	if id := keyOf(sealed, size); !r.Knows(id) {
		return nil, &UnknownKeyError{id}
	}
	head := sealed[:size]
	rest, err := r.aead.Decrypt(sealed[size:], associated(head, at))
	if err != nil {
		return nil, fmt.Errorf("%w: it does not open", ErrForged)
	}
	cell := append(make([]byte, 0, size+len(rest)), head...)
	cell[0] &^= slotcodec.Sealed
	return append(cell, rest...), nil
}

// Key returns the number of the key with which a cell was sealed. It returns 0 if the cell is not
// sealed.
func Key(sealed []byte) uint32 {
	_, _, size, err := slotcodec.ReadSlot(sealed)
	if err != nil || len(sealed) < size+tinkPrefix {
		return 0
	}
	return keyOf(sealed, size)
}

func keyOf(sealed []byte, size int) uint32 { return binary.BigEndian.Uint32(sealed[size+1:]) }

// associated returns the additional data that is authenticated with a cell. Each part but the last
// has its own length, so different places always give different bytes.
func associated(head []byte, at Place) []byte {
	b := make([]byte, 0, 64+len(at.Name))
	b = append(b, 1) // the version of this encoding
	b = binary.BigEndian.AppendUint32(b, uint32(at.ID))
	b = binary.BigEndian.AppendUint64(b, at.Version.Sequence())
	b = append(b, byte(len(head)))
	b = append(b, head...)
	return append(b, at.Name...)
}

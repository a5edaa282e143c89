package guarded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// slot is what a read has found in a slot.
type slot struct {
	cell    slotcodec.Cell // the decoded cell; its kind is 0 if it could not be decoded
	plain   []byte         // the unsealed content; nil if it could not be unsealed
	bytes   []byte         // the slot's bytes, unchanged
	version wire.Version
	// forged is set if no gateway has written the content. Such content is never used as an answer,
	// and never overwritten.
	forged error
	// number of the cell's sealing key, if this gateway does not know the key; otherwise 0
	key uint32
}

// guardedBy reports whether a slot holds the guard with this session and number.
func (s *slot) guardedBy(lease int64, number uint64) bool {
	return s.cell.Kind == slotcodec.Guard && s.cell.Lease == lease && s.cell.Number == number
}

// revision returns the revision in a slot. It is 0 if the slot has no revision.
func (s *slot) revision() int64 { return max(s.cell.Mod, s.cell.Revision) }

func (s *Server) look(ctx context.Context, k placement.Key) (slot, error) {
	b, version, err := s.Slots.Read(ctx, wire.Key(k.ID))
	if err != nil {
		return slot{version: version}, err
	}
	return s.read(ctx, k, b, version), nil
}

// lookHard reads a slot. If the slot is sealed with an unknown key, lookHard asks etcd for the key.
// Afterwards it is known whether a gateway has written the cell.
func (s *Server) lookHard(ctx context.Context, k placement.Key) (slot, error) {
	at, err := s.look(ctx, k)
	if err != nil || at.key == 0 {
		return at, err
	}
	return s.learn(ctx, k, at)
}

// learn asks etcd for the key with which a slot is sealed, and then decodes the slot's bytes with
// this key.
func (s *Server) learn(ctx context.Context, k placement.Key, at slot) (slot, error) {
	unknown := &seal.UnknownKeyError{ID: at.key}
	known, err := s.Seals.Want(ctx, at.key)
	if err != nil {
		return at, fmt.Errorf("a slot is %w: %w", unknown, err)
	}
	if known {
		at = s.read(ctx, k, at.bytes, at.version)
	}
	if at.key != 0 {
		at.key, at.forged = 0, fmt.Errorf("%w, nor to etcd", unknown)
	}
	return at, nil
}

// read decodes the content of a slot.
func (s *Server) read(ctx context.Context, k placement.Key, b []byte, version wire.Version) slot {
	at := slot{bytes: b, version: version}
	plain, err := s.open(k, b, version)
	var unknown *seal.UnknownKeyError
	switch {
	case errors.As(err, &unknown):
		at.key = unknown.ID
		return at
	case err != nil:
		at.forged = err
		return at
	}
	at.plain = plain
	at.cell, err = s.Codec.Codec().Decode(plain)
	var dictionary *slotcodec.DictionaryError
	switch {
	case errors.As(err, &dictionary):
		s.Runtime.Go(func() { // later readers will have the key
			ctx, cancel := s.Runtime.Detach(context.WithoutCancel(ctx))
			defer cancel()
			s.Codec.Want(ctx, dictionary.Version)
		})
	case err != nil:
		// A gateway of another version has written the cell, so its meaning is not known.
		at.forged = err
	}
	return at
}

// open returns the cell that a gateway or the placement has put into a slot.
func (s *Server) open(k placement.Key, b []byte, version wire.Version) ([]byte, error) {
	switch {
	case string(b) == slotcodec.Unsealed && version == wire.Version(k.Version):
		return b, nil
	case string(b) == slotcodec.Unsealed:
		return nil, fmt.Errorf("%w: it is clear without a seal, in version %v and not %v, in which placement made it", seal.ErrForged, version, wire.Version(k.Version))
	}
	return s.Seals.Ring().Open(b, s.place(k, version))
}

// cas replaces a slot's cell. It seals the new cell for the version that the slot will then have.
func (s *Server) cas(ctx context.Context, k placement.Key, expected wire.Version, plain []byte) (wire.Version, error) {
	b, err := s.Seals.Ring().Seal(plain, s.place(k, seal.After(k.Name, wire.Key(k.ID), expected).Version))
	if err != nil {
		return 0, err
	}
	return s.Slots.CAS(ctx, wire.Key(k.ID), expected, b)
}

func (s *Server) place(k placement.Key, version wire.Version) seal.Place {
	return seal.Place{Name: k.Name, ID: wire.Key(k.ID), Version: version}
}

// fault requests the eviction of a key from a slot whose content no gateway has written. It counts
// the fault once for each version of the slot.
func (s *Server) fault(k placement.Key, version wire.Version, why error) {
	s.mu.Lock()
	was, known := s.forged[wire.Key(k.ID)]
	news := !known || was.version != version
	if news {
		for id, f := range s.forged {
			if !s.stillPlaced(f.key) {
				delete(s.forged, id)
			}
		}
		s.forged[wire.Key(k.ID)] = forged{k, version}
	}
	s.mu.Unlock()
	if news {
		s.Observer.Forged()
	}
	s.Evictor.Evict(k, placement.Forged, why.Error())
}

// forged is the error for a slot whose content no gateway has written.
type forged struct {
	key     placement.Key
	version wire.Version
}

// cellOf returns the cell for the state of a key at a revision. kv is nil if the key does not
// exist.
func (s *Server) cellOf(kv *mvccpb.KeyValue, revision int64) slotcodec.Cell {
	switch {
	case kv == nil:
		return slotcodec.Cell{Kind: slotcodec.Absent, Revision: revision}
	case kv.Lease != 0: // When the lease expires, etcd deletes the key without notifying gateways.
		return slotcodec.Cell{Kind: slotcodec.Unfit}
	}
	value := kv.Value
	if value == nil {
		value = []byte{}
	}
	return slotcodec.Cell{Kind: slotcodec.Value, Create: kv.CreateRevision, Mod: kv.ModRevision,
		Version: kv.Version, Value: value}
}

// These bound how long a request whether a session exists waits for etcd. It waits for aliveFirst
// at first, and for at most aliveMost. So an etcd member that does not respond costs little time,
// and a slow etcd still gets enough time.
const (
	aliveFirst   = time.Second
	aliveLongest = 10 * time.Second
)

// alive asks etcd whether a session exists, with a linearizable read and a time limit. If the limit
// was too short, alive makes it a quarter longer for the next call.
func (s *Server) alive(ctx context.Context, lease int64, limit *time.Duration) (bool, error) {
	ctx, cancel := s.Runtime.Limit(ctx, *limit)
	defer cancel()
	r, err := s.Etcd.Range(ctx, countOf(s.Sessions.Key(lease)))
	if err != nil {
		*limit = min(*limit+*limit/4, aliveLongest)
		return true, fmt.Errorf("looking whether session %x is there: %w", lease, err)
	}
	s.saw(r.Header)
	return r.Count > 0, nil
}

// isGone reports whether an error of a slot means that the placement has ended or is being ended.
func isGone(err error) bool { return errors.Is(err, calls.ErrNotFound) }

// isChanged reports whether an error of a slot means that the slot does not have the expected
// version.
func isChanged(err error) bool { return errors.Is(err, calls.ErrCASFailed) }

// isDenied reports whether an error of a slot means that the switches deny this gateway's host the
// operation. Trying again does not help, and the error says nothing about the slot.
func isDenied(err error) bool { return errors.Is(err, calls.ErrDenied) }

// stillPlaced reports whether this gateway still knows a placement as the key's present one.
func (s *Server) stillPlaced(k placement.Key) bool {
	e, ok := s.Directory.Lookup(k.Name)
	return ok && e.Mod == k.Mod
}

package etcdtest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// Slots are slots in memory. In tests they replace the switches' slots (guarded.Slots).
type Slots struct {
	// Answered counts the reads of cells that can answer a client.
	Answered atomic.Int64

	mu    sync.Mutex
	slots map[wire.Key]*slot
	last  uint32
}

type slot struct {
	value   []byte
	version wire.Version
}

// NewSlots makes Slots without any slot.
func NewSlots() *Slots { return &Slots{slots: map[wire.Key]*slot{}} }

// Size returns the number of bytes that a slot holds.
func (s *Slots) Size(wire.Key) int { return 1024 }

// Silent always returns false, because these slots always answer.
func (s *Slots) Silent(wire.Key) bool { return false }

// Read reads a slot.
func (s *Slots) Read(_ context.Context, id wire.Key) ([]byte, wire.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.slots[id]
	if at == nil {
		return nil, 0, calls.ErrNotFound
	}
	kind, _, _, err := slotcodec.ReadSlot(at.value)
	if err == nil && (kind == slotcodec.Value || kind == slotcodec.Absent) {
		s.Answered.Add(1)
	}
	return slices.Clone(at.value), at.version, nil
}

// ReadNow reads a slot without waiting.
func (s *Slots) ReadNow(id wire.Key) ([]byte, wire.Version, bool) {
	b, version, err := s.Read(context.Background(), id)
	return b, version, err == nil
}

// CAS replaces the content of a slot if the slot has the expected version.
func (s *Slots) CAS(_ context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch at := s.slots[id]; {
	case at == nil:
		return 0, calls.ErrNotFound
	case at.version != expected:
		return 0, calls.ErrCASFailed
	default:
		at.value, at.version = slices.Clone(value), at.version+1
		return at.version, nil
	}
}

// Add adds a slot, as placement does.
func (s *Slots) Add() placement.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	id := wire.MakeKey(1, s.last)
	s.slots[id] = &slot{[]byte(slotcodec.Unsealed), 1}
	return placement.Entry{ID: uint32(id), Chain: "main", Version: 1}
}

// Remove removes a slot.
func (s *Slots) Remove(id wire.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.slots, id)
}

package saved

import (
	"context"
	"sync"
)

// Saver writes states on a goroutine of its own, so that a slow disk does not delay leases. If
// several states wait, it writes only the last one, which contains all earlier changes.
type Saver struct {
	store Store

	mu      sync.Mutex
	next    *State
	waiting []func(error)
	wake    chan struct{}
}

// NewSaver returns a saver that writes to a store while Run runs.
func NewSaver(store Store) *Saver { return &Saver{store: store, wake: make(chan struct{}, 1)} }

// Save schedules a state to be written, and calls done with the outcome.
func (s *Saver) Save(st *State, done func(error)) {
	s.mu.Lock()
	s.next = st
	s.waiting = append(s.waiting, done)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run writes states until ctx ends. Then it writes the state that still waits, if there is one.
func (s *Saver) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.write()
			return
		case <-s.wake:
			s.write()
		}
	}
}

func (s *Saver) write() {
	s.mu.Lock()
	st, waiting := s.next, s.waiting
	s.next, s.waiting = nil, nil
	s.mu.Unlock()
	if st == nil {
		return
	}
	err := s.store.Save(st)
	for _, done := range waiting {
		done(err)
	}
}

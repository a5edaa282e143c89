package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/directory"
	"github.com/netcraq/netcraq/controlplane/sessions"
)

// State is what survives the controller.
type State struct {
	Version   int                     `json:"version"`
	Chains    map[string]chain.Record `json:"chains"` // by name
	Directory directory.Snapshot      `json:"directory"`
	Sessions  []sessions.Lease        `json:"sessions"`
	Avoided   []string                `json:"avoided,omitempty"` // switches that routes go around
}

// StateVersion is the version of the state's form that this controller writes and reads.
const StateVersion = 1

// ErrNotLeading: the store takes nothing from this controller any more, because another leads.
var ErrNotLeading = errors.New("another controller leads")

// Store keeps the state: in a file on a single machine (File), in etcd for several controllers (package etcdstore). One call is made at a time.
type Store interface {
	// Load reads the state, nil where none was ever saved.
	Load() (*State, error)
	// Save makes the state durable before it returns. ErrNotLeading: it never will.
	Save(*State) error
}

// Memory is a Store that forgets. A controller that is restarted with it asks the switches, and waits until all of them have answered.
type Memory struct{}

// Load implements Store.
func (Memory) Load() (*State, error) { return nil, nil }

// Save implements Store.
func (Memory) Save(*State) error { return nil }

// File is a Store in one JSON file, which is replaced as a whole.
type File string

// Load implements Store.
func (f File) Load() (*State, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	s := new(State)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("reading the state %s: %w (move it away to start without: the controller then asks the switches)", f, err)
	}
	if s.Version != StateVersion {
		return nil, fmt.Errorf("the state %s is of version %d, and this controller reads version %d", f, s.Version, StateVersion)
	}
	return s, nil
}

// Save implements Store: a new file beside the old one, forced to the disk, takes its place.
func (f File) Save(s *State) error {
	fail := func(err error) error { return fmt.Errorf("saving the state %s: %w", f, err) }
	s.Directory.Sort()
	b, err := json.Marshal(s)
	if err != nil {
		return fail(err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(string(f)), filepath.Base(string(f))+".*")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp.Name()) // fails, rightly, when it has been renamed
	_, err = tmp.Write(append(b, '\n'))
	if err == nil {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), string(f))
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// saver writes states on a goroutine of its own, so that a slow disk holds up no lease. Of several that wait only the last is written: it has all
// that those before it have.
type saver struct {
	store Store

	mu      sync.Mutex
	next    *State
	waiting []func(error)
	wake    chan struct{}
}

func newSaver(store Store) *saver { return &saver{store: store, wake: make(chan struct{}, 1)} }

// save has a state written, and calls done with the outcome.
func (s *saver) save(st *State, done func(error)) {
	s.mu.Lock()
	s.next = st
	s.waiting = append(s.waiting, done)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then what is still waiting.
func (s *saver) run(ctx context.Context) {
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

func (s *saver) write() {
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

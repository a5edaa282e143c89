package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/directory"
	"github.com/netcraq/netcraq/controlplane/sessions"
)

// State is what survives the controller.
type State struct {
	Version   int                     `json:"version"`
	Chains    map[string]chain.Record `json:"chains"` // by name
	Directory directory.Snapshot      `json:"directory,omitzero"`
	Sessions  []sessions.Lease        `json:"sessions"`
	Avoided   []string                `json:"avoided,omitempty"` // switches that routes go around
	// Principals are the numbers of principals and realms, by name.
	Principals map[string]uint16 `json:"principals,omitempty"`
	// What follows is what a topology that has changed meanwhile does not say.
	Switches []SavedSwitch     `json:"switches,omitempty"`
	Spaces   []directory.Space `json:"spaces,omitempty"` // the chains' slots: they stay where they are
	Epoch    uint16            `json:"epoch,omitempty"`  // the highest of all chains, those that were removed included
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

// File is a Store in JSON files, each of which is replaced as a whole: one of the name given, and beside it one of the directory of keys (state.keys.json beside
// state.json), which is large and seldom changes. A chain waits for its record with writes stopped, so the record must not wait for the keys.
func File(path string) Store {
	ext := filepath.Ext(path)
	return &fileStore{path: path, keys: strings.TrimSuffix(path, ext) + ".keys" + ext}
}

type fileStore struct {
	path, keys string
	edit       uint64 // of the directory that is in the file; 0: not known
}

// Load implements Store.
func (f *fileStore) Load() (*State, error) {
	s := new(State)
	if ok, err := load(f.path, s); !ok {
		return nil, err
	}
	if s.Version != StateVersion {
		return nil, fmt.Errorf("the state %s is of version %d, and this controller reads version %d", f.path, s.Version, StateVersion)
	}
	if s.Directory.Keys == nil {
		if _, err := load(f.keys, &s.Directory); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// load reads a file, and says whether it is there.
func load(path string, into any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the state: %w", err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, fmt.Errorf("reading the state %s: %w (move it away to start without: the controller then asks the switches)", path, err)
	}
	return true, nil
}

// Save implements Store. The directory is written first: a state without it would be one without keys.
func (f *fileStore) Save(s *State) error {
	if s.Directory.Edit == 0 || s.Directory.Edit != f.edit {
		f.edit = 0
		s.Directory.Sort()
		if err := replace(f.keys, s.Directory); err != nil {
			return err
		}
		f.edit = s.Directory.Edit
	}
	rest := *s
	rest.Directory = directory.Snapshot{}
	return replace(f.path, rest)
}

// replace puts a new file, forced to the disk, into the place of an old one.
func replace(path string, content any) error {
	fail := func(err error) error { return fmt.Errorf("saving the state %s: %w", path, err) }
	b, err := json.Marshal(content)
	if err != nil {
		return fail(err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
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
		err = os.Rename(tmp.Name(), path)
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

package saved

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/internal/atomicfile"
)

// State is the part of the controller's state that survives it.
type State struct {
	Version   int                     `json:"version"`
	Chains    map[string]chain.Record `json:"chains"` // records by the chain's name
	Directory keyspace.Snapshot       `json:"directory,omitzero"`
	Sessions  []sessions.Lease        `json:"sessions"`
	Avoided   []string                `json:"avoided,omitempty"` // switches that routes go around
	// Principals maps names of principals and realms to their numbers.
	Principals map[string]uint16 `json:"principals,omitempty"`
	// The following fields hold data that a changed topology may no longer contain.
	Switches []Switch         `json:"switches,omitempty"`
	Spaces   []keyspace.Space `json:"spaces,omitempty"` // the chains' slots, which never move
	// Epoch is the highest epoch of all chains, including removed ones.
	Epoch uint16 `json:"epoch,omitempty"`
	// Lost says that only the Directory of the saved state was found.
	Lost bool `json:"-"`
}

// FloorAbove returns a floor for a state that was saved without one. The floor is above every
// version that any name has had. No record says which versions removed keys had, but the epochs of
// the chains bound them:
//
//   - The versions that switches give a key grow by its chain's epochs, and by less than one epoch
//     for all writes together.
//   - An offset raises a key to just above the floor, or to the version of the key that it
//     replaces. So it raises the key no higher than other names have been.
//
// The highest version by name has therefore grown by no more than all epochs of all chains
// together. For a removed chain, the state knows only its number (in Next). The epochs of
// successive chains with the same number do not overlap, so their count is at most the highest
// epoch.
//
// There is one exception. Each removal that a controller found unfinished has raised the floor by
// one epoch more than the removed key can have had. The state shows this only in the offsets of
// keys that were added above such a floor. If no key was added above it, the returned floor may be
// too low.
func (s *State) FloorAbove() wire.Version {
	const top = uint64(keyspace.LastFloor >> 48)
	highest := uint64(s.Highest())
	epochs := uint64(max(0, len(s.Directory.Next)-len(s.Chains))) * highest
	for _, r := range s.Chains {
		epochs += uint64(r.Config.Epoch)
	}
	// the floor would leave no versions for new keys, so take the floor of a single chain
	if epochs >= top {
		epochs = highest
	}
	floor := wire.Version(min(epochs+1, top)) << 48
	for _, k := range s.Directory.Keys {
		if v := k.Version(wire.Version(highest+1) << 48); v > floor && v <= keyspace.LastFloor {
			floor = v
		}
	}
	return floor
}

// Version is the version of the state's format that this controller writes and reads.
const Version = 1

// ErrNotLeading says that the store rejects this controller's writes, because another controller
// leads.
var ErrNotLeading = ops.ErrNotLeading

// Store keeps the state: in a file on a single machine (File), or in etcd for several controllers
// (package etcdstore). Its methods are not called concurrently.
type Store interface {
	// Load reads the state. It returns nil if no state was ever saved.
	Load() (*State, error)
	// Save makes the state durable before it returns. The error ErrNotLeading means that this
	// controller can never save again.
	Save(*State) error
}

// Memory is a Store that keeps nothing. A controller that is restarted with Memory reads its state
// from the switches, and waits until all of them have answered.
type Memory struct{}

// Load implements Store.
func (Memory) Load() (*State, error) { return nil, nil }

// Save implements Store.
func (Memory) Save(*State) error { return nil }

// File is a Store in two JSON files, each of which is replaced as a whole. One file has the given
// name. The other file, next to it, holds the directory of keys (state.keys.json next to
// state.json), which is large and seldom changes. A chain's writes are stopped while its record is
// saved, so the record must not wait for the file of keys.
func File(path string) Store {
	ext := filepath.Ext(path)
	return &fileStore{path: path, keys: strings.TrimSuffix(path, ext) + ".keys" + ext}
}

type fileStore struct {
	path, keys string
	edit       uint64 // edit number of the directory in the keys' file; 0: not known
	times      uint64 // how often the keys' file was written; the file also stores this number
}

// mainFile and keysFile are the contents of the two files. Each file says how often the keys' file
// had been written. If the keys' file has a lower number than the main file, it is out of date. (If
// it has a higher number, the process ended between the two writes.)
type mainFile struct {
	State
	Times uint64 `json:"keysWritten,omitempty"`
}

type keysFile struct {
	keyspace.Snapshot
	Times uint64 `json:"written,omitempty"`
}

// FileImage is a state in the form of the two files of a File store.
type FileImage struct{ Main, Keys []byte }

// NewFileImage returns the two files that File writes when it saves a state for the first time.
func NewFileImage(s *State) (m FileImage, err error) {
	main, keys := contents(s, 1)
	if m.Main, err = json.Marshal(main); err == nil {
		m.Keys, err = json.Marshal(keys)
	}
	return m, err
}

// State decodes the image as File does.
func (m FileImage) State() (*State, error) {
	var main mainFile
	var keys keysFile
	if err := json.Unmarshal(m.Main, &main); err != nil {
		return nil, err
	}
	err := json.Unmarshal(m.Keys, &keys)
	return main.with(keys), err
}

// contents splits a state into the two files. The directory must be sorted.
func contents(s *State, times uint64) (mainFile, keysFile) {
	main := mainFile{*s, times}
	main.Directory = keyspace.Snapshot{}
	return main, keysFile{s.Directory, times}
}

// with joins the two files into a state.
func (m *mainFile) with(keys keysFile) *State {
	m.Directory = keys.Snapshot
	return &m.State
}

// Load implements Store. If the main file is missing, it returns the other file's content, with
// Lost set.
func (f *fileStore) Load() (*State, error) {
	var s mainFile
	var keys keysFile
	there, err := load(f.path, &s)
	if err != nil {
		return nil, err
	}
	if there && s.Version != Version {
		return nil, fmt.Errorf("the state %s is of version %d, and this controller reads version %d: start the "+
			"controller that has written it. Nothing was changed", f.path, s.Version, Version)
	}
	if s.Directory.Keys != nil { // an earlier version has written this file
		return &s.State, nil
	}
	keysThere, err := load(f.keys, &keys)
	const otherwise = "Put the newest copy of it back. If there is none, move %s away as well: the controller then " +
		"asks the switches, and lists the keys that they have by their KEY_IDs"
	switch {
	case err != nil:
		return nil, err
	case !there && !keysThere:
		return nil, nil
	case !keysThere:
		return nil, fmt.Errorf("%s is there, and %s is not, which has the names of the keys, and which KEY_IDs were "+
			"given. "+otherwise, f.path, f.keys, f.path)
	case keys.Times < s.Times:
		return nil, fmt.Errorf("%s is not the one that belongs to %s: it was written %d times, and that knows of %d. "+
			otherwise, f.keys, f.path, keys.Times, s.Times, f.path+" and "+f.keys)
	case !there:
		s.State = State{Version: Version, Lost: true}
	}
	f.times = keys.Times
	return s.with(keys), nil
}

// load reads a file, and returns whether it exists.
func load(path string, into any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the state: %w", err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, fmt.Errorf("reading the state %s: %w. Put the newest copy of it back, or move it away to start without: "+
			"the controller then asks the switches", path, err)
	}
	return true, nil
}

// Save implements Store. It writes the directory first, because a state without its directory
// would have no keys.
func (f *fileStore) Save(s *State) error {
	if s.Directory.Edit == 0 || s.Directory.Edit != f.edit {
		f.edit = 0
		s.Directory.Sort()
		// Count before the attempt, because a write that failed may have taken effect.
		f.times++
		_, keys := contents(s, f.times)
		if err := replace(f.keys, keys); err != nil {
			return err
		}
		f.edit = s.Directory.Edit
	}
	main, _ := contents(s, f.times)
	return replace(f.path, main)
}

// replace atomically replaces a file and syncs it to disk.
func replace(path string, content any) error {
	err := atomicfile.Replace(path, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(content) })
	if err != nil {
		return fmt.Errorf("saving the state %s: %w", path, err)
	}
	return nil
}

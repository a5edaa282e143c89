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
	Chains    map[string]chain.Record `json:"chains"` // by name
	Directory keyspace.Snapshot       `json:"directory,omitzero"`
	Sessions  []sessions.Lease        `json:"sessions"`
	Avoided   []string                `json:"avoided,omitempty"` // switches that routes go around
	// Principals are the numbers of principals and realms, by name.
	Principals map[string]uint16 `json:"principals,omitempty"`
	// The following is not in a topology that has changed meanwhile.
	Switches []Switch         `json:"switches,omitempty"`
	Spaces   []keyspace.Space `json:"spaces,omitempty"` // the chains' slots, which never move
	Epoch    uint16           `json:"epoch,omitempty"`  // the highest of all chains, those that were removed included
	// Lost: only the Directory of the saved state remains.
	Lost bool `json:"-"`
}

// FloorAbove is a floor for a state that was saved without one, above every version that a name has
// had by it. Nothing on record says which versions removed keys had, but the epochs of the chains
// bound them:
//
//   - The versions that switches give a key grow by its chain's epochs, and by less than an epoch
//     for all that was ever written.
//   - An offset brings a key to just above the floor, or to where the key was that it takes the
//     place of. So it takes the key above no more than what other names have had.
//
// The highest version by name has therefore grown by no more than all epochs that all chains have
// had. A chain that was removed is known only by its number (in Next). The epochs of chains that
// had one number, one after the other, do not overlap, so together they are no more than the
// highest.
//
// A removal that was found half done has left a floor of one epoch more than its key can have had.
// The keys that were added above such a floor say so by their offsets.
func (s *State) FloorAbove() wire.Version {
	const top = uint64(keyspace.LastFloor >> 48)
	highest := uint64(s.Highest())
	epochs := uint64(max(0, len(s.Directory.Next)-len(s.Chains))) * highest
	for _, r := range s.Chains {
		epochs += uint64(r.Config.Epoch)
	}
	if epochs >= top { // no key could be added any more: it takes that the epochs of one chain made all versions
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

// Version is the version of the state's form that this controller writes and reads.
const Version = 1

// ErrNotLeading: the store accepts nothing from this controller any more, because another one
// leads.
var ErrNotLeading = ops.ErrNotLeading

// Store keeps the state: in a file on a single machine (File), in etcd for several controllers
// (package etcdstore). One call is made at a time.
type Store interface {
	// Load reads the state, nil if none was ever saved.
	Load() (*State, error)
	// Save makes the state durable before it returns. ErrNotLeading: it never will.
	Save(*State) error
}

// Memory is a Store that forgets. A controller that is restarted with it asks the switches, and
// waits until all of them have answered.
type Memory struct{}

// Load implements Store.
func (Memory) Load() (*State, error) { return nil, nil }

// Save implements Store.
func (Memory) Save(*State) error { return nil }

// File is a Store in JSON files, each of which is replaced as a whole: one of the given name, and
// next to it one with the directory of keys (state.keys.json next to state.json), which is large
// and seldom changes. A chain waits for its record with writes stopped, so the record must not wait
// for the keys.
func File(path string) Store {
	ext := filepath.Ext(path)
	return &fileStore{path: path, keys: strings.TrimSuffix(path, ext) + ".keys" + ext}
}

type fileStore struct {
	path, keys string
	edit       uint64 // of the directory that is in the file; 0: not known
	times      uint64 // how often the file of the keys was written, as it says itself
}

// mainFile and keysFile are what stands in the two files. Each says how often that of the keys had
// been written: with fewer times than the main one knows about, it is an earlier one. (With more:
// the process ended between the two.)
type mainFile struct {
	State
	Times uint64 `json:"keysWritten,omitempty"`
}

type keysFile struct {
	keyspace.Snapshot
	Times uint64 `json:"written,omitempty"`
}

// FileImage is a state as it stands in the two files of File.
type FileImage struct{ Main, Keys []byte }

// NewFileImage returns what File writes for a state, the first time.
func NewFileImage(s *State) (m FileImage, err error) {
	main, keys := contents(s, 1)
	if m.Main, err = json.Marshal(main); err == nil {
		m.Keys, err = json.Marshal(keys)
	}
	return m, err
}

// State is what File reads.
func (m FileImage) State() (*State, error) {
	var main mainFile
	var keys keysFile
	if err := json.Unmarshal(m.Main, &main); err != nil {
		return nil, err
	}
	err := json.Unmarshal(m.Keys, &keys)
	return main.with(keys), err
}

// contents are what the files have of a state. Sort the directory before.
func contents(s *State, times uint64) (mainFile, keysFile) {
	main := mainFile{*s, times}
	main.Directory = keyspace.Snapshot{}
	return main, keysFile{s.Directory, times}
}

// with returns the state in two files.
func (m *mainFile) with(keys keysFile) *State {
	m.Directory = keys.Snapshot
	return &m.State
}

// Load implements Store. Without the main file, it returns the other one's content, with Lost.
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
	if s.Directory.Keys != nil { // written by an earlier version
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
		return false, fmt.Errorf("reading the state %s: %w. Put the newest copy of it back, or move it away to start without: "+
			"the controller then asks the switches", path, err)
	}
	return true, nil
}

// Save implements Store. The directory is written first: a state without it would be one without
// keys.
func (f *fileStore) Save(s *State) error {
	if s.Directory.Edit == 0 || s.Directory.Edit != f.edit {
		f.edit = 0
		s.Directory.Sort()
		f.times++ // before it is tried: what did not succeed may have been written
		_, keys := contents(s, f.times)
		if err := replace(f.keys, keys); err != nil {
			return err
		}
		f.edit = s.Directory.Edit
	}
	main, _ := contents(s, f.times)
	return replace(f.path, main)
}

// replace puts a new file, forced to the disk, into the place of an old one.
func replace(path string, content any) error {
	err := atomicfile.Replace(path, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(content) })
	if err != nil {
		return fmt.Errorf("saving the state %s: %w", path, err)
	}
	return nil
}

package etcdstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// These are the names of the state's keys in etcd, without the prefix.
const (
	keysPrefix   = "keys/"   // prefix of the etcd keys for the directory's keys
	chainsPrefix = "chains/" // prefix of the etcd keys for the chains' records
	revisionName = "revision"
)

// revision is the value of "revision", which each transaction writes. It contains the directory's
// floor. The floor has no key of its own, because older controllers refuse unknown keys. Older
// controllers write only the leader's number to this key. So an older controller can take over, and
// its successor notices that the floor is missing.
type revision struct {
	Leader int64         `json:"leader"`
	Floor  *wire.Version `json:"floor"`
}

func keyName(id wire.Key) string { return fmt.Sprintf("%s%08x", keysPrefix, uint32(id)) }

// parts returns the parts of a state that each have one key in etcd, by the key's name. It leaves
// out the chains' records and the directory's keys, which have keys of their own, and the floor.
func parts(s *saved.State) map[string]any {
	return map[string]any{
		"version":    &s.Version,
		"next":       &s.Directory.Next,
		"retired":    &s.Directory.Retired,
		"sessions":   &s.Sessions,
		"avoided":    &s.Avoided,
		"principals": &s.Principals,
		"switches":   &s.Switches,
		"spaces":     &s.Spaces,
		"epoch":      &s.Epoch,
	}
}

// Image is a state in the form of etcd's keys.
type Image struct {
	keys   map[wire.Key]keyspace.Key // the directory's keys
	others map[string]string         // the values of all other etcd keys, by name
	floor  *wire.Version             // nil if the floor is missing
	edit   uint64                    // Directory.Edit of the directory's keys; 0: unknown
}

// NewImage makes an image from etcd's keys and values. The keys' names lack the prefix.
func NewImage(stored map[string]string) (*Image, error) {
	m := &Image{keys: map[wire.Key]keyspace.Key{}, others: map[string]string{}}
	for name, value := range stored {
		if name == revisionName {
			var r revision
			if json.Unmarshal([]byte(value), &r) == nil { // older controllers wrote a plain number
				m.floor = r.Floor
			}
			continue
		}
		if !strings.HasPrefix(name, keysPrefix) {
			m.others[name] = value
			continue
		}
		var k keyspace.Key
		if err := json.Unmarshal([]byte(value), &k); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		m.keys[k.ID] = k
	}
	return m, nil
}

// State returns the state of an image.
func (m *Image) State() (*saved.State, error) {
	s := &saved.State{Version: saved.Version, Chains: map[string]chain.Record{}}
	s.Directory.Keys = slices.Collect(maps.Values(m.keys))
	known := parts(s)
	for name, value := range m.others {
		chainName, isChain := strings.CutPrefix(name, chainsPrefix)
		var record chain.Record
		into := known[name]
		switch {
		case isChain:
			into = &record
		case into == nil:
			return nil, fmt.Errorf("there is %s, which this controller does not know: is it of a later version?", name)
		}
		if err := json.Unmarshal([]byte(value), into); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if isChain {
			s.Chains[chainName] = record
		}
	}
	if s.Version != saved.Version {
		return nil, fmt.Errorf("the state is of version %d, and this controller reads version %d", s.Version,
			saved.Version)
	}
	if m.floor != nil {
		s.Directory.Floor = *m.floor
	} else {
		s.Directory.Floor = s.FloorAbove()
	}
	return s, nil
}

// Change is a change of one key in etcd.
type Change struct {
	Name   string // name of the key, without the prefix
	Value  string
	Delete bool
	note   func(*Image)
}

// Made updates the image after a change was written to etcd.
func (m *Image) Made(c Change) { c.note(m) }

// firstParts lists the parts of the state whose values only grow. They prevent the reuse of
// KEY_IDs. They are written before keys are deleted, so a leader that ends in between leaves a safe
// state.
var firstParts = []string{"next", "retired"}

// Transactions returns the changes that turn an image into s, in transactions of at most size
// changes. The first change of each transaction writes the number of the leader to "revision".
// After each transaction, a controller can continue from the image's state. Call Written when all
// changes have been made.
func (m *Image) Transactions(s *saved.State, leader int64, size int) ([][]Change, error) {
	var err error
	encode := func(v any) string {
		b, failed := json.Marshal(v)
		err = cmp.Or(err, failed)
		return string(b)
	}
	var groups [][]Change
	// compare keys only if the directory has changed, because it changes seldom and can be large
	if s.Directory.Edit == 0 || s.Directory.Edit != m.edit {
		groups = m.keyChanges(s.Directory.Keys, encode)
	}
	wanted := map[string]string{}
	for name, v := range parts(s) {
		wanted[name] = encode(v)
	}
	for name, r := range s.Chains {
		wanted[chainsPrefix+name] = encode(r)
	}
	var first, last [][]Change
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if value := wanted[name]; m.others[name] != value {
			c := []Change{{Name: name, Value: value, note: func(m *Image) { m.others[name] = value }}}
			if slices.Contains(firstParts, name) {
				first = append(first, c)
			} else {
				last = append(last, c)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.others)) {
		if _, ok := wanted[name]; !ok && strings.HasPrefix(name, chainsPrefix) {
			last = append(last, []Change{{Name: name, Delete: true, note: func(m *Image) { delete(m.others, name) }}})
		}
	}
	// The chains' records are written last, so that they never refer to keys that the directory
	// does not have yet.
	out := append(pack(append(first, groups...), size-1), pack(last, size-1)...)
	floor := s.Directory.Floor
	if len(out) == 0 && (m.floor == nil || *m.floor != floor) {
		out = [][]Change{nil}
	}
	mark := Change{Name: revisionName, Value: encode(revision{leader, &floor}),
		note: func(m *Image) { m.floor = &floor }}
	for i, changes := range out {
		out[i] = append([]Change{mark}, changes...)
	}
	return out, err
}

// keyChanges returns the changes of the directory's keys, in groups. If a name or a slot passes
// from one key to another, the changes of both keys are in one group.
func (m *Image) keyChanges(keys []keyspace.Key, encode func(any) string) [][]Change {
	var all groups
	there := map[wire.Key]bool{}
	for _, k := range keys {
		there[k.ID] = true
		if old, ok := m.keys[k.ID]; !ok || old != k {
			c := Change{Name: keyName(k.ID), Value: encode(k), note: func(m *Image) { m.keys[k.ID] = k }}
			if ok {
				all.add(c, old, k)
			} else {
				all.add(c, k)
			}
		}
	}
	for id, old := range m.keys {
		if !there[id] {
			all.add(Change{Name: keyName(id), Delete: true, note: func(m *Image) { delete(m.keys, id) }}, old)
		}
	}
	return all.sorted()
}

// groups collects changes. Changes that touch the same name or slot form a group.
type groups struct {
	changes []Change
	// This slice is a union-find structure. It holds, for each change, another change of its group.
	// For the root of a group, it holds the change itself.
	of []int
	by map[string]int // for each name and slot, one of the changes that touch it
}

func (g *groups) root(i int) int {
	for g.of[i] != i {
		g.of[i] = g.of[g.of[i]]
		i = g.of[i]
	}
	return i
}

// add adds a change of a key. touched are the versions of the key before and after the change.
func (g *groups) add(c Change, touched ...keyspace.Key) {
	if g.by == nil {
		g.by = map[string]int{}
	}
	n := len(g.changes)
	g.changes, g.of = append(g.changes, c), append(g.of, n)
	for _, k := range touched {
		for _, what := range []string{"name " + k.FinalName(), fmt.Sprint("slot ", k.Slot)} {
			if other, ok := g.by[what]; ok {
				g.of[g.root(n)] = g.root(other)
			}
			g.by[what] = n
		}
	}
}

// sorted returns the groups. Deletions come first in each group. So two keys never have the same
// slot or name, even if a group is too large for one transaction.
func (g *groups) sorted() [][]Change {
	byRoot := map[int][]Change{}
	for i, c := range g.changes {
		r := g.root(i)
		byRoot[r] = append(byRoot[r], c)
	}
	var out [][]Change
	for _, group := range byRoot {
		slices.SortFunc(group, func(a, b Change) int {
			if a.Delete != b.Delete {
				return map[bool]int{true: -1, false: 1}[a.Delete]
			}
			return cmp.Compare(a.Name, b.Name)
		})
		out = append(out, group)
	}
	slices.SortFunc(out, func(a, b []Change) int { return cmp.Compare(a[0].Name, b[0].Name) })
	return out
}

// pack combines groups into transactions of at most size changes. It splits a group only if the
// group has more than size changes.
func pack(groups [][]Change, size int) (out [][]Change) {
	for _, g := range groups {
		for part := range slices.Chunk(g, size) {
			if n := len(out); n > 0 && len(out[n-1])+len(part) <= size {
				out[n-1] = append(out[n-1], part...)
			} else {
				out = append(out, slices.Clone(part))
			}
		}
	}
	return out
}

// Written notes that all changes for s have been made.
func (m *Image) Written(s *saved.State) { m.edit = s.Directory.Edit }

package watchrules

import (
	"bytes"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Reading is the result of a read.
type Reading struct {
	store.Item
	// ID is the KEY_ID in notifications of the key. 0: it has none.
	ID wire.Key
	// Offset is the difference between a version of the name and the version of the KEY_ID, which
	// notifications have.
	Offset wire.Version
	// Helped reports whether the network sends notifications of this key, so that reads can be
	// rare.
	Helped bool
}

// sameState reports whether two readings have the same state of a key, whatever its KEY_ID.
func (r *Reading) sameState(as *Reading) bool {
	return r.Found == as.Found && r.Version == as.Version && bytes.Equal(r.Value, as.Value)
}

// Config has the limits. All times count from the same moment.
type Config struct {
	Round    time.Duration // interval between reads of a key of which the network sends notifications
	Unhelped time.Duration // interval between reads of any other key
	Retry    time.Duration // pause after a failed read; it doubles each time, up to Unhelped
	Suspect  time.Duration // minimum time between two reads of all keys of a chain because of gaps in its notifications
	Reads    int           // maximum number of reads under way
}

// Watcher identifies a watcher. The caller chooses the number.
type Watcher uint64

// Ticket is a read that is under way.
type Ticket uint64

// Read is a read to be executed. It must be linearizable, so that it finds the newest version at
// its beginning or a newer one.
type Read struct {
	Key    store.Key
	Ticket Ticket
}

// Machine is the state of all watches of a node. It is not safe for concurrent use.
type Machine struct {
	config   Config
	begun    Ticket // the read that began last
	made     uint64 // number of keys ever made
	keys     map[store.Key]*key
	ids      map[wire.Key]*key
	chains   map[uint8]*chain
	watchers map[Watcher]*watcher
	reads    map[Ticket]*key // reads under way; nil: the key has no more followers
	due      schedule        // keys without a read under way, ordered by the time of the next read
	ready    []Watcher
	named    []wire.Key // KEY_IDs that were assigned to a key, or taken from it, since Named was last called
	counts   Counts
}

// key is a key with at least one follower.
type key struct {
	number uint64 // order of arrival: among reads due at the same time, the lowest number is first
	name   store.Key
	newest Reading
	known  bool // whether a read has ended
	// life counts how often the name was found under a different KEY_ID with a different state.
	// Versions belong to a KEY_ID. Reads of a key do not overlap, and each is linearizable. So a
	// later read finds no older state, whatever its version is.
	life uint64
	// version is the newest version found. A key that no longer exists is found at version 0. It is
	// reported at one above its last version, because the version of its removal was higher.
	version   wire.Version
	followers []*follower
	waiting   int // number of followers that wait for the end of a read that began after they came
	reading   bool
	began     time.Duration
	again     bool // another read must begin after the one under way
	failures  int
	due       time.Duration
	place     int // index in the schedule; -1: a read is under way
}

// follower is a watcher of a key.
type follower struct {
	watcher *watcher
	key     *key
	place   int    // index among the key's followers
	since   Ticket // the last read that had begun when the follower came; a later one is fresh enough to report
	fresh   bool
	has     bool // the watcher has a version: from after, or from a report
	after   wire.Version
	told    bool
	last    told
	pending bool
}

// told is the last report to a watcher.
type told struct {
	life    uint64
	version wire.Version
	found   bool
}

type watcher struct {
	id      Watcher
	follows map[store.Key]*follower
	pending []*follower // in the order in which they will be reported
	ready   bool
}

// chain is the state of a chain's notifications.
type chain struct {
	keys      map[*key]struct{}
	checked   time.Duration // when all keys were last scheduled for a read
	ever      bool
	suspected bool // all keys must be scheduled again when Suspect has passed
}

// Counts is the numbers of newer versions of known keys, by how they were found.
type Counts struct {
	Notified uint64 // by notifications
	Old      uint64 // by notifications without a newer version
	Read     uint64 // by reads of keys of which the network sends no notifications
	Repaired uint64 // by reads of other keys: the notification was lost or late
}

// Counts returns the counters since New.
func (m *Machine) Counts() Counts { return m.counts }

// New makes a machine without watchers.
func New(config Config) *Machine {
	return &Machine{config: config, keys: map[store.Key]*key{}, ids: map[wire.Key]*key{}, chains: map[uint8]*chain{},
		watchers: map[Watcher]*watcher{}, reads: map[Ticket]*key{}}
}

// Follow makes a watcher follow a key from now on. If has is set, after is the version that the
// watcher knows, which is not reported again.
func (m *Machine) Follow(now time.Duration, id Watcher, name store.Key, after wire.Version, has bool) {
	w := m.watchers[id]
	if w == nil {
		w = &watcher{id: id, follows: map[store.Key]*follower{}}
		m.watchers[id] = w
	}
	if w.follows[name] != nil {
		return
	}
	k := m.keys[name]
	if k == nil {
		m.made++
		k = &key{number: m.made, name: name, place: -1, due: now}
		m.keys[name] = k
		heap.Push(&m.due, k)
	}
	f := &follower{watcher: w, key: k, place: len(k.followers), since: m.begun, has: has, after: after}
	k.followers = append(k.followers, f)
	k.waiting++
	w.follows[name] = f
	m.readSoon(k, now)
}

// Unfollow ends a watcher's following of one key.
func (m *Machine) Unfollow(id Watcher, name store.Key) {
	w := m.watchers[id]
	if w == nil || w.follows[name] == nil {
		return
	}
	f := w.follows[name]
	delete(w.follows, name)
	f.pending = false // its remaining entries in the list are skipped
	k := f.key
	last := len(k.followers) - 1
	k.followers[f.place] = k.followers[last]
	k.followers[f.place].place = f.place
	k.followers[last] = nil
	k.followers = k.followers[:last]
	if !f.fresh {
		k.waiting--
	}
	if last == 0 {
		m.forget(k)
	}
}

// Leave removes a watcher.
func (m *Machine) Leave(id Watcher) {
	w := m.watchers[id]
	if w == nil {
		return
	}
	for name := range w.follows {
		m.Unfollow(id, name)
	}
	delete(m.watchers, id)
}

// forget drops a key without followers.
func (m *Machine) forget(k *key) {
	m.rename(k, 0)
	delete(m.keys, k.name)
	if k.place >= 0 {
		heap.Remove(&m.due, k.place)
	}
}

// Following returns the keys that a watcher follows.
func (m *Machine) Following(id Watcher) []store.Key {
	w := m.watchers[id]
	if w == nil {
		return nil
	}
	return slices.Collect(maps.Keys(w.follows))
}

// Followers returns the watchers of a key.
func (m *Machine) Followers(name store.Key) (out []Watcher) {
	if k := m.keys[name]; k != nil {
		for _, f := range k.followers {
			out = append(out, f.watcher.id)
		}
	}
	return out
}

// Told returns what a watcher knows about a key: whether it got a report, and whether that report
// had a value.
func (m *Machine) Told(id Watcher, name store.Key) (toldOf, found bool) {
	if w := m.watchers[id]; w != nil && w.follows[name] != nil {
		f := w.follows[name]
		return f.told && !f.pending, f.last.found
	}
	return false, false
}

// Keys returns the number of followed keys.
func (m *Machine) Keys() int { return len(m.keys) }

// IDs returns the known KEY_IDs of followed keys.
func (m *Machine) IDs() []wire.Key {
	out := make([]wire.Key, 0, len(m.ids))
	for id := range m.ids {
		out = append(out, id)
	}
	return out
}

// Named returns the KEY_IDs that have been assigned to a followed key, or taken from it, since the
// last call. The value is true if the KEY_ID belongs to a followed key now.
func (m *Machine) Named() map[wire.Key]bool {
	if len(m.named) == 0 {
		return nil
	}
	out := map[wire.Key]bool{}
	for _, id := range m.named {
		out[id] = m.ids[id] != nil
	}
	m.named = nil
	return out
}

// rename sets the present KEY_ID of a key.
func (m *Machine) rename(k *key, id wire.Key) {
	old := k.newest.ID
	k.newest.ID = id
	if old == id {
		return
	}
	if m.ids[old] == k {
		m.named = append(m.named, old)
		delete(m.ids, old)
		c := m.chains[old.Chain()]
		if delete(c.keys, k); len(c.keys) == 0 {
			delete(m.chains, old.Chain())
		}
	}
	if id == 0 {
		return
	}
	if other := m.ids[id]; other != nil {
		m.rename(other, 0) // the other name no longer has this KEY_ID, as its next read will show
	}
	m.ids[id] = k
	m.named = append(m.named, id)
	c := m.chains[id.Chain()]
	if c == nil {
		c = &chain{keys: map[*key]struct{}{}}
		m.chains[id.Chain()] = c
	}
	c.keys[k] = struct{}{}
}

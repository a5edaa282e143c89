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
	// ID is the KEY_ID by which notifications identify the key. It is 0 if the key has no KEY_ID.
	ID wire.Key
	// Offset is the difference between a version of the name and the version of the KEY_ID.
	// Notifications have the version of the KEY_ID.
	Offset wire.Version
	// Helped reports whether the network sends notifications for this key, so that it can be read
	// less often.
	Helped bool
}

// sameState reports whether two readings have the same state of a key. They may have different
// KEY_IDs.
func (r *Reading) sameState(as *Reading) bool {
	return r.Found == as.Found && r.Version == as.Version && bytes.Equal(r.Value, as.Value)
}

// Config has the intervals and limits of a machine.
type Config struct {
	Round    time.Duration // interval between reads of a key for which the network sends notifications
	Unhelped time.Duration // interval between reads of a key for which the network sends no notifications
	Retry    time.Duration // pause after a failed read; it doubles each time, up to Unhelped
	Suspect  time.Duration // minimum time between two reads of all keys of a chain because notifications are missing
	Reads    int           // maximum number of concurrent reads
}

// Watcher identifies a watcher. The caller chooses the number.
type Watcher uint64

// Ticket identifies a read under way. Later reads have greater tickets.
type Ticket uint64

// Read is a read that the caller must execute. The read must be linearizable, so that it finds the
// version that is the newest when the read begins, or a newer version.
type Read struct {
	Key    store.Key
	Ticket Ticket
}

// Machine has the state of all watches of a node. It is not safe for concurrent use.
type Machine struct {
	config   Config
	begun    Ticket // the read that was begun last
	made     uint64 // number of keys that were ever added
	keys     map[store.Key]*key
	ids      map[wire.Key]*key
	chains   map[uint8]*chain
	watchers map[Watcher]*watcher
	reads    map[Ticket]*key // keys of the reads under way; nil if the key has no more followers
	due      schedule        // keys without a read under way, ordered by the time when they must next be read
	ready    []Watcher
	named    []wire.Key // KEY_IDs that were assigned to a key, or removed from a key, since the last call of Named
	counts   Counts
}

// key is a key that has at least one follower.
type key struct {
	// number that counts up as keys are added; among reads that are due at the same time, the
	// lowest number comes first
	number uint64
	name   store.Key
	newest Reading
	known  bool // whether at least one read of the key has ended
	// life counts how often a read found the name with another KEY_ID and another state. Versions
	// can be compared only within one KEY_ID. Reads of a key do not overlap, and each read is
	// linearizable. So a later read never finds an older state, whatever the version is.
	life uint64
	// version is the newest version that was found. A read finds a key that no longer exists at
	// version 0. The machine reports such a key at its last version plus one, because the removal
	// had a higher version.
	version   wire.Version
	followers []*follower
	waiting   int // number of followers that wait for a read that begins after they came
	reading   bool
	began     time.Duration
	again     bool // whether another read must begin after the read under way
	failures  int
	due       time.Duration
	place     int // index in the schedule; -1 while a read is under way
}

// follower is one watcher of one key.
type follower struct {
	watcher *watcher
	key     *key
	place   int    // index among the followers of the key
	since   Ticket // the last read that had begun when the follower came; only a later read is new enough to report
	fresh   bool
	has     bool // whether the watcher already has a version, which is after or was reported
	after   wire.Version
	told    bool
	last    told
	pending bool
}

// told is the last report of a key to a watcher.
type told struct {
	life    uint64
	version wire.Version
	found   bool
}

type watcher struct {
	id      Watcher
	follows map[store.Key]*follower
	pending []*follower // followers with pending changes, in the order in which the changes will be reported
	ready   bool
}

// chain is the state of the notifications of a chain.
type chain struct {
	keys      map[*key]struct{}
	checked   time.Duration // time when reads of all keys were last scheduled
	ever      bool
	suspected bool // whether reads of all keys must be scheduled again when Suspect has passed
}

// Counts counts newer versions of known keys, by the way in which they were found.
type Counts struct {
	Notified uint64 // versions found by notifications
	Old      uint64 // notifications that had no newer version
	Read     uint64 // versions found by reads of keys for which the network sends no notifications
	Repaired uint64 // versions found by reads of other keys, whose notification was lost or late
}

// Counts returns the counters since New.
func (m *Machine) Counts() Counts { return m.counts }

// New makes a machine without watchers.
func New(config Config) *Machine {
	return &Machine{config: config, keys: map[store.Key]*key{}, ids: map[wire.Key]*key{}, chains: map[uint8]*chain{},
		watchers: map[Watcher]*watcher{}, reads: map[Ticket]*key{}}
}

// Follow makes a watcher follow a key from now on. If `has` is true, `after` is a version that the
// watcher already knows, which is not reported again.
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

// Unfollow makes a watcher no longer follow a key.
func (m *Machine) Unfollow(id Watcher, name store.Key) {
	w := m.watchers[id]
	if w == nil || w.follows[name] == nil {
		return
	}
	f := w.follows[name]
	delete(w.follows, name)
	f.pending = false // Take skips the entries of this follower that are still in the list
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

// forget removes a key that has no followers.
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

// Told returns what a watcher knows about a key. The results are whether the watcher got a report,
// and whether that report had a value.
func (m *Machine) Told(id Watcher, name store.Key) (toldOf, found bool) {
	if w := m.watchers[id]; w != nil && w.follows[name] != nil {
		f := w.follows[name]
		return f.told && !f.pending, f.last.found
	}
	return false, false
}

// Keys returns the number of followed keys.
func (m *Machine) Keys() int { return len(m.keys) }

// IDs returns the KEY_IDs of the followed keys, as far as they are known.
func (m *Machine) IDs() []wire.Key {
	out := make([]wire.Key, 0, len(m.ids))
	for id := range m.ids {
		out = append(out, id)
	}
	return out
}

// Named returns the KEY_IDs that were assigned to a followed key, or removed from it, since the
// last call of Named. The value is true if the KEY_ID belongs to a followed key now.
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

// rename sets the KEY_ID that a key has now.
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
		m.rename(other, 0) // the other name no longer has this KEY_ID, which its next read will confirm
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

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
	// ID is the KEY_ID in notifications of the key. 0: there is none.
	ID wire.Key
	// Offset is the difference between a version of the name and the version of the KEY_ID, which
	// notifications have.
	Offset wire.Version
	// Helped says that the network notifies of this key, so that rounds can be slow.
	Helped bool
}

// sameState says whether two readings say the same of a key, whatever its KEY_ID.
func (r *Reading) sameState(as *Reading) bool {
	return r.Found == as.Found && r.Version == as.Version && bytes.Equal(r.Value, as.Value)
}

// Config are the bounds. Times count from any moment, the same for all.
type Config struct {
	Round    time.Duration // interval at which a key is read that the network notifies of
	Unhelped time.Duration // and every other
	Retry    time.Duration // delay after a failed read; it doubles each time, up to Unhelped
	Suspect  time.Duration // between two reads of all keys of a chain, as gaps ask for them
	Reads    int           // under way at once
}

// Watcher identifies a watcher. The caller chooses the number.
type Watcher uint64

// Ticket is a read that is under way.
type Ticket uint64

// Read is a read to be done. It is linearizable, so that it finds the version that was the newest
// when it began.
type Read struct {
	Key    store.Key
	Ticket Ticket
}

// Machine is the state of all watches of a node. It is not safe for concurrent use.
type Machine struct {
	config   Config
	begun    Ticket // of the read that began last
	made     uint64 // keys, ever
	keys     map[store.Key]*key
	ids      map[wire.Key]*key
	chains   map[uint8]*chain
	watchers map[Watcher]*watcher
	reads    map[Ticket]*key // under way; nil: nobody follows the key any more
	due      schedule        // keys that are not being read, by when they are to be
	ready    []Watcher
	named    []wire.Key // KEY_IDs that have become, or have ceased to be, those of a key
	counts   Counts
}

// key is a key with at least one follower.
type key struct {
	number uint64 // order of arrival: of the reads that are due together, the lowest number is first
	name   store.Key
	newest Reading
	known  bool // a read has ended
	// life counts how often the name was found under another KEY_ID, with another state. Versions
	// are those of a KEY_ID. Reads of a key are one after the other, and each is linearizable, so
	// the state that a later one finds is not older, whatever its version.
	life uint64
	// version is the newest one as it was found. A key that no longer exists is found at version 0,
	// and reported at one above its last: the removal's was higher.
	version   wire.Version
	followers []*follower
	waiting   int // followers that wait for a read which has not begun, or not ended
	reading   bool
	began     time.Duration
	again     bool // there is a reason for a read that begins after the one under way
	failures  int
	due       time.Duration
	place     int // in the schedule; -1: it is being read
}

// follower is a watcher of a key.
type follower struct {
	watcher *watcher
	key     *key
	place   int    // among the key's followers
	since   Ticket // the read that had begun last when it came: a later one is fresh enough to report
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
	pending []*follower // in the order of reporting
	ready   bool
}

// chain is the state of a chain's notifications.
type chain struct {
	keys      map[*key]struct{}
	checked   time.Duration // when all keys were last made due
	ever      bool
	suspected bool // and are to be when Suspect has gone by
}

// Counts is how many newer versions were found, by how, of keys of which one was known.
type Counts struct {
	Notified uint64 // notifications
	Old      uint64 // ... of no newer version
	Read     uint64 // by reads of keys that the network does not notify of
	Repaired uint64 // by reads of keys that it notifies of: the notification was lost, or late
}

// Counts are those since New.
func (m *Machine) Counts() Counts { return m.counts }

// New makes a machine without watchers.
func New(config Config) *Machine {
	return &Machine{config: config, keys: map[store.Key]*key{}, ids: map[wire.Key]*key{}, chains: map[uint8]*chain{},
		watchers: map[Watcher]*watcher{}, reads: map[Ticket]*key{}}
}

// Follow makes a watcher follow a key from now on. after is the version that it knows, if any; that
// one is not reported again.
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

// Unfollow ends one key of a watcher.
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

// Leave ends all of a watcher.
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

// forget drops a key that nobody follows.
func (m *Machine) forget(k *key) {
	m.rename(k, 0)
	delete(m.keys, k.name)
	if k.place >= 0 {
		heap.Remove(&m.due, k.place)
	}
}

// Following are the keys that a watcher follows.
func (m *Machine) Following(id Watcher) []store.Key {
	w := m.watchers[id]
	if w == nil {
		return nil
	}
	return slices.Collect(maps.Keys(w.follows))
}

// Followers are the watchers of a key.
func (m *Machine) Followers(name store.Key) (out []Watcher) {
	if k := m.keys[name]; k != nil {
		for _, f := range k.followers {
			out = append(out, f.watcher.id)
		}
	}
	return out
}

// Told is what a watcher knows about a key: whether it got a report, and whether that had a value.
func (m *Machine) Told(id Watcher, name store.Key) (toldOf, found bool) {
	if w := m.watchers[id]; w != nil && w.follows[name] != nil {
		f := w.follows[name]
		return f.told && !f.pending, f.last.found
	}
	return false, false
}

// Keys is how many keys are followed.
func (m *Machine) Keys() int { return len(m.keys) }

// IDs are the KEY_IDs of the keys that are followed, as far as they are known.
func (m *Machine) IDs() []wire.Key {
	out := make([]wire.Key, 0, len(m.ids))
	for id := range m.ids {
		out = append(out, id)
	}
	return out
}

// Named returns the KEY_IDs for which it has changed, since the last call, whether they belong to a
// followed key: true if they do now.
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

// rename notes the KEY_ID that a key has now.
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
		m.rename(other, 0) // its name has lost it, as its own next read will say
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

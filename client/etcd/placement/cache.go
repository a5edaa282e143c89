package placement

import (
	"sync"

	"github.com/google/btree"
)

// Key is an etcd key and its placement.
type Key struct {
	Name string // name of the etcd key
	Entry
}

// Change is one change of the directory.
type Change struct {
	Key     string
	Entry   Entry // the new entry; its Mod is the revision of the change
	Deleted bool  // whether the entry was deleted or cannot be parsed
}

// Cache holds the directory as it was at a revision. It is safe for concurrent use. A Follower
// fills it, or another source of changes, such as a simulator.
type Cache struct {
	mu       sync.RWMutex
	keys     *btree.BTreeG[Key]
	revision int64
	changed  chan struct{}
}

// NewCache makes an empty cache at revision 0.
func NewCache() *Cache { return &Cache{keys: newTree(), changed: make(chan struct{})} }

func newTree() *btree.BTreeG[Key] {
	return btree.NewG(32, func(a, b Key) bool { return a.Name < b.Name })
}

// Reset replaces the content with the directory as it was at a revision. It does nothing if the
// cache has a newer revision.
func (c *Cache) Reset(revision int64, entries map[string]Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision <= c.revision {
		return
	}
	c.keys = newTree()
	for name, e := range entries {
		c.keys.ReplaceOrInsert(Key{name, e})
	}
	c.advance(revision)
}

// Apply applies changes, in their order. They must include every change that the cache does not
// know yet, up to the revision of the last change. Apply skips changes that the cache already
// knows.
func (c *Cache) Apply(changes []Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	revision := c.revision
	for _, ch := range changes {
		switch {
		case ch.Entry.Mod <= c.revision:
			continue
		case ch.Deleted:
			c.keys.Delete(Key{Name: ch.Key})
		default:
			c.keys.ReplaceOrInsert(Key{ch.Key, ch.Entry})
		}
		revision = max(revision, ch.Entry.Mod)
	}
	if revision > c.revision {
		c.advance(revision)
	}
}

// advance sets the revision, and wakes goroutines that wait for a change. The caller has locked mu.
func (c *Cache) advance(revision int64) {
	c.revision = revision
	close(c.changed)
	c.changed = make(chan struct{})
}

// Lookup finds where a key is placed.
func (c *Cache) Lookup(key string) (Entry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, ok := c.keys.Get(Key{Name: key})
	return k.Entry, ok
}

// LookupRange finds the placed keys in [key, end), in order. key and end are as in etcd's requests.
// An empty end selects only the key itself. An end of one zero byte selects all keys from key on.
func (c *Cache) LookupRange(key, end string) []Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var found []Key
	collect := func(k Key) bool {
		found = append(found, k)
		return true
	}
	switch end {
	case "":
		if k, ok := c.keys.Get(Key{Name: key}); ok {
			found = append(found, k)
		}
	case "\x00":
		c.keys.AscendGreaterOrEqual(Key{Name: key}, collect)
	default:
		c.keys.AscendRange(Key{Name: key}, Key{Name: end}, collect)
	}
	return found
}

// Len returns the number of placed keys.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.keys.Len()
}

// Revision returns the revision up to which the cache has every change.
func (c *Cache) Revision() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.revision
}

// Changed returns a channel that is closed at the next change after this call. To wait for a state,
// first get the channel, then check the state, and then wait.
func (c *Cache) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

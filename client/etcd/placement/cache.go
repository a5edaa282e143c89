package placement

import (
	"sync"

	"github.com/google/btree"
)

// Key is a key and where it is placed.
type Key struct {
	Name string // the etcd key
	Entry
}

// Change is one change of the directory.
type Change struct {
	Key     string
	Entry   Entry // Mod is the revision of the change
	Deleted bool  // the entry was deleted, or cannot be parsed
}

// Cache is the directory as of a revision. It is safe for concurrent use. A Follower fills it; so
// can other sources of changes, such as a simulator.
type Cache struct {
	mu       sync.RWMutex
	keys     *btree.BTreeG[Key]
	revision int64
	changed  chan struct{}
}

// NewCache makes a cache that is empty, as of revision 0.
func NewCache() *Cache { return &Cache{keys: newTree(), changed: make(chan struct{})} }

func newTree() *btree.BTreeG[Key] {
	return btree.NewG(32, func(a, b Key) bool { return a.Name < b.Name })
}

// Reset replaces the content by the directory as of a revision, unless a newer one is known.
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

// Apply applies changes, in their order. They must include every change up to the last one's
// revision that the cache does not know yet. Apply skips changes that the cache already knows.
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

// advance goes to a revision, and wakes waiters. The caller has locked mu.
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

// LookupRange finds the placed keys in [key, end), in order. key and end are as in etcd's requests:
// no end is the one key, an end of one zero byte is all keys from key on.
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

// Revision is the revision up to which every change is known.
func (c *Cache) Revision() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.revision
}

// Changed is closed at the next change after this call. To wait for something, first get the
// channel, then check, then wait.
func (c *Cache) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

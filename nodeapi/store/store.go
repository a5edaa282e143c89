// Package store is the interface between the node API's server and a store of keys by name.
// Coordination is built on it, too. The network's chains (nodeapi/keys) are such a store, and
// Memory is one for tests.
package store

import (
	"context"

	"github.com/netcraq/netcraq/api/wire"
)

// Key is a name within a namespace. Both are checked by the caller.
type Key struct {
	Namespace, Name string
}

// Item is a key's state at the last committed version.
type Item struct {
	Key     Key
	Found   bool // false: never written, or deleted; Version is 0, or the version of the deletion
	Value   []byte
	Version wire.Version
}

// Store keeps items by name. It is safe for concurrent use. Errors are *node.Error
// (api/nodeapi): CodeTooLarge, CodeNoRoom, CodeQuotaExceeded, CodePermissionDenied,
// CodeUnavailable, CodeTimeout (nothing was done) and CodeOutcomeUnknown (it may have been). A call
// ends with its context.
type Store interface {
	// Get reads a key. A key that was never created is not found, at version 0, and Get does not
	// create it. eventual: the last committed version of the nearest chain member.
	Get(ctx context.Context, key Key, eventual bool) (Item, error)
	// Put writes a value, and creates the key if it does not exist, unless ctx forbids that
	// (MayCreate).
	Put(ctx context.Context, key Key, value []byte) (wire.Version, error)
	// CompareAndSwap writes a value if the version is the expected one (0: it was never written).
	// Like Put, it may create the key. It returns the key's state after the call, and whether it
	// was written.
	CompareAndSwap(ctx context.Context, key Key, expected wire.Version, value []byte) (Item, bool, error)
	// CompareAndDelete removes the key's value if its version is the expected one.
	CompareAndDelete(ctx context.Context, key Key, expected wire.Version) (Item, bool, error)
	// Delete removes the key's value, whatever its version. Deleting a key that does not exist
	// succeeds.
	Delete(ctx context.Context, key Key) (wire.Version, error)
	// Transact writes several keys atomically if all compared keys have the expected versions.
	// Otherwise it writes nothing. Like Put, it may create keys. A store of volatile keys refuses
	// it (Volatile).
	Transact(ctx context.Context, t Transaction) (Transacted, error)
	// Transacts reports whether Transact accepts a key of a namespace that has this version.
	Transacts(namespace string, v wire.Version) bool
	// List returns the names that exist in a namespace and begin with prefix, sorted, with a value
	// or without.
	List(ctx context.Context, namespace, prefix string) ([]Key, error)
	// Page returns a part of what List returns. A name that exists throughout the call, and is in
	// the page's range, is in the page.
	Page(ctx context.Context, r Range) (Page, error)
	// Watch reports each key's newest version from now on until ctx ends: keys by name, which need
	// not exist yet, or all keys of a namespace with a prefix. The first report of each is its
	// present state. tell is called by one goroutine at a time. While it has not returned, newer
	// versions replace those that were not reported, and Overtaken counts the replaced ones. Watch
	// returns ctx's error, or why it ended.
	Watch(ctx context.Context, w Watch, tell func([]Change)) error
	// MaxValue returns the maximum size in bytes of a value of a new key in a namespace.
	MaxValue(namespace string) int
}

// Range selects the names of a page: the names of a namespace that begin with Prefix and are
// greater than After, in the order of their bytes.
type Range struct {
	Namespace, Prefix, After string
	Most                     int // maximum number of names, 1 or more
	// Bytes bounds the values of a page, if the store reads them together with the names: a page
	// ends with the name whose value reaches this size. 1 or more.
	Bytes int
}

// Page is the first names of a Range, in order.
type Page struct {
	Names []Listed
	More  bool // names may follow the last one. A page with More has at least one name.
}

// Listed is a name of a page.
type Listed struct {
	Item
	// Read reports whether Item is the key's state. All items of a page that are Read were read
	// atomically. Otherwise only Item.Key is set.
	Read bool
}

// Watch selects the keys to follow.
type Watch struct {
	Namespace string
	Keys      []string
	Prefix    *string // nil: only Keys
	// After has the versions that the caller knows. Only newer ones are reported.
	After map[string]wire.Version
}

// Change is a key's newest committed version, and the number of versions since the last report that
// were skipped.
type Change struct {
	Item
	Overtaken uint64
}

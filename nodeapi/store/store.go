// Package store defines the interface between the node API's server and a store of keys by name.
// Package coordination also uses this interface. For example, the network's chains (nodeapi/keys)
// are such a store, and Memory is a store for tests.
package store

import (
	"context"

	"github.com/netcraq/netcraq/api/wire"
)

// Key is a name within a namespace. The caller must check that both are valid.
type Key struct {
	Namespace, Name string
}

// Item is the state of a key at its last committed version.
type Item struct {
	Key Key
	// false if the key was never written or was deleted; Version is then 0 or the version of the
	// deletion
	Found   bool
	Value   []byte
	Version wire.Version
}

// Store stores items by name. It is safe for concurrent use. Errors are *node.Error (api/nodeapi).
// Their code is CodeTooLarge, CodeNoRoom, CodeQuotaExceeded, CodePermissionDenied, CodeUnavailable
// or CodeTimeout if nothing was done. It is CodeOutcomeUnknown if the call may have been executed.
// A call ends when its context ends.
type Store interface {
	// Get reads a key. A key that was never created is not found and has version 0, and Get does
	// not create it. If `eventual` is true, Get may return the last committed version of the
	// nearest chain member.
	Get(ctx context.Context, key Key, eventual bool) (Item, error)
	// Put writes a value. It creates the key if the key does not exist, unless ctx forbids that
	// (MayCreate).
	Put(ctx context.Context, key Key, value []byte) (wire.Version, error)
	// CompareAndSwap writes a value if the key has the expected version. The version 0 means that
	// the key was never written. Like Put, it may create the key. It returns the state of the key
	// after the call, and whether the value was written.
	CompareAndSwap(ctx context.Context, key Key, expected wire.Version, value []byte) (Item, bool, error)
	// CompareAndDelete removes the key's value if the key has the expected version.
	CompareAndDelete(ctx context.Context, key Key, expected wire.Version) (Item, bool, error)
	// Delete removes the key's value, whatever the version of the key is. It also succeeds if the
	// key does not exist.
	Delete(ctx context.Context, key Key) (wire.Version, error)
	// Transact writes several keys atomically if all compared keys have the expected versions.
	// Otherwise it writes nothing. Like Put, it may create keys. A store of volatile keys refuses
	// transactions (Volatile).
	Transact(ctx context.Context, t Transaction) (Transacted, error)
	// Transacts reports whether Transact accepts a key of a namespace that has version v.
	Transacts(namespace string, v wire.Version) bool
	// List returns the existing names of a namespace that begin with prefix, sorted. It includes
	// names whose key has no value.
	List(ctx context.Context, namespace, prefix string) ([]Key, error)
	// Page returns a part of the names that List would return. A name that exists during the whole
	// call, and is in the page's range, is in the page.
	Page(ctx context.Context, r Range) (Page, error)
	// Watch reports the newest versions of keys from now on, until ctx ends. It watches keys by
	// name, which need not exist yet, or all keys of a namespace with a prefix. The first report of
	// a key is its present state. Watch calls tell from one goroutine at a time. While tell runs,
	// newer versions replace versions that were not reported yet, and Overtaken counts the replaced
	// versions. Watch returns ctx's error, or the reason why it ended.
	Watch(ctx context.Context, w Watch, tell func([]Change)) error
	// MaxValue returns the maximum length of the value of a new key in a namespace, in bytes.
	MaxValue(namespace string) int
}

// Range selects the names for a page. They are the names of a namespace that begin with Prefix and
// are greater than After, sorted by their bytes.
type Range struct {
	Namespace, Prefix, After string
	Most                     int // maximum number of names, at least 1
	// Bytes limits the size of the values in a page, if the store reads values together with names.
	// The page ends with the name whose value reaches this size. It is at least 1.
	Bytes int
}

// Page has the first names of a Range, in order.
type Page struct {
	Names []Listed
	More  bool // whether further names may follow; if set, the page has at least one name
}

// Listed is a name in a page.
type Listed struct {
	Item
	// Read reports whether Item has the state of the key. All items of a page with Read were read
	// atomically. If Read is not set, Item has only the Key.
	Read bool
}

// Watch selects the keys that a watch follows.
type Watch struct {
	Namespace string
	Keys      []string
	Prefix    *string // follow all keys with this prefix; nil means that only Keys are followed
	// After has the versions that the caller already knows. Only newer versions are reported.
	After map[string]wire.Version
}

// Change has the newest committed version of a key, and the number of versions that were skipped
// since the last report.
type Change struct {
	Item
	Overtaken uint64
}

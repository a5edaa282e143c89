package keys

import "github.com/netcraq/netcraq/api/wire"

// Push reports commits when they happen. For example, a node's server is a Push if the node's
// switch sends acknowledgements to it. A Push promises only that its reports are true. The periodic
// reads of watches find the commits that it misses.
type Push interface {
	// Follow calls told for commits of a KEY_ID, soon after the call of Follow, until stop is
	// called. Several goroutines may call told, and told must not block. Follow does not call told
	// before it returns.
	Follow(key wire.Key, told func(News)) (stop func())
	// Helps reports whether told is currently called for the commits of a KEY_ID, as far as the
	// Push knows. If so, the key can be read less often. When the result of Helps changes, told is
	// called with version 0.
	Helps(key wire.Key) bool
}

// News reports a commit of a KEY_ID.
type News struct {
	Key wire.Key
	// Version is the version of the KEY_ID in the switches. The value 0 means that there was some
	// commit, so the key must be read. In this case the other fields are not set.
	Version wire.Version
	Found   bool
	Value   []byte // the committed value, which the receiver may retain
}

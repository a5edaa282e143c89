package keys

import "github.com/netcraq/netcraq/api/wire"

// Push reports commits as they happen; for example, the server of a node whose switch accepts
// acknowledgements is a Push. It promises only that its reports are true; the watches' periodic
// reads find what it misses.
type Push interface {
	// Follow calls told for commits of a KEY_ID, beginning soon, until stop is called. told may be
	// called by several goroutines, and must not block. Follow does not call it before it returns.
	Follow(key wire.Key, told func(News)) (stop func())
	// Helps reports whether told is currently called for a KEY_ID, as far as is known. If so, the
	// key can be read less often. When that changes, told is called with version 0.
	Helps(key wire.Key) bool
}

// News is a commit of a KEY_ID.
type News struct {
	Key wire.Key
	// Version is the KEY_ID's version in the switches. 0: there was some commit, which must be
	// read; the other fields are then not set.
	Version wire.Version
	Found   bool
	Value   []byte // the receiver may retain it
}

package keys

import "github.com/netcraq/netcraq/api/wire"

// Push reports commits as they happen; for example, the server of a node whose switch accepts
// acknowledgements is a Push. It promises only that its reports are true; the watches' periodic
// reads find what it misses.
type Push interface {
	// Follow calls told for commits of a KEY_ID from some moment soon, until stop is called. told
	// may be called by several goroutines, and must not block. Follow does not call it before it
	// returns.
	Follow(key wire.Key, told func(News)) (stop func())
	// Helps says whether told is called for a KEY_ID at present, as far as is known, so that it can
	// be read less often. When that changes, told is called with version 0.
	Helps(key wire.Key) bool
}

// News is a commit of a KEY_ID.
type News struct {
	Key wire.Key
	// Version is the KEY_ID's, as the switches have it. 0: something was committed, and it has to
	// be read; the rest is not set then.
	Version wire.Version
	Found   bool
	Value   []byte // the receiver may keep it
}

package guarded

import (
	"context"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// Slots are the slots in the network. Each call ends by itself within a few milliseconds, whatever
// its context. Errors are those of client/calls. ErrNotFound: the key has no slot, or its slot was
// emptied before removal. ErrCASFailed: the slot has another version than the expected one, and the
// CAS will not be executed. Any other error counts as silence: nothing is known about the slot, and
// a CAS may have been executed or may still be.
type Slots interface {
	// Read reads a slot, linearizably.
	Read(ctx context.Context, id wire.Key) (value []byte, version wire.Version, err error)
	// ReadNow reads a slot as Read does, if that takes no waiting. ok is false if it would wait, if
	// the slot may be silent, or if Read would return an error.
	ReadNow(id wire.Key) (value []byte, version wire.Version, ok bool)
	// Silent reports whether a slot has not answered lately. A caller that can ask etcd instead
	// does so without waiting. From time to time Silent returns false to one caller, so that this
	// caller tries the slot again.
	Silent(id wire.Key) bool
	// CAS replaces a slot's cell if its version is the expected one, and returns the new version. A
	// copy of the CAS may be executed later, if the slot still has the expected version then.
	CAS(ctx context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error)
	// Size is the capacity of a slot in bytes.
	Size(id wire.Key) int
}

// Directory says which keys are placed; see placement.Cache and placement.Follower.
type Directory interface {
	Lookup(key string) (placement.Entry, bool)
	LookupRange(key, end string) []placement.Key
	Revision() int64
	Refresh(ctx context.Context) error
	Changed() <-chan struct{}
}

// Sessions provides this gateway's sessions in etcd, one at a time. A session is a key that exists
// while the gateway is alive.
type Sessions interface {
	// Current is the lease of the session. It waits for one until ctx is done.
	Current(ctx context.Context) (lease int64, err error)
	// Key is the name of a session's key in etcd, of any gateway.
	Key(lease int64) string
	// GiveUp ends a session, if it is the current one. From then on Current returns a new session,
	// or waits for one; the key of the old session is deleted as soon as etcd answers.
	GiveUp(lease int64)
}

// Newest is the newest revision of etcd's store that this gateway has seen in an answer from etcd.
// The content of slots never raises it.
type Newest interface {
	Revision() int64
	Saw(revision int64)
}

// Codec encodes cells as bytes; see slotcodec.Library.
type Codec interface {
	Codec() *slotcodec.Codec
	Want(ctx context.Context, version uint32) (bool, error)
}

// Seals holds the keys with which cells are sealed; see seal.Keys.
type Seals interface {
	// Ring returns the known keys; never nil.
	Ring() *seal.Ring
	// Want asks etcd for a key, with a request that begins after the call, and reports whether the
	// key is then known.
	Want(ctx context.Context, id uint32) (bool, error)
}

// Runtime provides a server's waiting and background work. A server waits only inside calls of the
// Runtime, of Slots and of the other ports.
type Runtime interface {
	// Go runs work concurrently with the caller.
	Go(work func())
	// Wait waits until ch is closed, and reports whether it is. It returns earlier if ctx is done,
	// or after d if d is not 0. A nil ch is never closed.
	Wait(ctx context.Context, ch <-chan struct{}, d time.Duration) bool
	// Within returns a context that ends with ctx or, with rpctypes.ErrStopped as its cause, when
	// the service closes.
	Within(ctx context.Context) (context.Context, context.CancelFunc)
	// Detach returns the context for work that continues when the caller's ctx is done. That
	// context has ctx's values and its own time limit.
	Detach(ctx context.Context) (context.Context, context.CancelFunc)
	// Limit returns a context for an attempt that may take this long, and can be repeated after it.
	Limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Last returns the context for work that continues without a time limit when the caller's ctx
	// is done.
	Last(ctx context.Context) (context.Context, context.CancelFunc)
	// Jitter is a random number in [0, 1).
	Jitter() float64
}

// Observer gets events; see hotkeys.Metrics.
type Observer interface {
	Hit()                       // a read was answered by the network
	Miss(reason string)         // a read of a placed key was answered by etcd
	Forwarded(reason string)    // etcd answered a read without the network being asked
	GuardWait(d time.Duration)  // a write waited for another gateway's guard
	GuardedWrite(result string) // a write of placed keys ended
	// a slot has a cell that no gateway has written; called once for each version of the slot
	Forged()
}

// Evictor takes keys out of the network. Each request that finds the fault may call it, so it must
// limit the cost of repeated calls.
type Evictor interface {
	Evict(key placement.Key, fault placement.Fault, reason string)
}

// nobody is an Observer and Evictor that does nothing.
type nobody struct{}

func (nobody) Hit()                                         {}
func (nobody) Miss(string)                                  {}
func (nobody) Forwarded(string)                             {}
func (nobody) GuardWait(time.Duration)                      {}
func (nobody) GuardedWrite(string)                          {}
func (nobody) Forged()                                      {}
func (nobody) Evict(placement.Key, placement.Fault, string) {}

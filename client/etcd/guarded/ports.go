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
// emptied to be taken away. ErrCASFailed: the slot has another version than the expected one, and
// the CAS will not be executed. Any other is silence: of a read, nothing is known; of a CAS, not
// even whether it was, or will be, executed.
type Slots interface {
	// Read reads a slot, linearizably.
	Read(ctx context.Context, id wire.Key) (value []byte, version wire.Version, err error)
	// ReadNow reads a slot as Read does, if that takes no waiting. ok is false if it would wait, if
	// the slot may be silent, or if Read would return an error.
	ReadNow(id wire.Key) (value []byte, version wire.Version, ok bool)
	// Silent says whether a slot has not answered lately. A caller that can ask etcd instead then
	// does that, and does not wait. Now and then Silent returns false to one caller, so that it
	// tries the slot again.
	Silent(id wire.Key) bool
	// CAS replaces a slot's cell if its version is the expected one, and returns the new version. A
	// copy of it may be executed later, if the expected version is still there then.
	CAS(ctx context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error)
	// Size is how many bytes a slot holds.
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

// Sessions are this gateway's sessions in etcd, one at a time: a key that is there while the
// gateway lives.
type Sessions interface {
	// Current is the lease of the session. It waits for one until ctx is done.
	Current(ctx context.Context) (lease int64, err error)
	// Key is the name of a session's key in etcd, of any gateway.
	Key(lease int64) string
	// GiveUp ends a session, if it is the current one. From then on Current returns another one, or
	// waits for it; the key of the old session is deleted as soon as etcd answers.
	GiveUp(lease int64)
}

// Newest is the newest revision of etcd's store that this gateway has seen in an answer of etcd's:
// nothing that a slot says raises it.
type Newest interface {
	Revision() int64
	Saw(revision int64)
}

// Codec makes bytes of cells; see slotcodec.Library.
type Codec interface {
	Codec() *slotcodec.Codec
	Want(ctx context.Context, version uint32) (bool, error)
}

// Seals are the keys that cells are sealed with; see seal.Keys.
type Seals interface {
	// Ring is those that are known; never nil.
	Ring() *seal.Ring
	// Want says whether a key is known after etcd was asked; the question begins after the call.
	Want(ctx context.Context, id uint32) (bool, error)
}

// Runtime provides a server's waiting and background work. Between two calls of a Runtime, of Slots
// and so on, a server never waits for anything.
type Runtime interface {
	// Go does work alongside the caller's.
	Go(work func())
	// Wait waits until ch is closed, and says whether it is. It ends before that when ctx is done,
	// and after d where d is not 0. A nil ch is never closed.
	Wait(ctx context.Context, ch <-chan struct{}, d time.Duration) bool
	// Within returns a context that ends with ctx or, with rpctypes.ErrStopped as its cause, when
	// the service closes.
	Within(ctx context.Context) (context.Context, context.CancelFunc)
	// Detach returns the context for work that continues when the caller's ctx is done: with its
	// values, and a limit of its own.
	Detach(ctx context.Context) (context.Context, context.CancelFunc)
	// Limit returns a context for an attempt that may take this long, and can be repeated after it.
	Limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Last returns the context for work that continues as long as it takes when the caller's ctx is
	// done.
	Last(ctx context.Context) (context.Context, context.CancelFunc)
	// Jitter is a random number from 0 to below 1.
	Jitter() float64
}

// Observer gets events; see hotkeys.Metrics.
type Observer interface {
	Hit()                       // a read was answered by the network
	Miss(reason string)         // a read of a placed key was answered by etcd
	Forwarded(reason string)    // a read for which the network was not asked
	GuardWait(d time.Duration)  // a write waited for another's guard
	GuardedWrite(result string) // a write of placed keys ended
	Forged()                    // a slot has, in one more version, a cell that no gateway has written
}

// Evictor takes keys out of the network. It may be called again and again, by each request that
// finds the fault, and bounds the cost of that.
type Evictor interface {
	Evict(key placement.Key, fault placement.Fault, reason string)
}

// nobody observes and evicts nothing.
type nobody struct{}

func (nobody) Hit()                                         {}
func (nobody) Miss(string)                                  {}
func (nobody) Forwarded(string)                             {}
func (nobody) GuardWait(time.Duration)                      {}
func (nobody) GuardedWrite(string)                          {}
func (nobody) Forged()                                      {}
func (nobody) Evict(placement.Key, placement.Fault, string) {}

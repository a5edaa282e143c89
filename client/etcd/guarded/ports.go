package guarded

import (
	"context"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// Slots gives access to the slots in the switches. Each call ends by itself within a few
// milliseconds, whatever its context. Errors are those of client/calls. ErrNotFound means that the
// key has no slot, or that its slot was emptied before removal. ErrCASFailed means that the slot
// does not have the expected version, and that the CAS will not be executed. Any other error says
// nothing about the slot. A CAS with such an error may have been executed, or may still be
// executed.
type Slots interface {
	// Read is a linearizable read of a slot.
	Read(ctx context.Context, id wire.Key) (value []byte, version wire.Version, err error)
	// ReadNow reads a slot as Read does, if that needs no waiting. ok is false if it would have to
	// wait, if the slot may not answer, or if Read would return an error.
	ReadNow(id wire.Key) (value []byte, version wire.Version, ok bool)
	// Silent reports whether a slot has recently failed to answer. If so, a caller that can ask
	// etcd instead should do that at once. From time to time Silent returns false to one caller, so
	// that this caller tries the slot again.
	Silent(id wire.Key) bool
	// CAS replaces a slot's cell if its version is the expected one, and returns the new version. A
	// copy of the CAS may be executed later, if the slot then still has the expected version.
	CAS(ctx context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error)
	// Size returns the capacity of a slot in bytes.
	Size(id wire.Key) int
}

// Directory says which keys are placed. placement.Cache and placement.Follower implement it.
type Directory interface {
	Lookup(key string) (placement.Entry, bool)
	LookupRange(key, end string) []placement.Key
	Revision() int64
	Refresh(ctx context.Context) error
	Changed() <-chan struct{}
}

// Sessions provides this gateway's sessions in etcd. The gateway has at most one session at a time.
// A session is a key that exists while the gateway is alive.
type Sessions interface {
	// Current returns the lease of the session. If there is no session, it waits for one until ctx
	// is done.
	Current(ctx context.Context) (lease int64, err error)
	// Key returns the name of the key in etcd that represents a session. The session may belong to
	// any gateway.
	Key(lease int64) string
	// GiveUp ends a session, if it is the current one. From then on, Current returns a new session,
	// or waits for a new session. The key of the old session is deleted as soon as etcd answers.
	GiveUp(lease int64)
}

// Newest records the newest revision of etcd's store that this gateway has seen in an answer from
// etcd. The content of slots never raises this revision.
type Newest interface {
	Revision() int64
	Saw(revision int64)
}

// Codec encodes cells as bytes. slotcodec.Library implements it.
type Codec interface {
	Codec() *slotcodec.Codec
	Want(ctx context.Context, version uint32) (bool, error)
}

// Seals holds the keys with which cells are sealed. seal.Keys implements it.
type Seals interface {
	// Ring returns the known keys. It never returns nil.
	Ring() *seal.Ring
	// Want asks etcd for a key, and reports whether the key is then known. The request to etcd
	// begins after the call of Want.
	Want(ctx context.Context, id uint32) (bool, error)
}

// Runtime provides the waiting and the background work of a server. A server waits only inside
// calls of the Runtime, of Slots and of the other interfaces in this file.
type Runtime interface {
	// Go runs work concurrently with the caller.
	Go(work func())
	// Wait waits until ch is closed, and reports whether ch is closed. It returns earlier if ctx is
	// done, or after d if d is not 0. A nil ch counts as never closed.
	Wait(ctx context.Context, ch <-chan struct{}, d time.Duration) bool
	// Within returns a context that ends with ctx. It also ends when the service closes, with
	// rpctypes.ErrStopped as its cause.
	Within(ctx context.Context) (context.Context, context.CancelFunc)
	// Detach returns the context for work that continues when the caller's ctx is done. That
	// context has ctx's values and its own time limit.
	Detach(ctx context.Context) (context.Context, context.CancelFunc)
	// Limit returns a context for one attempt, which may take the time d. The caller may repeat the
	// attempt.
	Limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Last returns the context for work that continues without a time limit when the caller's ctx
	// is done.
	Last(ctx context.Context) (context.Context, context.CancelFunc)
	// Jitter returns a random number in [0, 1).
	Jitter() float64
}

// Observer receives events. hotkeys.Metrics implements it.
type Observer interface {
	Hit()                       // the switches answered a read
	Miss(reason string)         // etcd answered a read of a placed key, for this reason
	Forwarded(reason string)    // etcd answered a read, and the switches were not asked
	GuardWait(d time.Duration)  // a write waited for another gateway's guard
	GuardedWrite(result string) // a write of placed keys ended, with this result
	// Forged reports a slot with a cell that no gateway has written. It is called once for each
	// version of the slot.
	Forged()
}

// Evictor takes keys out of the switches. Every request that finds a faulty slot may call it, so it
// must limit the cost of repeated calls.
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

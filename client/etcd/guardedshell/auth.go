package guardedshell

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/client/etcd/etcderrors"
)

// How often etcd is asked whether it lets everybody read, for how long each time, and for how long
// its last answer holds. It cannot begin to look at who asks while it does not answer anybody; a
// gateway that is cut off from it does not see that it does, so the answer holds for a short time
// only: for as long as it takes etcd to have a new leader, and to answer the next question.
const (
	authEvery = 250 * time.Millisecond
	authWait  = time.Second
	AuthHolds = 3 * time.Second // exported for tests of what stands on it
)

// begin is the time that until is counted from, on a clock that does not stand still.
var begin = clock.Now()

// Everybody knows whether etcd lets everybody read (its authentication is not enabled): then, and
// only then, may a read be answered by the network, which does not look at who asks. It finds out
// by reading as nobody.
type Everybody struct {
	newest interface{ Saw(revision int64) }
	prefix string
	now    func() time.Duration // since begin, or by a test's clock
	ctx    context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup

	until atomic.Int64 // a time since begin, in nanoseconds

	mu       sync.Mutex    // held while until is changed
	closed   time.Duration // questions that were asked before that are not heeded
	enabling int           // requests under way that may enable etcd's authentication
}

// NewEverybody begins to ask etcd, until Close. The client must be one without a user's name.
// newest is told the revision in each answer, so that a gateway that answers everything from the
// network still hears of the store's.
func NewEverybody(client clientv3.KV, prefix string, newest interface{ Saw(revision int64) }) *Everybody {
	return newEverybody(client, prefix, newest, func() time.Duration { return clock.Since(begin) })
}

func newEverybody(client clientv3.KV, prefix string, newest interface{ Saw(revision int64) },
	now func() time.Duration) *Everybody {
	e := &Everybody{newest: newest, prefix: prefix, now: now}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.done.Go(func() {
		for e.ctx.Err() == nil {
			e.done.Go(func() { e.ask(client) }) // one that has no answer keeps no other waiting
			select {
			case <-e.ctx.Done():
			case <-time.After(authEvery):
			}
		}
	})
	return e
}

// Close ends asking.
func (e *Everybody) Close() {
	e.stop()
	e.done.Wait()
	e.close()
}

// Open says whether everybody may read: guarded.Config.Open.
func (e *Everybody) Open() bool { return int64(e.now()) < e.until.Load() }

// Enabling passes on a request that may enable etcd's authentication. When it has succeeded, no
// gateway answers a read from the network any more: this one has stopped before, and is waited for
// those that etcd cannot tell.
func (e *Everybody) Enabling(ctx context.Context, pass func() error) error {
	e.mu.Lock()
	e.enabling++
	e.until.Store(0)
	e.mu.Unlock()
	err := pass()
	e.close()
	e.mu.Lock()
	e.enabling--
	e.mu.Unlock()
	if err == nil {
		select {
		case <-time.After(clock.OutlastsSlewed(AuthHolds)):
		case <-ctx.Done():
		case <-e.ctx.Done():
		}
	}
	return err
}

// close has reads answered by etcd until it has been asked anew.
func (e *Everybody) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until.Store(0)
	e.closed = e.now()
}

func (e *Everybody) ask(client clientv3.KV) {
	ctx, cancel := context.WithTimeout(e.ctx, authWait)
	defer cancel()
	asked := e.now()
	r, err := client.Get(ctx, e.prefix+"everybody", clientv3.WithCountOnly())
	switch {
	case err == nil:
		e.newest.Saw(r.Header.Revision)
		e.mu.Lock()
		defer e.mu.Unlock()
		if asked > e.closed && e.enabling == 0 {
			e.until.Store(max(e.until.Load(), int64(asked+AuthHolds)))
		}
	case etcderrors.Definite(err): // etcd has answered, and does not let everybody read
		e.close()
	}
}

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

// authEvery is how often the gateway asks etcd whether everybody may read. authWait bounds one
// such request. AuthHolds is how long the last answer is valid. While etcd answers no requests, it
// cannot start to check identities. But a gateway that is cut off from etcd would not see such a
// change, so an answer is valid only for a short time. That time is enough for etcd to elect a new
// leader and to answer the next question.
const (
	authEvery = 250 * time.Millisecond
	authWait  = time.Second
	AuthHolds = 3 * time.Second // exported for tests of code that uses this package
)

// begin is the time from which the field `until` counts. Its clock does not stop while the machine
// sleeps.
var begin = clock.Now()

// Everybody checks whether etcd lets everybody read, which it does while its authentication is
// disabled. Only then may slots answer reads, because the switches do not check the reader's
// identity. Everybody checks this by reading from etcd without a user.
type Everybody struct {
	newest interface{ Saw(revision int64) }
	prefix string
	// returns the time since begin; tests replace it with their own clock
	now  func() time.Duration
	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	// the time at which the last answer ceases to be valid, in nanoseconds since begin
	until atomic.Int64

	mu       sync.Mutex    // held while the field `until` is changed
	closed   time.Duration // answers to questions that were asked before this time are ignored
	enabling int           // number of requests under way that may enable etcd's authentication
}

// NewEverybody asks etcd repeatedly until Close. The client must not have a user name. newest gets
// the revision in each answer. So a gateway learns the store's revision even if slots answer all of
// its reads.
func NewEverybody(client clientv3.KV, prefix string, newest interface{ Saw(revision int64) }) *Everybody {
	return newEverybody(client, prefix, newest, func() time.Duration { return clock.Since(begin) })
}

func newEverybody(client clientv3.KV, prefix string, newest interface{ Saw(revision int64) },
	now func() time.Duration) *Everybody {
	e := &Everybody{newest: newest, prefix: prefix, now: now}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.done.Go(func() {
		for e.ctx.Err() == nil {
			// each request has its own goroutine, so a request without an answer does not delay the
			// next one
			e.done.Go(func() { e.ask(client) })
			select {
			case <-e.ctx.Done():
			case <-time.After(authEvery):
			}
		}
	})
	return e
}

// Close stops asking.
func (e *Everybody) Close() {
	e.stop()
	e.done.Wait()
	e.close()
}

// Open reports whether everybody may read. It is used as guarded.Config.Open.
func (e *Everybody) Open() bool { return int64(e.now()) < e.until.Load() }

// Enabling passes on a request that may enable etcd's authentication. After the request has
// succeeded, no gateway may answer reads from slots. So this gateway stops before it passes the
// request on. Enabling then waits until gateways that cannot reach etcd have also stopped.
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

// close makes reads go to etcd until etcd has been asked again.
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
	case etcderrors.Definite(err): // etcd has answered that it does not let everybody read.
		e.close()
	}
}

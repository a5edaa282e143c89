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

// How often the gateway asks etcd whether everybody may read, the timeout of this request, and how
// long the last answer is valid. While etcd answers no one, it cannot start to check identities. A
// gateway that is cut off from etcd does not see such a change, so the answer holds only for a
// short time: as long as etcd takes to elect a new leader and to answer the next question.
const (
	authEvery = 250 * time.Millisecond
	authWait  = time.Second
	AuthHolds = 3 * time.Second // exported for tests of code that uses it
)

// begin is the time that until is counted from, on a clock that does not stand still.
var begin = clock.Now()

// Everybody checks whether etcd lets everybody read, which it does while its authentication is
// disabled. Only then may the network answer a read, because the network does not check the
// reader's identity. Everybody checks this by reading without a user.
type Everybody struct {
	newest interface{ Saw(revision int64) }
	prefix string
	now    func() time.Duration // time since begin, or of a test's clock
	ctx    context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup

	until atomic.Int64 // a time since begin, in nanoseconds

	mu       sync.Mutex    // held while until is changed
	closed   time.Duration // answers to questions from before this time are ignored
	enabling int           // requests under way that may enable etcd's authentication
}

// NewEverybody begins to ask etcd, until Close. The client must be one without a user's name.
// newest gets the revision in each answer, so that a gateway that answers everything from the
// network still learns the store's revision.
func NewEverybody(client clientv3.KV, prefix string, newest interface{ Saw(revision int64) }) *Everybody {
	return newEverybody(client, prefix, newest, func() time.Duration { return clock.Since(begin) })
}

func newEverybody(client clientv3.KV, prefix string, newest interface{ Saw(revision int64) },
	now func() time.Duration) *Everybody {
	e := &Everybody{newest: newest, prefix: prefix, now: now}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.done.Go(func() {
		for e.ctx.Err() == nil {
			// a request without an answer does not delay the next one
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

// Open reports whether everybody may read: guarded.Config.Open.
func (e *Everybody) Open() bool { return int64(e.now()) < e.until.Load() }

// Enabling passes on a request that may enable etcd's authentication. After it has succeeded, no
// gateway answers reads from the network. This gateway stops before the request. Enabling waits
// until gateways that cannot reach etcd have stopped, too.
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
	case etcderrors.Definite(err): // etcd has answered, and does not let everybody read
		e.close()
	}
}

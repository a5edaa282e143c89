package guarded

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/internal/boottime"
)

// How often etcd is asked whether it lets everybody read, and for how long its last answer holds. It cannot begin to look at who asks while it does not answer anybody; a gateway that is cut off
// from it does not see that it does, so the answer holds for a short time only.
const (
	authEvery = 250 * time.Millisecond
	authHolds = 5 * time.Second
)

// Everybody knows whether etcd lets everybody read (its authentication is not enabled): then, and only then, may a read be answered by the network, which does not look at who asks. It finds out by
// reading as nobody.
type Everybody struct {
	until  atomic.Int64 // in nanoseconds since begin
	newest Newest
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// NewEverybody begins to ask etcd, until Close. The client must be one without a user's name. newest is told the revision in each answer, so that a gateway that answers everything from the network
// still hears of the store's.
func NewEverybody(client *clientv3.Client, prefix string, newest Newest) *Everybody {
	ctx, stop := context.WithCancel(context.Background())
	e := &Everybody{stop: stop, newest: newest}
	e.done.Go(func() {
		for ctx.Err() == nil {
			e.ask(ctx, client, prefix)
			select {
			case <-ctx.Done():
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
	e.until.Store(0)
}

// Open says whether everybody may read: Config.Open.
func (e *Everybody) Open() bool { return int64(boottime.Since(begin)) < e.until.Load() }

func (e *Everybody) ask(ctx context.Context, client *clientv3.Client, prefix string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	asked := boottime.Since(begin)
	r, err := client.Get(ctx, prefix+"everybody", clientv3.WithCountOnly())
	switch {
	case err == nil:
		e.newest.Saw(r.Header.Revision)
		e.until.Store(int64(asked + authHolds))
	case definite(err): // etcd has answered, and does not let everybody read
		e.until.Store(0)
	}
}

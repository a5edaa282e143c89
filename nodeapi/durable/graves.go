package durable

import (
	"context"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// graves has the etcd lease to which tombstones are bound. A lease is used for the minimum time
// that tombstones are kept, and lives for twice that time. It is never renewed, so it ends even if
// nodes die.
type graves struct {
	kept time.Duration

	mu    sync.Mutex
	id    clientv3.LeaseID
	since time.Time
}

func (g *graves) lease(ctx context.Context, etcd *clientv3.Client) (clientv3.LeaseID, error) {
	g.mu.Lock()
	id, since := g.id, g.since
	g.mu.Unlock()
	if id != 0 && time.Since(since) < g.kept {
		return id, nil
	}
	begin := time.Now() // this time is not later than the start of the lease in etcd
	granted, err := etcd.Grant(ctx, int64(math.Ceil(2*g.kept.Seconds())))
	if err != nil {
		return 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id, g.since = granted.ID, begin
	return g.id, nil
}

// gone records that etcd does not know a lease. The lease was revoked, or etcd was restored from a
// backup.
func (g *graves) gone(id clientv3.LeaseID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.id == id {
		g.id = 0
	}
}

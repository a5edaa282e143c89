package placement

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Stale is a follower that has read nothing yet and begins its watch at revision 1.
type Stale struct{ *Follower }

func NewStale(c *clientv3.Client, prefix string) Stale {
	return Stale{&Follower{Cache: NewCache(), store: Store{KV: c, Prefix: prefix}, watcher: c, log: zap.NewNop()}}
}

func (s Stale) Start() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.done.Go(func() { s.follow(ctx) })
}

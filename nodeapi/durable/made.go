package durable

import (
	"context"
	"maps"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// FollowMade reports the set of all namespaces that have ever had a durable key. It reports the set
// when etcd has first answered, and whenever a namespace is added, until ctx ends.
func (s *Store) FollowMade(ctx context.Context, tell func(map[string]bool)) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if s.followMade(ctx, tell) {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (s *Store) followMade(ctx context.Context, tell func(map[string]bool)) (answered bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	etcd, err := s.client(ctx)
	if err != nil {
		return false
	}
	made := map[string]bool{}
	revision, err := scan(ctx, etcd, madePrefix, page, func(kv *mvccpb.KeyValue) {
		made[strings.TrimPrefix(string(kv.Key), madePrefix)] = true
	}, clientv3.WithKeysOnly())
	if err != nil {
		return false
	}
	tell(maps.Clone(made))
	for answer := range etcd.Watch(ctx, madePrefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1),
		clientv3.WithFilterDelete()) {
		if answer.Err() != nil {
			break
		}
		more := false
		for _, e := range answer.Events {
			if ns := strings.TrimPrefix(string(e.Kv.Key), madePrefix); e.Type == mvccpb.PUT && !made[ns] {
				made[ns], more = true, true
			}
		}
		if more {
			tell(maps.Clone(made))
		}
	}
	return true
}

package durable

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/nodeapi/durable/etcdlink"
)

// follower watches the keys of a namespace in etcd. It serves all watchers of the namespace on this
// node with a single watch.
type follower struct {
	ns   string
	stop context.CancelFunc

	mu sync.Mutex
	// round counts the watches that were begun in etcd. For changes before the newest watch began,
	// the watchers must read the keys. The value 0 means that no watch has begun.
	round    uint64
	byKey    map[string]map[*watcher]struct{}
	byPrefix map[*watcher]struct{}
	users    int // number of watchers; guarded by Store.mu
}

// These are pauses of a follower after its watch in etcd has ended.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// follow reports changes in a namespace to a watcher, until leave is called.
func (s *Store) follow(w *watcher) (leave func()) {
	ns := w.w.Namespace
	s.mu.Lock()
	f := s.followers[ns]
	if f == nil {
		ctx, stop := context.WithCancel(s.ctx)
		f = &follower{ns: ns, stop: stop, byKey: map[string]map[*watcher]struct{}{}, byPrefix: map[*watcher]struct{}{}}
		s.followers[ns] = f
		s.work.Go(func() { f.run(ctx, s) })
	}
	f.users++
	s.mu.Unlock()
	f.add(w)
	return func() {
		f.remove(w)
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.users--; f.users == 0 {
			delete(s.followers, ns)
			f.stop()
		}
	}
}

func (f *follower) add(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.w.Prefix != nil {
		f.byPrefix[w] = struct{}{}
	}
	for _, name := range w.w.Keys {
		if f.byKey[name] == nil {
			f.byKey[name] = map[*watcher]struct{}{}
		}
		f.byKey[name][w] = struct{}{}
	}
	w.begin(f.round)
}

func (f *follower) remove(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byPrefix, w)
	for _, name := range w.w.Keys {
		if delete(f.byKey[name], w); len(f.byKey[name]) == 0 {
			delete(f.byKey, name)
		}
	}
}

// run keeps a watch in etcd until ctx ends. A watch ends if it has lost events, because they were
// compacted while etcd was unreachable. When the next watch begins, all watchers read their keys.
func (f *follower) run(ctx context.Context, s *Store) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if f.watch(ctx, s) {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// watch runs one watch in etcd until it ends. The result began reports whether the watch has begun.
func (f *follower) watch(ctx context.Context, s *Store) (began bool) {
	etcd, err := s.client(ctx)
	if err != nil {
		return false
	}
	tell := func(created bool, events []*mvccpb.Event) {
		if created {
			began = true
			f.nextRound()
		}
		f.tell(events)
	}
	if l := s.o.Etcd.links; l != nil {
		if err := l.watch(ctx, NamesOf(f.ns), tell); !errors.Is(err, etcdlink.ErrNotSent) {
			return began
		}
	}
	// Require a leader, because a member that is cut off from its cluster does not learn of
	// changes.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for answer := range etcd.Watch(ctx, NamesOf(f.ns), clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if answer.Err() != nil {
			return began
		}
		events := make([]*mvccpb.Event, len(answer.Events))
		for i, e := range answer.Events {
			events[i] = (*mvccpb.Event)(e)
		}
		tell(answer.Created, events)
	}
	return began
}

func (f *follower) nextRound() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.round++
	for w := range f.byPrefix {
		w.begin(f.round)
	}
	for _, all := range f.byKey {
		for w := range all {
			w.begin(f.round)
		}
	}
}

func (f *follower) tell(events []*mvccpb.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		name := strings.TrimPrefix(string(e.Kv.Key), NamesOf(f.ns))
		n := news{kv: e.Kv, removed: e.Type == mvccpb.DELETE}
		for w := range f.byKey[name] {
			w.hear(name, n)
		}
		for w := range f.byPrefix {
			if strings.HasPrefix(name, *w.w.Prefix) {
				w.hear(name, n)
			}
		}
	}
}

package placement

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// pause is how long a follower waits before it retries after a failure.
const pause = 100 * time.Millisecond

// Follower follows the directory with a watch in etcd. While etcd does not answer, it keeps its
// last content. The package comment explains why that is harmless.
type Follower struct {
	*Cache
	store   Store
	watcher clientv3.Watcher
	log     *zap.Logger
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Follow reads the directory, and then follows its changes until Close. ctx bounds the time for the
// first read. If log is nil, nothing is logged.
func Follow(ctx context.Context, client *clientv3.Client, prefix string, log *zap.Logger) (*Follower, error) {
	if log == nil {
		log = zap.NewNop()
	}
	f := &Follower{Cache: NewCache(), store: Store{KV: client, Prefix: prefix}, watcher: client, log: log}
	if err := f.Refresh(ctx); err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.done.Go(func() { f.follow(following) })
	return f, nil
}

// Close stops following. The cache keeps its content.
func (f *Follower) Close() {
	f.stop()
	f.done.Wait()
}

// Refresh brings the cache up to date. If it returns no error, the cache has every change that was
// made before the call.
func (f *Follower) Refresh(ctx context.Context) error {
	entries, broken, revision, err := f.store.List(ctx)
	if err != nil {
		return err
	}
	for key, why := range broken {
		f.complain(key, why)
	}
	f.Reset(revision, entries)
	return nil
}

func (f *Follower) complain(key string, why error) {
	f.log.Warn("a placement in etcd cannot be read: the key is taken for one that is not placed", zap.String("key", key), zap.Error(why))
}

// follow watches the directory, beginning with the revision after the known one. If the watch ends,
// for example because of a compaction, follow reads the present state and watches again.
func (f *Follower) follow(ctx context.Context) {
	for ctx.Err() == nil {
		f.watch(ctx)
		for ctx.Err() == nil {
			try, cancel := context.WithTimeout(ctx, 10*pause)
			err := f.Refresh(try)
			cancel()
			if err == nil {
				break
			}
			f.log.Warn("following which keys are placed", zap.Error(err))
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

func (f *Follower) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	prefix := Name(f.store.Prefix, "")
	for r := range f.watcher.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(f.Revision()+1)) {
		if err := r.Err(); err != nil {
			if ctx.Err() == nil {
				f.log.Info("the watch on which keys are placed has ended and begins again", zap.Error(err))
			}
			return
		}
		changes := make([]Change, 0, len(r.Events))
		for _, e := range r.Events {
			ch := Change{Key: string(e.Kv.Key[len(prefix):]), Entry: Entry{Mod: e.Kv.ModRevision},
				Deleted: e.Type == clientv3.EventTypeDelete}
			if !ch.Deleted {
				entry, err := parse(e.Kv.Value, e.Kv.ModRevision)
				if err != nil {
					f.complain(ch.Key, err)
					entry, ch.Deleted = Entry{Mod: e.Kv.ModRevision}, true
				}
				ch.Entry = entry
			}
			changes = append(changes, ch)
		}
		f.Apply(changes)
	}
}

package durable

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// These are limits for the reads that watches make when they begin, and when the follower's watch
// in etcd was interrupted.
const (
	readsAtOnce = 32  // maximum number of concurrent reads of all watches
	keysAtOnce  = 100 // number of keys in one transaction; etcd accepts 128 operations
	valuesPage  = 64  // number of entries with values in one answer
)

// watcher is a watch of a program. It gets all of etcd's events for the keys that it follows. It
// keeps the newest event of each key until it has reported the event.
type watcher struct {
	w    store.Watch
	wake chan struct{} // has an element when there are unprocessed events

	mu    sync.Mutex
	round uint64 // the follower's round, see follower.round
	news  map[string]news

	// Only the goroutine in Watch uses the following fields.
	known map[string]known
	read  uint64 // the round in which everything was read; 0 if nothing was read yet
}

// news is the content of an etcd event for a key. It has the entry of the key, or reports that the
// entry was removed.
type news struct {
	kv      *mvccpb.KeyValue
	removed bool
}

// known is the last reported state of a key.
type known struct {
	version wire.Version
	found   bool
	// created is the create revision of the entry. count is the number of writes since then. The
	// value 0 means that they are not known.
	created, count int64
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// begin records that a watch in etcd has begun, so the watcher must read earlier changes.
func (w *watcher) begin(round uint64) {
	w.mu.Lock()
	w.round = round
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) hear(name string, n news) {
	w.mu.Lock()
	w.news[name] = n
	w.mu.Unlock()
	w.signal()
}

// begun returns the round of the follower, and whether there are unprocessed events.
func (w *watcher) begun() (round uint64, heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.round, len(w.news) > 0
}

func (w *watcher) take() (all map[string]news) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, w.news = w.news, map[string]news{}
	return all
}

// Watch implements [store.Store]. While etcd is unreachable, it reports nothing. When etcd is back,
// it reports the changes that happened meanwhile.
func (s *Store) Watch(ctx context.Context, what store.Watch, tell func([]store.Change)) error {
	w := &watcher{w: what, wake: make(chan struct{}, 1), news: map[string]news{}, known: map[string]known{}}
	defer s.follow(w)()
	pause := firstPause
	for {
		var again <-chan time.Time
		out, err := s.changes(ctx, w)
		switch {
		case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodePermissionDenied}):
			return err
		case err != nil:
			again, pause = time.After(pause), min(2*pause, lastPause)
		default:
			pause = firstPause
		}
		if len(out) > 0 {
			tell(out)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return nodeapi.Errorf(nodeapi.CodeDraining, "connect again", "the server ends")
		case <-w.wake:
		case <-again:
		}
	}
}

// changes returns the changes that must be reported now. Until the watcher has read the state of
// its keys, it holds back all events.
func (s *Store) changes(ctx context.Context, w *watcher) (out []store.Change, err error) {
	round, heard := w.begun()
	if round != w.read {
		if out, err = s.readAll(ctx, w); err != nil {
			return nil, err
		}
		w.read = round
	}
	if !heard {
		return out, nil
	}
	all := w.take()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if n := all[name]; n.removed {
			out = w.gone(out, name, version(n.kv.ModRevision))
		} else {
			out = w.is(out, name, n.kv)
		}
	}
	return out, nil
}

// is processes the entry of a key. If the entry is newer than the last report, it appends a change
// to out.
func (w *watcher) is(out []store.Change, name string, kv *mvccpb.KeyValue) []store.Change {
	before, told := w.known[name]
	now := item(store.Key{Namespace: w.w.Namespace, Name: name}, kv)
	if told && now.Version <= before.version {
		return out
	}
	c := store.Change{Item: now}
	switch {
	case told && before.created == kv.CreateRevision && before.count > 0:
		c.Overtaken = uint64(kv.Version - before.count - 1)
	case told && before.created == 0, !told && w.read > 0: // the key was created after the last report
		c.Overtaken = uint64(kv.Version - 1)
	}
	w.known[name] = known{now.Version, now.Found, kv.CreateRevision, kv.Version}
	return append(out, c)
}

// gone records that a key has had no entry since the version `at`. For a deleted key this is not a
// change, because only the tombstone has expired.
func (w *watcher) gone(out []store.Change, name string, at wire.Version) []store.Change {
	before, told := w.known[name]
	if told && (at <= before.version || !before.found) {
		switch {
		case at <= before.version:
		case slices.Contains(w.w.Keys, name):
			// the number of writes starts again with the next entry
			w.known[name] = known{version: before.version}
		// forget this name, because the watch does not name it, and remembering all such names
		// would take unbounded memory
		default:
			delete(w.known, name)
		}
		return out
	}
	w.known[name] = known{version: at}
	now := item(store.Key{Namespace: w.w.Namespace, Name: name}, nil)
	now.Version = at
	return append(out, store.Change{Item: now})
}

// readAll reads all keys that a watcher follows, and returns the changes since its last report.
func (s *Store) readAll(ctx context.Context, w *watcher) (out []store.Change, err error) {
	if err := s.reads.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.reads.Release(1)
	etcd, err := s.client(ctx)
	if err != nil {
		return nil, err
	}
	first := w.read == 0
	there := map[string]*mvccpb.KeyValue{}
	revision := int64(0)
	for keys := range slices.Chunk(w.w.Keys, keysAtOnce) {
		var ops []clientv3.Op
		for _, name := range keys {
			ops = append(ops, clientv3.OpGet(NamesOf(w.w.Namespace)+name))
		}
		got, err := etcd.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, failure(ctx, "reading what is watched in the namespace "+w.w.Namespace, err, false)
		}
		revision = got.Header.Revision
		for i, name := range keys {
			there[name] = only(got.Responses[i].GetResponseRange().Kvs)
		}
	}
	if w.w.Prefix != nil {
		revision, err = scan(ctx, etcd, NamesOf(w.w.Namespace)+*w.w.Prefix, valuesPage, func(kv *mvccpb.KeyValue) {
			there[strings.TrimPrefix(string(kv.Key), NamesOf(w.w.Namespace))] = kv
		})
		if err != nil {
			return nil, failure(ctx, "reading what is watched in the namespace "+w.w.Namespace, err, false)
		}
	}
	if first {
		knowAfter(ctx, etcd, w, there)
	}
	for name := range w.known { // report the keys that were known and have no entry now
		if _, ok := there[name]; !ok {
			there[name] = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		switch kv := there[name]; {
		case kv != nil:
			out = w.is(out, name, kv)
		case len(w.w.After) > 0 && w.known[name].version > 0 || !first:
			out = w.gone(out, name, max(version(revision), w.known[name].version+1))
		default: // the key was never written
			w.known[name] = known{}
			out = append(out, store.Change{Item: item(store.Key{Namespace: w.w.Namespace, Name: name}, nil)})
		}
	}
	return out, nil
}

// knowAfter treats the versions that the caller already has as reported. It reads from etcd how
// often each key had been written at such a version. If etcd has compacted that revision, the
// number of skipped versions is unknown and not counted.
func knowAfter(ctx context.Context, etcd *clientv3.Client, w *watcher, there map[string]*mvccpb.KeyValue) {
	for name, after := range w.w.After {
		now, follows := there[name]
		if !follows && (w.w.Prefix == nil || !strings.HasPrefix(name, *w.w.Prefix)) || after == 0 {
			continue
		}
		k := known{version: after, found: true, created: -1}
		if at, ok := revision(after); ok && now != nil && now.ModRevision > at && now.CreateRevision <= at {
			got, err := etcd.Get(ctx, NamesOf(w.w.Namespace)+name, clientv3.WithRev(at), clientv3.WithSerializable(),
				clientv3.WithKeysOnly())
			if err == nil && len(got.Kvs) == 1 && got.Kvs[0].ModRevision == at {
				k.created, k.count = got.Kvs[0].CreateRevision, got.Kvs[0].Version
			}
		}
		w.known[name] = k
	}
}

package kube

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	nodeapi "github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/wire"
)

// lateStore is a store.Store that is there when a controller has been heard. Until then calls wait
// for it, as after an agent was replaced, but not for much of their time, and not where there has
// been none for a while: they can be asked again later.
type lateStore struct {
	now    atomic.Pointer[heldStore]
	filled chan struct{} // closed when it is there
	calls  time.Time     // when they wait no more
}

func newLateStore() *lateStore {
	return &lateStore{filled: make(chan struct{}), calls: time.Now().Add(storePatience)}
}

// heldStore is a store.Store that is to be closed.
type heldStore struct {
	store.Store
	close func() error
}

const (
	storeTime  = 5 * time.Second // to hear of the chains
	storeAgain = 200 * time.Millisecond
	// storePatience is for how long after the agent's start calls wait for a controller, and
	// answerTime is what they keep of their time for saying that there is none.
	storePatience = 30 * time.Second
	answerTime    = 250 * time.Millisecond
)

// fill asks for the chains until a controller has said what they are, or ctx ends. with makes of
// their store the one that is used.
func (l *lateStore) fill(ctx context.Context, o keys.Options, with func(context.Context, store.Store) store.Store,
	log *slog.Logger) {
	var failed logOnce
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, storeTime)
		s, err := keys.New(one, o)
		cancel()
		if err == nil {
			l.now.Store(&heldStore{with(ctx, s), s.Close})
			close(l.filled)
			log.Info("the node API has its chains")
			return
		}
		if failed.isNew(err) {
			log.Info("the node API waits for a controller", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(storeAgain):
		}
	}
}

func (l *lateStore) close() {
	if s := l.now.Load(); s != nil {
		_ = s.close() // sessions that were not given back run out
	}
}

func (l *lateStore) get(ctx context.Context) (store.Store, error) {
	if s := l.now.Load(); s != nil {
		return s.Store, nil
	}
	until := l.calls
	if d, ok := ctx.Deadline(); ok && d.Add(-answerTime).Before(until) {
		until = d.Add(-answerTime)
	}
	wait := time.NewTimer(time.Until(until))
	defer wait.Stop()
	select {
	case <-l.filled:
		return l.now.Load().Store, nil
	case <-wait.C:
	case <-ctx.Done():
	}
	return nil, &nodeapi.Error{Code: nodeapi.CodeUnavailable, Do: "try again",
		Message: "this node has heard of no controller yet, or the cluster has no chains"}
}

// Get implements store.Store.
func (l *lateStore) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	s, err := l.get(ctx)
	if err != nil {
		return store.Item{}, err
	}
	return s.Get(ctx, key, eventual)
}

// Put implements store.Store.
func (l *lateStore) Put(ctx context.Context, key store.Key, value []byte) (wire.Version, error) {
	s, err := l.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.Put(ctx, key, value)
}

// CompareAndSwap implements store.Store.
func (l *lateStore) CompareAndSwap(ctx context.Context, key store.Key, expected wire.Version, value []byte) (
	store.Item, bool, error) {
	s, err := l.get(ctx)
	if err != nil {
		return store.Item{}, false, err
	}
	return s.CompareAndSwap(ctx, key, expected, value)
}

// CompareAndDelete implements store.Store.
func (l *lateStore) CompareAndDelete(ctx context.Context, key store.Key, expected wire.Version) (store.Item, bool,
	error) {
	s, err := l.get(ctx)
	if err != nil {
		return store.Item{}, false, err
	}
	return s.CompareAndDelete(ctx, key, expected)
}

// Delete implements store.Store.
func (l *lateStore) Delete(ctx context.Context, key store.Key) (wire.Version, error) {
	s, err := l.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.Delete(ctx, key)
}

// List implements store.Store.
func (l *lateStore) List(ctx context.Context, namespace, prefix string) ([]store.Key, error) {
	s, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.List(ctx, namespace, prefix)
}

// Watch implements store.Store.
func (l *lateStore) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	s, err := l.get(ctx)
	if err != nil {
		return err
	}
	return s.Watch(ctx, w, tell)
}

// MaxValue implements store.Store.
func (l *lateStore) MaxValue(namespace string) int {
	if s := l.now.Load(); s != nil {
		return s.MaxValue(namespace)
	}
	return 0
}

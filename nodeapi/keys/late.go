package keys

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Late is a store.Store that becomes usable when a controller has answered. Before that, calls wait
// for a part of their time. This helps when a server has just been replaced. If there has been no
// controller for some time, calls fail at once, because they can be retried. Services that need no
// keys, such as streams, work in the meantime.
type Late struct {
	now    atomic.Pointer[heldStore]
	filled chan struct{} // closed when the store has been set
	calls  time.Time     // time when calls stop waiting for the store
}

var _ store.Store = (*Late)(nil)

// NewLate makes a Late without a store.
func NewLate() *Late {
	return &Late{filled: make(chan struct{}), calls: time.Now().Add(latePatience)}
}

// heldStore is a store.Store together with the function that closes it.
type heldStore struct {
	store.Store
	close func() error
}

const (
	lateTime  = 5 * time.Second // timeout of a request for the description of the chains
	lateAgain = 200 * time.Millisecond
	// latePatience is how long after the start calls wait for a controller. answerTime is the part
	// of a call's time that is reserved for the answer that there is no controller.
	latePatience = 30 * time.Second
	answerTime   = 250 * time.Millisecond
)

// Fill requests the description of the chains until a controller has answered or ctx ends. Then it
// sets the store. If `with` is not nil, it wraps the store.
func (l *Late) Fill(
	ctx context.Context, o Options, with func(context.Context, store.Store) store.Store, log *slog.Logger,
) {
	said := ""
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, lateTime)
		s, err := New(one, o)
		cancel()
		if err == nil {
			used := store.Store(s)
			if with != nil {
				used = with(ctx, s)
			}
			l.Set(used, s.Close)
			log.Info("the node API has its chains")
			return
		}
		if err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			log.Warn("the node API waits for a controller", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(lateAgain):
		}
	}
}

// Set sets the store. It must be called only once. Close calls end.
func (l *Late) Set(s store.Store, end func() error) {
	l.now.Store(&heldStore{s, end})
	close(l.filled)
}

// Filled returns a channel that is closed when the store has been set.
func (l *Late) Filled() <-chan struct{} { return l.filled }

// Close closes the store. The caller must first wait until Fill has returned, or end Fill's ctx.
func (l *Late) Close() {
	if s := l.now.Load(); s != nil {
		_ = s.close() // sessions that could not be released expire later
	}
}

func (l *Late) get(ctx context.Context) (store.Store, error) {
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
	return nil, nodeapi.Errorf(nodeapi.CodeUnavailable, "try again", "no controller has answered yet, or it has no chains")
}

// Get implements store.Store.
func (l *Late) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	s, err := l.get(ctx)
	if err != nil {
		return store.Item{}, err
	}
	return s.Get(ctx, key, eventual)
}

// Put implements store.Store.
func (l *Late) Put(ctx context.Context, key store.Key, value []byte) (wire.Version, error) {
	s, err := l.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.Put(ctx, key, value)
}

// CompareAndSwap implements store.Store.
func (l *Late) CompareAndSwap(ctx context.Context, key store.Key, expected wire.Version, value []byte) (
	store.Item, bool, error) {
	s, err := l.get(ctx)
	if err != nil {
		return store.Item{}, false, err
	}
	return s.CompareAndSwap(ctx, key, expected, value)
}

// CompareAndDelete implements store.Store.
func (l *Late) CompareAndDelete(ctx context.Context, key store.Key, expected wire.Version) (store.Item, bool,
	error) {
	s, err := l.get(ctx)
	if err != nil {
		return store.Item{}, false, err
	}
	return s.CompareAndDelete(ctx, key, expected)
}

// Delete implements store.Store.
func (l *Late) Delete(ctx context.Context, key store.Key) (wire.Version, error) {
	s, err := l.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.Delete(ctx, key)
}

// Transacts implements store.Store.
func (l *Late) Transacts(string, wire.Version) bool { return false }

// Transact implements store.Store.
func (l *Late) Transact(ctx context.Context, t store.Transaction) (store.Transacted, error) {
	s, err := l.get(ctx)
	if err != nil {
		return store.Transacted{}, err
	}
	return s.Transact(ctx, t)
}

// List implements store.Store.
func (l *Late) List(ctx context.Context, namespace, prefix string) ([]store.Key, error) {
	s, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.List(ctx, namespace, prefix)
}

// Page implements store.Store.
func (l *Late) Page(ctx context.Context, r store.Range) (store.Page, error) {
	s, err := l.get(ctx)
	if err != nil {
		return store.Page{}, err
	}
	return s.Page(ctx, r)
}

// Watch implements store.Store.
func (l *Late) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	s, err := l.get(ctx)
	if err != nil {
		return err
	}
	return s.Watch(ctx, w, tell)
}

// MaxValue implements store.Store.
func (l *Late) MaxValue(namespace string) int {
	if s := l.now.Load(); s != nil {
		return s.MaxValue(namespace)
	}
	return 0
}

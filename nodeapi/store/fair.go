package store

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
)

// Fair is a Store that limits the number of concurrent calls, and serves the waiting calls of the
// namespaces in turn. So a namespace with very many calls delays only itself. Other namespaces do
// not wait long, and neither does other work of this process, such as the leases of the node's
// switch in an agent. One namespace never has more than three quarters of the concurrent calls. So
// calls of one namespace that hang leave room for the calls of other namespaces.
//
// Watches do not count as calls, because they last long and need the processor only when they
// report changes.
//
// The method Apart gives some namespaces a separate limit. It is meant for namespaces that use
// etcd. So if calls to etcd hang, they do not block the calls of other namespaces. Transactions of
// all namespaces use this separate limit.
type Fair struct {
	Store
	most, each int
	isApart    func(namespace string) bool
	apart      *Fair // the Fair for namespaces with a separate limit; may be nil

	mu     sync.Mutex
	under  int // number of calls under way
	lanes  map[string]*lane
	queued list.List // the lanes (*lane) that have waiting calls; the next lane to serve comes first
}

// lane has the calls of one namespace, both under way and waiting.
type lane struct {
	under   int
	waiting list.List     // a channel (chan struct{}) for each waiting call, which is closed when the call may begin
	place   *list.Element // the lane's element in Fair.queued; nil if no call of the lane waits
}

// NewFair makes a Fair that limits the concurrent calls of a store to most.
func NewFair(s Store, most int) *Fair {
	return &Fair{Store: s, most: most, each: max(most*3/4, 1), lanes: map[string]*lane{}}
}

// Apart gives the namespaces for which `is` returns true a separate limit for concurrent calls. It
// must be called before the first call of the store.
func (f *Fair) Apart(is func(namespace string) bool, most int) *Fair {
	f.isApart, f.apart = is, NewFair(f.Store, most)
	return f
}

// turn waits until a call of a namespace may begin. It returns the Fair that granted the turn. The
// caller must end the turn by the method leave of this Fair.
func (f *Fair) turn(ctx context.Context, namespace string) (*Fair, error) {
	if f.apart != nil && f.isApart(namespace) {
		f = f.apart
	}
	return f, f.enter(ctx, namespace)
}

func (f *Fair) enter(ctx context.Context, namespace string) error {
	f.mu.Lock()
	l := f.lanes[namespace]
	if l == nil {
		l = &lane{}
		f.lanes[namespace] = l
	}
	if f.under < f.most && l.under < f.each && l.place == nil {
		f.under++
		l.under++
		f.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	mine := l.waiting.PushBack(turn)
	if l.place == nil {
		l.place = f.queued.PushBack(l)
	}
	f.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-turn: // the call was allowed to begin at the same moment, so pass its turn on
		f.left(namespace, l)
	default:
		l.waiting.Remove(mine)
		f.forget(namespace, l)
	}
	code := nodeapi.CodeTimeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = nodeapi.CodeCanceled
	}
	return nodeapi.Errorf(code, "ask for less at a time, or give it more time",
		"it waited for its turn behind others of its namespace; nothing was done")
}

func (f *Fair) leave(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left(namespace, f.lanes[namespace])
}

// left lets a waiting call begin, because a call of lane l has ended. The caller holds f.mu.
func (f *Fair) left(namespace string, l *lane) {
	f.under--
	l.under--
	f.forget(namespace, l)
	for e := f.queued.Front(); e != nil && f.under < f.most; {
		next := e.Value.(*lane)
		after := e.Next()
		if next.under < f.each { // otherwise the lane has reached its own limit, so try the next lane
			first := next.waiting.Front()
			close(next.waiting.Remove(first).(chan struct{}))
			f.under++
			next.under++
			if next.waiting.Len() == 0 {
				f.queued.Remove(next.place)
				next.place = nil
			} else {
				f.queued.MoveToBack(next.place)
			}
		}
		e = after
	}
}

// forget removes the lane of a namespace that has no calls. The caller holds f.mu.
func (f *Fair) forget(namespace string, l *lane) {
	if l.waiting.Len() == 0 && l.place != nil {
		f.queued.Remove(l.place)
		l.place = nil
	}
	if l.under == 0 && l.place == nil {
		delete(f.lanes, namespace)
	}
}

// Get implements [Store].
func (f *Fair) Get(ctx context.Context, key Key, eventual bool) (Item, error) {
	f, err := f.turn(ctx, key.Namespace)
	if err != nil {
		return Item{}, err
	}
	defer f.leave(key.Namespace)
	return f.Store.Get(ctx, key, eventual)
}

// Put implements [Store].
func (f *Fair) Put(ctx context.Context, key Key, value []byte) (wire.Version, error) {
	f, err := f.turn(ctx, key.Namespace)
	if err != nil {
		return 0, err
	}
	defer f.leave(key.Namespace)
	return f.Store.Put(ctx, key, value)
}

// CompareAndSwap implements [Store].
func (f *Fair) CompareAndSwap(ctx context.Context, key Key, expected wire.Version, value []byte) (Item, bool, error) {
	f, err := f.turn(ctx, key.Namespace)
	if err != nil {
		return Item{}, false, err
	}
	defer f.leave(key.Namespace)
	return f.Store.CompareAndSwap(ctx, key, expected, value)
}

// CompareAndDelete implements [Store].
func (f *Fair) CompareAndDelete(ctx context.Context, key Key, expected wire.Version) (Item, bool, error) {
	f, err := f.turn(ctx, key.Namespace)
	if err != nil {
		return Item{}, false, err
	}
	defer f.leave(key.Namespace)
	return f.Store.CompareAndDelete(ctx, key, expected)
}

// Delete implements [Store].
func (f *Fair) Delete(ctx context.Context, key Key) (wire.Version, error) {
	f, err := f.turn(ctx, key.Namespace)
	if err != nil {
		return 0, err
	}
	defer f.leave(key.Namespace)
	return f.Store.Delete(ctx, key)
}

// Transact implements [Store].
func (f *Fair) Transact(ctx context.Context, t Transaction) (Transacted, error) {
	if f.apart != nil {
		f = f.apart
	}
	if err := f.enter(ctx, t.Namespace); err != nil {
		return Transacted{}, err
	}
	defer f.leave(t.Namespace)
	return f.Store.Transact(ctx, t)
}

// List implements [Store].
func (f *Fair) List(ctx context.Context, namespace, prefix string) ([]Key, error) {
	f, err := f.turn(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer f.leave(namespace)
	return f.Store.List(ctx, namespace, prefix)
}

// Page implements [Store].
func (f *Fair) Page(ctx context.Context, r Range) (Page, error) {
	f, err := f.turn(ctx, r.Namespace)
	if err != nil {
		return Page{}, err
	}
	defer f.leave(r.Namespace)
	return f.Store.Page(ctx, r)
}

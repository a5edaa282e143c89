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
// namespaces in turn. So a namespace with very many calls delays only itself. Other namespaces, and
// the rest of this process (in an agent, the leases of the node's switch), do not wait long. One
// namespace never has more than three quarters of the calls, so that hanging calls leave room for
// those of other namespaces.
//
// Watches do not count, because they last long and need the processor only when they report.
//
// Calls of namespaces that use etcd may have their own turns (Apart), so that calls that hang there
// do not take turns from others. Transactions of all namespaces use those turns.
type Fair struct {
	Store
	most, each int
	isApart    func(namespace string) bool
	apart      *Fair // nil: no namespaces have their own turns

	mu     sync.Mutex
	under  int // calls that are under way
	lanes  map[string]*lane
	queued list.List // elements are *lane: those with waiting calls, the next one first
}

// lane is the calls of a namespace, under way and waiting.
type lane struct {
	under   int
	waiting list.List     // elements are chan struct{}, each closed when its turn has come
	place   *list.Element // in Fair.queued; nil: no call waits
}

// NewFair limits the concurrent calls of a store.
func NewFair(s Store, most int) *Fair {
	return &Fair{Store: s, most: most, each: max(most*3/4, 1), lanes: map[string]*lane{}}
}

// Apart gives the namespaces for which is returns true turns of their own, with their own limit.
// Call it before the first call.
func (f *Fair) Apart(is func(namespace string) bool, most int) *Fair {
	f.isApart, f.apart = is, NewFair(f.Store, most)
	return f
}

// turn waits for a namespace's turn. It returns the Fair that granted it, whose leave ends the
// turn.
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
	case <-turn: // the turn has come at the same moment
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

// left passes on the place of a call that has ended. f.mu is held.
func (f *Fair) left(namespace string, l *lane) {
	f.under--
	l.under--
	f.forget(namespace, l)
	for e := f.queued.Front(); e != nil && f.under < f.most; {
		next := e.Value.(*lane)
		after := e.Next()
		if next.under < f.each { // otherwise its own limit is reached, and the next lane gets the place
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

// forget drops an idle namespace. f.mu is held.
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

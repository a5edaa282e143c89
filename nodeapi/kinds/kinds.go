// Package kinds implements a store that combines volatile keys (nodeapi/keys) and durable keys
// (nodeapi/durable). The default of a namespace determines the kind of a new key. An existing key
// keeps its kind.
//
// If a namespace has keys of only one kind, every request goes to the store of that kind. If it may
// have keys of both kinds, a request goes first to the store of the default kind. If the key is not
// there, the request then goes to the other store. So a changed default hides no keys, and requests
// for keys of the default kind cost nothing extra.
package kinds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Default has the kind of the new keys of a namespace, and reports whether the namespace may also
// have keys of the other kind.
type Default struct{ Durable, Both bool }

// Store combines the stores of volatile and durable keys. It is safe for concurrent use.
type Store struct {
	volatile, durable store.Store
	of                func(namespace string) Default

	mu sync.Mutex
	// alone has the watches of namespaces that had keys of only one kind when the watch began.
	alone map[*alone]struct{}
}

type alone struct {
	namespace string
	durable   bool
	end       context.CancelCauseFunc
}

var _ store.Store = (*Store)(nil)

// New combines two stores. The function `of` returns the default of a namespace. If a default
// changes, the caller must call Changed.
func New(volatile, durable store.Store, of func(namespace string) Default) *Store {
	return &Store{volatile: volatile, durable: durable, of: of, alone: map[*alone]struct{}{}}
}

// errOther ends the watches of a namespace that had keys of only one kind, and from now on may have
// keys of the other kind.
var errOther = nodeapi.Errorf(nodeapi.CodeUnavailable, "watch again, after the versions that are known",
	"the namespace may have keys of another kind, volatile or durable, from now on")

// Changed must be called when the defaults of namespaces may have changed. It ends watches that
// would no longer see all keys of their namespace.
func (s *Store) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.alone {
		if d := s.of(w.namespace); d.Both || d.Durable != w.durable {
			w.end(errOther)
		}
	}
}

// Durable reports whether the new keys of a namespace are durable.
func (s *Store) Durable(namespace string) bool { return s.of(namespace).Durable }

// stores returns the store of a namespace's default kind, and the other store. The other store is
// nil if the namespace has no keys there.
func (s *Store) stores(namespace string) (first, other store.Store) {
	d := s.of(namespace)
	if first, other = s.volatile, s.durable; d.Durable {
		first, other = other, first
	}
	if !d.Both {
		other = nil
	}
	return first, other
}

// MaxValue implements [store.Store]. It returns the maximum length for a new key.
func (s *Store) MaxValue(namespace string) int {
	first, _ := s.stores(namespace)
	return first.MaxValue(namespace)
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	first, other := s.stores(key.Namespace)
	got, err := first.Get(ctx, key, eventual)
	if err != nil || got.Version != 0 || other == nil {
		return got, err
	}
	return other.Get(ctx, key, eventual)
}

// result is the result of a call that may write a key.
type result struct {
	store.Item
	done bool
}

// write executes a call in the store that has the key. If no store has the key, the default store
// creates it.
func (s *Store) write(ctx context.Context, key store.Key,
	do func(context.Context, store.Store) (result, error)) (result, error) {
	first, other := s.stores(key.Namespace)
	if other == nil {
		return do(ctx, first)
	}
	there, missing := withoutCreating(ctx)
	got, err := do(there, first)
	// the key may be in the first store, although the value does not fit there; only if it is not,
	// try the other store
	tooLarge := errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeTooLarge})
	if !missing(got, err) && !tooLarge {
		return got, err
	}
	switch item, err := other.Get(ctx, key, false); {
	case err != nil:
		return result{}, err // in this case nothing was written
	case item.Version == 0:
	default:
		if got, err := do(there, other); !missing(got, err) {
			return got, err
		} // the key was removed in the meantime, so try again
	}
	if tooLarge {
		return got, err
	}
	return do(ctx, first)
}

// withoutCreating forbids a store to create a key. The function `missing` reports whether the store
// has found no key.
func withoutCreating(ctx context.Context) (_ context.Context, missing func(result, error) bool) {
	refused := nodeapi.Errorf(nodeapi.CodeInternal, "", "there is no such key")
	return store.WithoutCreating(ctx, refused), func(got result, err error) bool {
		var e *nodeapi.Error
		return err == nil && got.Version == 0 || errors.As(err, &e) && e == refused
	}
}

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, key store.Key, value []byte) (wire.Version, error) {
	got, err := s.write(ctx, key, func(ctx context.Context, at store.Store) (r result, err error) {
		r.Version, err = at.Put(ctx, key, value)
		return r, err
	})
	return got.Version, err
}

// CompareAndSwap implements [store.Store].
func (s *Store) CompareAndSwap(ctx context.Context, key store.Key, expected wire.Version, value []byte) (store.Item,
	bool, error) {
	got, err := s.write(ctx, key, func(ctx context.Context, at store.Store) (r result, err error) {
		r.Item, r.done, err = at.CompareAndSwap(ctx, key, expected, value)
		return r, err
	})
	return got.Item, got.done, err
}

// CompareAndDelete implements [store.Store].
func (s *Store) CompareAndDelete(ctx context.Context, key store.Key, expected wire.Version) (store.Item, bool, error) {
	got, err := s.write(ctx, key, func(ctx context.Context, at store.Store) (r result, err error) {
		r.Item, r.done, err = at.CompareAndDelete(ctx, key, expected)
		return r, err
	})
	return got.Item, got.done, err
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, key store.Key) (wire.Version, error) {
	got, err := s.write(ctx, key, func(ctx context.Context, at store.Store) (r result, err error) {
		r.Version, err = at.Delete(ctx, key)
		return r, err
	})
	return got.Version, err
}

// Transacts implements [store.Store].
func (s *Store) Transacts(_ string, v wire.Version) bool { return durable.IsVersion(v) }

// Transact implements [store.Store] for durable keys. It refuses volatile keys. It also refuses
// missing keys if the default would make them volatile.
func (s *Store) Transact(ctx context.Context, t store.Transaction) (store.Transacted, error) {
	d := s.of(t.Namespace)
	if !d.Both {
		first, _ := s.stores(t.Namespace)
		return first.Transact(ctx, t)
	}
	certain := map[string]bool{} // keys that certainly exist when the transaction is executed
	for _, c := range t.Compare {
		certain[c.Name] = durable.IsVersion(c.Version) && !t.CheckOnly
	}
	for _, name := range t.Names() {
		if certain[name] {
			continue
		}
		if err := s.checkDurable(ctx, store.Key{Namespace: t.Namespace, Name: name}, d); err != nil {
			return store.Transacted{}, err
		}
	}
	if !d.Durable { // if the key is removed in the meantime, the transaction must not create it again
		ctx = store.WithoutCreating(ctx, store.Volatile(store.Key{Namespace: t.Namespace, Name: t.Names()[0]}))
	}
	return s.durable.Transact(ctx, t)
}

// checkDurable returns an error unless a key is durable, or would be durable if it were created.
// The namespace may have keys of both kinds. If a key is in both stores, the default store decides,
// as in Get.
func (s *Store) checkDurable(ctx context.Context, key store.Key, d Default) error {
	first, other := s.stores(key.Namespace)
	got, err := first.Get(ctx, key, false)
	if err == nil && got.Version == 0 {
		first = other
		got, err = other.Get(ctx, key, false)
	}
	switch {
	case err != nil:
		return err
	case got.Version == 0 && d.Durable, got.Version != 0 && first == s.durable:
		return nil
	}
	return store.Volatile(key)
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, namespace, prefix string) ([]store.Key, error) {
	first, other := s.stores(namespace)
	keys, err := first.List(ctx, namespace, prefix)
	if err != nil || other == nil {
		return keys, err
	}
	more, err := other.List(ctx, namespace, prefix)
	if err != nil {
		return nil, err
	}
	keys = append(keys, more...)
	slices.SortFunc(keys, func(a, b store.Key) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(keys), nil
}

// Page implements [store.Store].
func (s *Store) Page(ctx context.Context, r store.Range) (store.Page, error) {
	first, other := s.stores(r.Namespace)
	page, err := first.Page(ctx, r)
	if err != nil || other == nil {
		return page, err
	}
	more, err := other.Page(ctx, r)
	if err != nil {
		return store.Page{}, err
	}
	return store.Merge(page, more, r.Most), nil
}

// Watch implements [store.Store]. It ends with CodeUnavailable when the namespace may also have
// keys of the other kind from now on.
func (s *Store) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.mu.Lock()
	d := s.of(w.Namespace) // mu is held, so Changed runs either before this line or after the watch is registered
	if d.Both {
		s.mu.Unlock()
		return s.watchBoth(ctx, w, tell)
	}
	mine := &alone{w.Namespace, d.Durable, end}
	s.alone[mine] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.alone, mine)
	}()
	at := s.volatile
	if d.Durable {
		at = s.durable
	}
	err := at.Watch(ctx, w, tell)
	if context.Cause(ctx) == error(errOther) {
		return errOther
	}
	return err
}

// watchBoth watches in both stores. It reports that a key does not exist only when both stores have
// reported that.
func (s *Store) watchBoth(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var mu sync.Mutex // guards the reported state, and serializes calls of tell
	absent, told := map[string]int{}, map[string]bool{}
	both := func(changes []store.Change) {
		mu.Lock()
		defer mu.Unlock()
		changes = slices.DeleteFunc(slices.Clone(changes), func(c store.Change) bool {
			if c.Version != 0 {
				told[c.Key.Name] = true
				return false
			}
			absent[c.Key.Name]++
			return told[c.Key.Name] || absent[c.Key.Name] != 2
		})
		if len(changes) > 0 {
			tell(changes)
		}
	}
	errs := make(chan error, 2)
	for kind, at := range []store.Store{s.volatile, s.durable} {
		mine := w
		mine.After = map[string]wire.Version{}
		for name, v := range w.After {
			if durable.IsVersion(v) == (kind == 1) {
				mine.After[name] = v
			}
		}
		go func() { errs <- at.Watch(ctx, mine, both) }()
	}
	err := <-errs
	end(err)
	<-errs
	return err
}

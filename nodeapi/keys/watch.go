package keys

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/nodeapi/watch"
	"github.com/netcraq/netcraq/nodeapi/watch/watchrules"
)

// newHub creates the hub for the watches of a store. Periodic reads find every change at most one
// interval after it. Keys whose commits the Push reports are read once per round instead, because
// the Push usually reports a change sooner.
func newHub(s *Store) *watch.Hub {
	config := watch.Config{Round: s.o.Round, Unhelped: s.o.Interval, Listing: s.o.Interval}
	if s.o.Push != nil {
		config.Follow = func(id wire.Key) (stop func()) {
			return s.o.Push.Follow(id, func(n News) {
				switch {
				case n.Key != id:
				case n.Version == 0:
					s.hub.SuspectID(id)
				default:
					s.hub.Notified(id, n.Version, n.Found, n.Value)
				}
			})
		}
	}
	return watch.NewHub(&reader{s: s, lists: map[string]*list{}}, config)
}

// Watch implements [store.Store]. It reports the newest version of a key as soon as the Push
// reports it. Otherwise it reports the version at most one interval after the commit, or one round
// if the Push should have reported it. This takes longer only while the key's chain does not
// answer, or while the controller does not answer and the key has to be looked up. If a key is
// removed from the network with its value, Watch reports that it is not found, at a version above
// the last version.
func (s *Store) Watch(ctx context.Context, what store.Watch, tell func([]store.Change)) error {
	return s.hub.Watch(ctx, what, tell)
}

// reader reads keys for watches. For names that it does not know, it requests one list of the
// namespace instead of looking up each name.
type reader struct {
	s *Store

	mu    sync.Mutex
	lists map[string]*list // the newest list of each namespace
}

// list is the newest list of the names in a namespace.
type list struct {
	mu    sync.Mutex
	began time.Time
	names map[string]bool
}

var _ watch.Reader = (*reader)(nil)

// Read implements [watch.Reader].
func (r *reader) Read(ctx context.Context, key store.Key) (watchrules.Reading, error) {
	out := watchrules.Reading{Item: store.Item{Key: key}}
	if _, _, known := r.s.names.Place(name(key)); !known {
		there, err := r.listed(ctx, key, time.Now())
		if err != nil || !there {
			return out, err
		}
	}
	var err error
	if out.Item, err = r.s.Get(ctx, key, false); err != nil {
		return out, err
	}
	id, state, known := r.s.names.Place(name(key))
	if !known {
		return out, nil
	}
	// Compute the difference between the versions of the KEY_ID and of the name from this example
	// version.
	const example = 1 << 40
	out.ID, out.Offset = id, state(true, nil, example).Version-example
	out.Helped = r.s.o.Push != nil && r.s.o.Push.Helps(id)
	return out, nil
}

// listed reports whether a key exists. It uses a list of the namespace that was requested at
// notBefore or later.
func (r *reader) listed(ctx context.Context, key store.Key, notBefore time.Time) (bool, error) {
	r.mu.Lock()
	l := r.lists[key.Namespace]
	if l == nil {
		l = &list{}
		r.lists[key.Namespace] = l
	}
	r.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.Before(notBefore) {
		began := time.Now()
		keys, err := r.List(ctx, key.Namespace, "")
		if err != nil {
			return false, err
		}
		l.began, l.names = began, make(map[string]bool, len(keys))
		for _, k := range keys {
			l.names[k.Name] = true
		}
	}
	return l.names[key.Name], nil
}

// List implements [watch.Reader].
func (r *reader) List(ctx context.Context, namespace, prefix string) ([]store.Key, error) {
	keys, err := r.s.list(ctx, namespace, prefix)
	if err != nil {
		return nil, r.s.failure(store.Key{Namespace: namespace, Name: prefix}, err)
	}
	out := make([]store.Key, 0, len(keys))
	for i := range keys {
		ns, key, ok := nodeapi.ParseKeyName(keys[i].Name)
		if !ok || ns != namespace {
			continue
		}
		if _, _, known := r.s.names.Place(keys[i].Name); !known {
			r.s.names.Learn(&keys[i])
		}
		out = append(out, store.Key{Namespace: ns, Name: key})
	}
	slices.SortFunc(out, func(a, b store.Key) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

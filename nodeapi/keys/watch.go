package keys

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/wire"
)

// Watches. All of a store share one set of keys that are looked at: in rounds, each key is read,
// and the directory is listed for the namespaces of which keys by prefix are watched, or keys that
// are not there yet. That is the way of repair: it finds everything, an interval later at most,
// whatever else has been missed. A Push tells sooner.

const (
	// readsAtOnce of a round.
	readsAtOnce = 64
	// lookTime bounds one read or list.
	lookTime = 5 * time.Second
)

// watched is a key that somebody watches.
type watched struct {
	key   store.Key
	known bool // item is what was seen last
	item  store.Item
	edit  uint64            // counts what was seen
	subs  map[*watcher]bool // true: for its name, and not for a prefix alone

	follows wire.Key // by the Push
	stop    func()   // nil: it follows nothing
}

type watches struct {
	s    *Store
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup
	wake chan struct{}

	mu       sync.Mutex
	keys     map[store.Key]*watched
	prefixes map[string]map[*watcher]string // by namespace
	fresh    map[*watcher]bool              // not looked at yet
	hurry    map[store.Key]bool             // to be read at once
}

func newWatches(s *Store) *watches {
	w := &watches{s: s, wake: make(chan struct{}, 1), keys: map[store.Key]*watched{},
		prefixes: map[string]map[*watcher]string{}, fresh: map[*watcher]bool{}, hurry: map[store.Key]bool{}}
	w.ctx, w.end = context.WithCancel(context.Background())
	w.work.Go(w.run)
	return w
}

func (w *watches) close() {
	w.end()
	w.work.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		k.unfollow()
	}
}

func (k *watched) unfollow() {
	if k.stop != nil {
		k.stop()
		k.stop = nil
	}
}

// run looks, in rounds, and at what is new in between.
func (w *watches) run() {
	next := time.Now().Add(w.s.o.Interval)
	for {
		timer := time.NewTimer(time.Until(next))
		select {
		case <-w.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			w.round()
			next = time.Now().Add(w.s.o.Interval)
		case <-w.wake:
			timer.Stop()
			w.between()
		}
	}
}

func (w *watches) soon() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// round looks at everything.
func (w *watches) round() {
	w.mu.Lock()
	clear(w.fresh)
	clear(w.hurry)
	namespaces := map[string]bool{}
	for ns := range w.prefixes {
		namespaces[ns] = true
	}
	all := map[store.Key]*watched{}
	for key, k := range w.keys {
		all[key] = k
		if k.known && !k.item.Found && k.item.Version == 0 || !k.known {
			namespaces[key.Namespace] = true
		}
	}
	w.mu.Unlock()
	w.look(namespaces, all)
}

// between looks at what has come since the last round.
func (w *watches) between() {
	w.mu.Lock()
	namespaces := map[string]bool{}
	all := map[store.Key]*watched{}
	for f := range w.fresh {
		namespaces[f.what.Namespace] = true
		for _, name := range f.what.Keys {
			key := store.Key{Namespace: f.what.Namespace, Name: name}
			if k := w.keys[key]; k != nil {
				all[key] = k
			}
		}
	}
	for key := range w.hurry {
		if k := w.keys[key]; k != nil {
			all[key] = k
		}
	}
	clear(w.fresh)
	clear(w.hurry)
	w.mu.Unlock()
	w.look(namespaces, all)
}

// look lists namespaces and reads keys: all that are given, and of the namespaces those whose
// prefix is watched.
func (w *watches) look(namespaces map[string]bool, all map[store.Key]*watched) {
	w.mu.Lock()
	edits := map[*watched]uint64{}
	for _, k := range all {
		edits[k] = k.edit
	}
	w.mu.Unlock()
	there := map[store.Key]bool{}
	listed := map[string]bool{}
	for ns := range namespaces {
		ctx, cancel := context.WithTimeout(w.ctx, lookTime)
		keys, err := w.s.list(ctx, ns, "")
		cancel()
		if err != nil { // without a controller, what is known is read
			continue
		}
		listed[ns] = true
		w.mu.Lock()
		for i := range keys {
			_, name, _ := node.ParseKeyName(keys[i].Name)
			key := store.Key{Namespace: ns, Name: name}
			there[key] = true
			if _, _, known := w.s.names.Place(keys[i].Name); !known {
				w.s.names.Learn(&keys[i])
			}
			for sub, prefix := range w.prefixes[ns] {
				if strings.HasPrefix(name, prefix) {
					k := w.subscribe(sub, key, false)
					all[key] = k
				}
			}
		}
		w.mu.Unlock()
	}
	var work sync.WaitGroup
	slots := make(chan struct{}, readsAtOnce)
	for key, k := range all {
		if listed[key.Namespace] && !there[key] {
			w.gone(k, edits[k])
			continue
		}
		if !listed[key.Namespace] && namespaces[key.Namespace] {
			if _, _, known := w.s.names.Place(name(key)); !known {
				continue // it would be looked up, and nobody answers
			}
		}
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(w.ctx, lookTime)
			defer cancel()
			if got, err := w.s.Get(ctx, key, false); err == nil {
				w.seen(k, got)
			}
		})
	}
	work.Wait()
}

// subscribe has a watcher told of a key. w.mu is held.
func (w *watches) subscribe(sub *watcher, key store.Key, byName bool) *watched {
	k := w.keys[key]
	if k == nil {
		k = &watched{key: key, subs: map[*watcher]bool{}}
		w.keys[key] = k
	}
	_, had := k.subs[sub]
	k.subs[sub] = k.subs[sub] || byName
	if !had && k.known {
		sub.add(k.item, false)
	}
	return k
}

// unsubscribe ends that. w.mu is held.
func (w *watches) unsubscribe(sub *watcher, k *watched) {
	delete(k.subs, sub)
	if len(k.subs) == 0 {
		k.unfollow()
		delete(w.keys, k.key)
	}
}

// seen takes what a key is now, as a read or the Push has it.
func (w *watches) seen(k *watched, now store.Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[k.key] != k {
		return
	}
	w.follow(k)
	if k.known && now.Version <= k.item.Version {
		// It is older, or the same; or the key has been made anew and not been written, which is as
		// good as not there.
		if !k.item.Found || now.Found || now.Version != 0 {
			return
		}
		now.Version = k.item.Version + 1 // the removal's was higher than that one
	}
	k.known, k.item = true, now
	k.edit++
	for sub := range k.subs {
		sub.add(now, false)
	}
}

// gone takes it that a key is not there, if nothing was seen of it since the list was asked for.
func (w *watches) gone(k *watched, edit uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[k.key] != k || k.edit != edit {
		return
	}
	was := k.item
	now := store.Item{Key: k.key}
	if was.Found { // it was removed as it was: the version of that is above this one
		now.Version = was.Version + 1
	}
	tell := !k.known || was.Found
	k.known, k.item = true, now
	k.edit++
	k.unfollow()
	for sub, byName := range maps.Clone(k.subs) {
		if tell {
			sub.add(now, !byName)
		}
		if !byName { // the list will say when it is back
			w.unsubscribe(sub, k)
		}
	}
	k.item.Version = 0 // what comes next is new
}

// follow has the Push tell of the KEY_ID that a key has now. w.mu is held.
func (w *watches) follow(k *watched) {
	if w.s.o.Push == nil {
		return
	}
	id, state, known := w.s.names.Place(name(k.key))
	if !known || k.stop != nil && k.follows == id {
		return
	}
	k.unfollow()
	k.follows = id
	k.stop = w.s.o.Push.Follow(id, func(n News) {
		if n.Key != id {
			return
		}
		if n.Version == 0 {
			w.mu.Lock()
			w.hurry[k.key] = true
			w.mu.Unlock()
			w.soon()
			return
		}
		w.seen(k, item(k.key, state(n.Found, n.Value, n.Version)))
	})
	// What was committed before it follows is read once more.
	w.hurry[k.key] = true
	w.soon()
}

// watcher is one call of Watch.
type watcher struct {
	what  store.Watch
	ready chan struct{}

	mu      sync.Mutex
	pending map[string]pending
	told    map[string]wire.Version
}

type pending struct {
	item   store.Item
	forget bool // when it is told
}

// add has a key's newest state told.
func (s *watcher) add(i store.Item, forget bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[i.Key.Name] = pending{i, forget}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take is what is to be told.
func (s *watcher) take() (out []store.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.pending {
		last, before := s.told[name]
		after, has := s.what.After[name]
		s.told[name] = p.item.Version
		if p.forget {
			delete(s.told, name)
		}
		c := store.Change{Item: p.item}
		switch {
		case before && p.item.Version == last, !before && has && p.item.Version <= after:
			continue
		case before && last != 0 && p.item.Version > last:
			// The sequence goes on from version to version, whatever becomes of the epoch.
			c.Overtaken = uint64(p.item.Version-last)&(1<<48-1) - 1
		}
		out = append(out, c)
	}
	clear(s.pending)
	return out
}

// Watch implements [store.Store]. A key's newest version is told an interval after it was committed
// at the latest, or as soon as the Push tells of it; later only while neither the key's chain nor,
// where it has to be looked up, the controller answers. A key that is removed from the network with
// its value is told as one that is not found, at a version above the last.
func (s *Store) Watch(ctx context.Context, what store.Watch, tell func([]store.Change)) error {
	w := s.watches
	sub := &watcher{what: what, ready: make(chan struct{}, 1), pending: map[string]pending{},
		told: map[string]wire.Version{}}
	w.mu.Lock()
	for _, name := range what.Keys {
		w.subscribe(sub, store.Key{Namespace: what.Namespace, Name: name}, true)
	}
	if what.Prefix != nil {
		if w.prefixes[what.Namespace] == nil {
			w.prefixes[what.Namespace] = map[*watcher]string{}
		}
		w.prefixes[what.Namespace][sub] = *what.Prefix
	}
	w.fresh[sub] = true
	w.mu.Unlock()
	w.soon()
	defer w.leave(sub)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ctx.Done():
			return &node.Error{Code: node.CodeDraining, Message: "the node's store is closed"}
		case <-sub.ready:
			if out := sub.take(); len(out) > 0 {
				tell(out)
			}
		}
	}
}

// leave ends a watcher.
func (w *watches) leave(sub *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fresh, sub)
	ns := sub.what.Namespace
	if delete(w.prefixes[ns], sub); len(w.prefixes[ns]) == 0 {
		delete(w.prefixes, ns)
	}
	if sub.what.Prefix == nil {
		for _, name := range sub.what.Keys {
			if k := w.keys[store.Key{Namespace: ns, Name: name}]; k != nil {
				w.unsubscribe(sub, k)
			}
		}
		return
	}
	for _, k := range maps.Clone(w.keys) {
		if _, ok := k.subs[sub]; ok {
			w.unsubscribe(sub, k)
		}
	}
}

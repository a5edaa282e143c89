package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
)

// Memory is a Store in the memory of this process, for tests. It keeps all promises of a Store,
// except that its content is lost when the process ends.
type Memory struct {
	max int

	mu       sync.Mutex
	items    map[Key]Item
	writes   map[Key]uint64
	byKey    map[Key]map[*watcher]struct{}
	byPrefix map[*watcher]struct{}
}

// watcher is the state of a Watch. The channel changed has an element if something has changed
// since the watcher last checked.
type watcher struct {
	changed chan struct{}
	w       Watch
	known   map[Key]told
}

func (w *watcher) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// NewMemory makes an empty store whose values have at most max bytes.
func NewMemory(max int) *Memory {
	return &Memory{max: max, items: map[Key]Item{}, writes: map[Key]uint64{},
		byKey: map[Key]map[*watcher]struct{}{}, byPrefix: map[*watcher]struct{}{}}
}

var _ Store = (*Memory)(nil)

// MaxValue implements [Store].
func (m *Memory) MaxValue(string) int { return m.max }

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key Key, _ bool) (Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key), ctx.Err()
}

func (m *Memory) get(key Key) Item {
	item := m.items[key]
	item.Key = key
	return item
}

// write writes the next version of a key. The caller holds m.mu.
func (m *Memory) write(key Key, found bool, value []byte) Item {
	item := Item{Key: key, Found: found, Version: wire.MakeVersion(1, m.items[key].Version.Sequence()+1),
		Value: slices.Clone(value)}
	m.items[key] = item
	m.writes[key]++
	for w := range m.byKey[key] {
		w.wake()
	}
	for w := range m.byPrefix {
		if w.w.Namespace == key.Namespace && strings.HasPrefix(key.Name, *w.w.Prefix) {
			w.wake()
		}
	}
	return item
}

func (m *Memory) fits(value []byte) error {
	if len(value) <= m.max {
		return nil
	}
	return &nodeapi.Error{Code: nodeapi.CodeTooLarge,
		Message: fmt.Sprintf("the value has %d bytes; a key's has at most %d", len(value), m.max)}
}

// Put implements [Store].
func (m *Memory) Put(ctx context.Context, key Key, value []byte) (wire.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fits(value); err != nil {
		return 0, err
	}
	if err := MayCreate(ctx); err != nil && m.items[key].Version == 0 {
		return 0, err
	}
	return m.write(key, true, value).Version, ctx.Err()
}

// CompareAndSwap implements [Store].
func (m *Memory) CompareAndSwap(ctx context.Context, key Key, expected wire.Version, value []byte) (Item, bool,
	error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fits(value); err != nil {
		return Item{}, false, err
	}
	if item := m.get(key); item.Version != expected {
		return item, false, ctx.Err()
	}
	if err := MayCreate(ctx); err != nil && expected == 0 {
		return Item{}, false, err
	}
	return m.write(key, true, value), true, ctx.Err()
}

// CompareAndDelete implements [Store].
func (m *Memory) CompareAndDelete(ctx context.Context, key Key, expected wire.Version) (Item, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if item := m.get(key); item.Version != expected || !item.Found {
		return item, item.Version == expected, ctx.Err()
	}
	return m.write(key, false, nil), true, ctx.Err()
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key Key) (wire.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if item := m.get(key); !item.Found {
		return item.Version, ctx.Err()
	}
	return m.write(key, false, nil).Version, ctx.Err()
}

// Transact implements [Store].
func (m *Memory) Transact(ctx context.Context, t Transaction) (Transacted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.CheckOnly {
		return Transacted{}, ctx.Err()
	}
	at := func(name string) Item { return m.get(Key{t.Namespace, name}) }
	for _, c := range t.Compare {
		if at(c.Name).Version != c.Version {
			return Transacted{}, ctx.Err()
		}
	}
	for _, w := range t.Write {
		if err := m.fits(w.Value); err != nil {
			return Transacted{}, err
		}
		if err := MayCreate(ctx); err != nil && !w.Delete && at(w.Name).Version == 0 {
			return Transacted{}, err
		}
	}
	out := Transacted{Done: true}
	for _, w := range t.Write {
		item := at(w.Name)
		if !w.Delete || item.Version != 0 {
			item = m.write(item.Key, !w.Delete, w.Value)
		}
		out.Versions = append(out.Versions, item.Version)
	}
	return out, ctx.Err()
}

// Transacts implements [Store].
func (m *Memory) Transacts(string, wire.Version) bool { return true }

// List implements [Store].
func (m *Memory) List(ctx context.Context, namespace, prefix string) ([]Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list(namespace, prefix), ctx.Err()
}

// Page implements [Store].
func (m *Memory) Page(ctx context.Context, r Range) (Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out Page
	for bytes, keys := 0, m.list(r.Namespace, r.Prefix); len(keys) > 0; keys = keys[1:] {
		if keys[0].Name <= r.After {
			continue
		}
		if len(out.Names) == r.Most || bytes >= r.Bytes {
			out.More = true
			break
		}
		item := m.get(keys[0])
		bytes += len(item.Value)
		out.Names = append(out.Names, Listed{item, true})
	}
	return out, ctx.Err()
}

func (m *Memory) list(namespace, prefix string) []Key {
	var keys []Key
	for k := range m.items {
		if k.Namespace == namespace && strings.HasPrefix(k.Name, prefix) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return keys
}

// follow registers a watcher. The watcher stays registered until unfollow.
func (m *Memory) follow(w Watch) *watcher {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &watcher{changed: make(chan struct{}, 1), w: w, known: map[Key]told{}}
	if w.Prefix != nil {
		m.byPrefix[f] = struct{}{}
	}
	for _, name := range w.Keys {
		k := Key{w.Namespace, name}
		if m.byKey[k] == nil {
			m.byKey[k] = map[*watcher]struct{}{}
		}
		m.byKey[k][f] = struct{}{}
	}
	return f
}

func (m *Memory) unfollow(f *watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byPrefix, f)
	for _, name := range f.w.Keys {
		k := Key{f.w.Namespace, name}
		if delete(m.byKey[k], f); len(m.byKey[k]) == 0 {
			delete(m.byKey, k)
		}
	}
}

// told is the last report of a Watch about one key.
type told struct {
	version wire.Version
	writes  uint64
}

// news returns the changes that the watcher f has not reported yet.
func (m *Memory) news(f *watcher) (out []Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, known := &f.w, f.known
	var keys []Key
	for _, name := range w.Keys {
		keys = append(keys, Key{w.Namespace, name})
	}
	if w.Prefix != nil {
		keys = append(keys, m.list(w.Namespace, *w.Prefix)...)
	}
	for _, k := range keys {
		item := m.get(k)
		last, before := known[k]
		switch after, has := w.After[k.Name]; {
		case before && last.version == item.Version:
			continue
		case before:
			out = append(out, Change{item, m.writes[k] - last.writes - 1})
		case !has:
			out = append(out, Change{Item: item})
		case item.Version > after: // the difference of the versions is the number of writes
			out = append(out, Change{item, item.Version.Sequence() - after.Sequence() - 1})
		}
		known[k] = told{item.Version, m.writes[k]}
	}
	return out
}

// Watch implements [Store].
func (m *Memory) Watch(ctx context.Context, w Watch, tell func([]Change)) error {
	f := m.follow(w)
	defer m.unfollow(f)
	for {
		if out := m.news(f); len(out) > 0 {
			tell(out)
			continue
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

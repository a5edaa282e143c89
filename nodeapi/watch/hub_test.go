package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/nodeapi/watch/watchrules"
)

// memory is a store in memory. Its network sometimes fails.
type memory struct {
	*store.Memory
	mu    sync.Mutex
	ids   map[store.Key]wire.Key
	fail  error // if not nil, every read returns this error
	fails int   // percentage of reads that fail
	lists int
}

func (m *memory) Read(ctx context.Context, key store.Key) (watchrules.Reading, error) {
	m.mu.Lock()
	fail := m.fail
	if fail == nil && rand.IntN(100) < m.fails {
		fail = &nodeapi.Error{Code: nodeapi.CodeUnavailable, Message: "lost"}
	}
	m.mu.Unlock()
	if fail != nil {
		return watchrules.Reading{}, fail
	}
	item, err := m.Get(ctx, key, false)
	return watchrules.Reading{Item: item, ID: m.id(key), Helped: true}, err
}

func (m *memory) id(key store.Key) wire.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids[key] == 0 {
		m.ids[key] = wire.Key(1<<24 | (len(m.ids) + 1))
	}
	return m.ids[key]
}

func (m *memory) List(ctx context.Context, namespace, prefix string) ([]store.Key, error) {
	m.mu.Lock()
	m.lists++
	m.mu.Unlock()
	return m.Memory.List(ctx, namespace, prefix)
}

func newMemory() *memory { return &memory{Memory: store.NewMemory(100), ids: map[store.Key]wire.Key{}} }

// quick has short intervals, so that tests take little time.
var quick = Config{Round: 100 * time.Millisecond, Unhelped: 50 * time.Millisecond, Retry: time.Millisecond,
	Suspect: 5 * time.Millisecond, Listing: 10 * time.Millisecond}

// told has the changes that a watcher got.
type told struct {
	mu     sync.Mutex
	newest map[string]store.Change
	broken error
	total  int
}

func (x *told) tell(changes []store.Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range changes {
		if last, ok := x.newest[c.Key.Name]; ok && last.Version >= c.Version {
			x.broken = fmt.Errorf("%s: %v after %v", c.Key.Name, c.Version, last.Version)
		}
		x.newest[c.Key.Name] = c
		x.total++
	}
}

func (x *told) value(name string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return string(x.newest[name].Value)
}

func newTold() *told { return &told{newest: map[string]store.Change{}} }

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	poll.Until(t, 20*time.Second, what, holds)
}

// TestWatchers runs writers and watchers, some of which are slow. The network loses a third of its
// notifications and a fifth of the reads. At the end every watcher must have the newest version of
// each key.
func TestWatchers(t *testing.T) { synctest.Test(t, watchersSeeTheNewest) }

func watchersSeeTheNewest(t *testing.T) {
	m := newMemory()
	m.fails = 20
	h := NewHub(m, quick)
	defer h.Close()
	ctx, stop := context.WithCancel(t.Context())
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprint("k", i))
	}
	prefix := "k"
	var watchers sync.WaitGroup
	all := []*told{}
	for i := range 12 {
		x := newTold()
		all = append(all, x)
		w := store.Watch{Namespace: "n", Keys: names}
		if i%3 == 0 {
			w = store.Watch{Namespace: "n", Prefix: &prefix}
		}
		watchers.Go(func() {
			err := h.Watch(ctx, w, func(c []store.Change) {
				if i%4 == 3 {
					time.Sleep(20 * time.Millisecond)
				}
				x.tell(c)
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for j := range 200 {
				key := store.Key{Namespace: "n", Name: names[rand.IntN(len(names))]}
				value := []byte(fmt.Sprint(i, "/", j))
				version, err := m.Put(ctx, key, value)
				if err != nil {
					t.Error(err)
				}
				if rand.IntN(3) > 0 {
					h.Notified(m.id(key), version, true, value)
				}
				if j%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	writers.Wait()
	for _, name := range names {
		item, _ := m.Get(ctx, store.Key{Namespace: "n", Name: name}, false)
		for i, x := range all {
			until(t, fmt.Sprintf("watcher %d has %s of %s", i, item.Value, name), func() bool {
				return x.value(name) == string(item.Value)
			})
		}
	}
	stop()
	watchers.Wait()
	for _, x := range all {
		if x.broken != nil {
			t.Error(x.broken)
		}
	}
	if n := len(h.Watched()); n != 0 {
		t.Errorf("%d keys are watched by nobody", n)
	}
}

// TestPrefix checks watchers of the same prefix, while names with the prefix are created and
// deleted. All watchers must share one list.
func TestPrefix(t *testing.T) { synctest.Test(t, prefixIsListedOnce) }

func prefixIsListedOnce(t *testing.T) {
	m := newMemory()
	h := NewHub(m, quick)
	defer h.Close()
	prefix := "a/"
	x := newTold()
	for range 50 {
		go func() { _ = h.Watch(t.Context(), store.Watch{Namespace: "n", Prefix: &prefix}, x.tell) }()
	}
	for _, name := range []string{"a/1", "b/1", "a/2"} {
		if _, err := m.Put(t.Context(), store.Key{Namespace: "n", Name: name}, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "both are told", func() bool { return x.value("a/1") == "a/1" && x.value("a/2") == "a/2" })
	if x.value("b/1") != "" {
		t.Error("what is not under the prefix is told")
	}
	m.mu.Lock()
	before := m.lists
	m.mu.Unlock()
	const rounds = 20
	time.Sleep(rounds * quick.Listing)
	m.mu.Lock()
	defer m.mu.Unlock()
	// a list that began up to half a round ago may be used again
	if n := m.lists - before; n < rounds || n > 2*rounds {
		t.Errorf("%d lists in %d rounds", n, rounds)
	}
}

func TestEnds(t *testing.T) { synctest.Test(t, watchesEnd) }

func watchesEnd(t *testing.T) {
	m := newMemory()
	config := quick
	config.Keys = 1
	h := NewHub(m, config)
	m.fail = &nodeapi.Error{Code: nodeapi.CodePermissionDenied, Message: "no"}
	err := h.Watch(t.Context(), store.Watch{Namespace: "n", Keys: []string{"a"}}, newTold().tell)
	if !errors.Is(err, m.fail) {
		t.Errorf("a key that may not be read: %v", err)
	}
	err = h.Watch(t.Context(), store.Watch{Namespace: "n", Keys: []string{"a", "b"}}, newTold().tell)
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}) {
		t.Errorf("more keys than there may be: %v", err)
	}
	m.mu.Lock()
	m.fail = &nodeapi.Error{Code: nodeapi.CodeUnavailable, Message: "later"}
	m.mu.Unlock()
	x := newTold()
	ended := make(chan error)
	go func() { ended <- h.Watch(t.Context(), store.Watch{Namespace: "n", Keys: []string{"a"}}, x.tell) }()
	until(t, "it is watched", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.machine.Keys() == 1 })
	m.mu.Lock()
	m.fail = nil
	m.mu.Unlock()
	until(t, "it is told that there is none", func() bool { x.mu.Lock(); defer x.mu.Unlock(); return x.total == 1 })
	h.Close()
	if err := <-ended; !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeDraining}) {
		t.Errorf("a hub that closes: %v", err)
	}
}

// BenchmarkFanOut measures the time from one commit of a key until all of its 100,000 watchers have
// got it.
func BenchmarkFanOut(b *testing.B) {
	const watchers = 100_000
	m := newMemory()
	h := NewHub(m, Config{Round: time.Hour, Unhelped: time.Hour})
	defer h.Close()
	key := store.Key{Namespace: "n", Name: "a"}
	heard := make(chan struct{}, watchers)
	for range watchers {
		go func() {
			_ = h.Watch(b.Context(), store.Watch{Namespace: "n", Keys: []string{"a"}},
				func([]store.Change) { heard <- struct{}{} })
		}()
	}
	all := func() {
		for range watchers {
			<-heard
		}
	}
	all()
	b.ResetTimer()
	for range b.N {
		version, err := m.Put(b.Context(), key, []byte("x"))
		if err != nil {
			b.Fatal(err)
		}
		h.Notified(m.id(key), version, true, []byte("x"))
		all()
	}
}

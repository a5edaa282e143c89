package durable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// told has the changes that a watch has reported.
type told struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error

	mu      sync.Mutex
	hold    chan struct{} // if not nil, tell blocks until this channel is closed
	all     []store.Change
	waiting bool
}

func follow(t *testing.T, s *Store, w store.Watch) *told {
	t.Helper()
	w.Namespace = ns
	ctx, stop := context.WithCancel(t.Context())
	x := &told{t: t, stop: stop, done: make(chan error, 1)}
	go func() {
		x.done <- s.Watch(ctx, w, func(changes []store.Change) {
			x.mu.Lock()
			x.all = append(x.all, changes...)
			hold := x.hold
			x.waiting = hold != nil
			x.mu.Unlock()
			if hold != nil {
				<-hold
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		select {
		case <-x.done:
		case <-time.After(soon):
			t.Error("the watch does not end")
		}
	})
	return x
}

// newest returns the last reported change of a key. It also returns the number of its versions that
// were reported, or counted as skipped.
func (x *told) newest(name string) (last store.Change, n uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.all {
		if c.Key.Name == name {
			if c.Version < last.Version {
				x.t.Errorf("%s: %v after %v", name, c.Version, last.Version)
			}
			last, n = c, n+1+c.Overtaken
		}
	}
	return last, n
}

func (x *told) wait(name, value string, version wire.Version) {
	x.t.Helper()
	poll.Until(x.t, soon, fmt.Sprintf("%s is told to be %q at %v", name, value, version), func() bool {
		last, n := x.newest(name)
		return n > 0 && string(last.Value) == value && last.Found == (value != "") && last.Version == version
	}, func() string { x.mu.Lock(); defer x.mu.Unlock(); return fmt.Sprintf("%+v", x.all) })
}

// TestWatch checks that a watch reports the present state and later changes, and counts skipped
// versions. A watch must also be able to resume after the last reported version.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, other := open(t, Options{}, w.gateway()), open(t, Options{Kept: 500 * time.Millisecond}, w.gateway())
	put := func(name, value string) wire.Version {
		t.Helper()
		v, err := other.Put(t.Context(), key(name), []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a := put("p/a", "1")
	put("q", "1")
	prefix := "p/"
	byPrefix := follow(t, s, store.Watch{Prefix: &prefix})
	byName := follow(t, s, store.Watch{Keys: []string{"p/a", "p/b"}})
	byPrefix.wait("p/a", "1", a)
	byName.wait("p/a", "1", a)
	byName.wait("p/b", "", 0)
	a = put("p/a", "2")
	b := put("p/b", "1")
	for _, x := range []*told{byPrefix, byName} {
		x.wait("p/a", "2", a)
		x.wait("p/b", "1", b)
		if _, n := x.newest("p/a"); n != 2 {
			t.Errorf("of two versions of p/a %d were told or counted", n)
		}
	}
	gone, err := other.Delete(t.Context(), key("p/b"))
	if err != nil {
		t.Fatal(err)
	}
	byName.wait("p/b", "", gone)
	poll.Until(t, soon, "the tombstone goes", func() bool {
		got, err := s.Get(t.Context(), key("p/b"), false)
		return err == nil && got.Version == 0
	})

	// While tell blocks, newer versions replace the versions that were not reported.
	hold := make(chan struct{})
	byName.mu.Lock()
	byName.hold = hold
	byName.mu.Unlock()
	a = put("p/a", "3")
	poll.Until(t, soon, "it does not return", func() bool { byName.mu.Lock(); defer byName.mu.Unlock(); return byName.waiting })
	for i := range 10 {
		a = put("p/a", fmt.Sprint("later", i))
	}
	b = put("p/b", "anew")
	byPrefix.wait("p/b", "anew", b) // this watch has received the same events
	byName.mu.Lock()
	byName.hold = nil
	byName.mu.Unlock()
	close(hold)
	byName.wait("p/a", "later9", a)
	byName.wait("p/b", "anew", b)
	if _, n := byName.newest("p/a"); n != 13 {
		t.Errorf("of 13 versions of p/a %d were told or counted", n)
	}
	// the states are: never written, 1, deleted, and written again; the expiry of the tombstone is
	// not reported
	if _, n := byName.newest("p/b"); n != 4 {
		t.Errorf("of 4 states of p/b %d were told or counted", n)
	}
	if _, n := byPrefix.newest("q"); n != 0 {
		t.Error("q does not begin with p/")
	}
	byName.stop()

	// A watch that is resumed reports only newer versions, with the number of skipped versions.
	last := a
	for i := range 3 {
		a = put("p/a", fmt.Sprint("away", i))
	}
	again := follow(t, s, store.Watch{Keys: []string{"p/a", "p/b"}, After: map[string]wire.Version{"p/a": last, "p/b": b}})
	again.wait("p/a", "away2", a)
	b = put("p/b", "more")
	again.wait("p/b", "more", b)
	if _, n := again.newest("p/a"); n != 3 {
		t.Errorf("of 3 versions since %d were told or counted", n)
	}
	if _, n := again.newest("p/b"); n != 1 {
		t.Errorf("p/b was told %d times, once too often", n)
	}

	// The watch is resumed with a version of a key that now has no tombstone either. The watch must
	// report that the key does not exist.
	if gone, err = other.Delete(t.Context(), key("p/b")); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, soon, "the tombstone goes", func() bool {
		got, err := s.Get(t.Context(), key("p/b"), false)
		return err == nil && got.Version == 0
	})
	for _, what := range []store.Watch{{Prefix: &prefix}, {Keys: []string{"p/b"}}} {
		what.After = map[string]wire.Version{"p/b": b}
		late := follow(t, s, what)
		poll.Until(t, soon, "that it is gone is told", func() bool {
			c, n := late.newest("p/b")
			return n == 1 && !c.Found && c.Version >= gone
		})
	}
}

// TestWatchForgetsTombstones checks that a watch with a prefix forgets keys whose tombstones have
// expired, unless the watch also names these keys. If such a key is written again, skipped versions
// must still be counted.
func TestWatchForgetsTombstones(t *testing.T) {
	prefix := "job/"
	w := &watcher{w: store.Watch{Namespace: "n", Prefix: &prefix, Keys: []string{"named"}}, known: map[string]known{}, read: 1}
	revision := int64(0)
	entry := func(value string, created, count int64) *mvccpb.KeyValue {
		revision++
		return &mvccpb.KeyValue{Value: []byte(value), ModRevision: revision, CreateRevision: created, Version: count}
	}
	for i := range 1000 {
		name := fmt.Sprint("job/", i)
		if i == 0 {
			name = "named"
		}
		created := revision + 2
		_ = entry("overtaken", created, 1)
		out := w.is(nil, name, entry("1", created, 2))
		out = w.is(out, name, entry("", created, 3))
		revision++
		out = w.gone(out, name, version(revision))
		if len(out) != 2 || !out[0].Found || out[0].Overtaken != 1 || out[1].Found || out[1].Overtaken != 0 {
			t.Fatalf("%+v", out)
		}
	}
	if _, named := w.known["named"]; len(w.known) != 1 || !named {
		t.Errorf("%d names are remembered", len(w.known))
	}
}

// TestWatchOverOutage checks a watch that was cut off while etcd compacted events. It must read its
// keys and miss no change. The same holds for a watch that began while etcd was unavailable.
func TestWatchOverOutage(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	relay := newRelay(t, cluster.Endpoints()[0])
	s := open(t, Options{Patience: 100 * time.Millisecond}, relay.url)
	straight := open(t, Options{}, cluster.Endpoints()...)
	ctx := t.Context()
	put := func(name, value string) wire.Version {
		t.Helper()
		v, err := straight.Put(ctx, key(name), []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	prefix := ""
	a, b := put("a", "1"), put("b", "1")
	x := follow(t, s, store.Watch{Prefix: &prefix})
	x.wait("a", "1", a)
	x.wait("b", "1", b)

	relay.cut()
	for i := range 5 {
		a = put("a", fmt.Sprint("cut", i))
	}
	b, err := straight.Delete(ctx, key("b"))
	if err != nil {
		t.Fatal(err)
	}
	// remove the tombstone, as etcd does when the lease ends
	if _, err := straight.o.Etcd.now.Load().Delete(ctx, entryName("b")); err != nil {
		t.Fatal(err)
	}
	c := put("c", "1")
	at, _ := revision(c)
	if _, err := straight.o.Etcd.now.Load().Compact(ctx, at, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	began := follow(t, s, store.Watch{Keys: []string{"a"}})
	time.Sleep(300 * time.Millisecond) // give the watch time to try without success
	relay.mend()
	x.wait("a", "cut4", a)
	x.wait("c", "1", c)
	began.wait("a", "cut4", a)
	poll.Until(t, soon, "that b is gone is told", func() bool {
		last, _ := x.newest("b")
		return !last.Found && last.Version >= b
	})
	if _, n := x.newest("a"); n != 6 {
		t.Errorf("of 6 versions of a %d were told or counted", n)
	}
	a = put("a", "after")
	x.wait("a", "after", a)
	began.wait("a", "after", a)
}

// TestWatchMissesNothing runs several nodes that write at random. Each watcher must get the newest
// version of each key, and must report or count all versions.
func TestWatchMissesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const keys, writes = 5, 60
	var names []string
	for i := range keys {
		names = append(names, nameOf(key(fmt.Sprint("k", i))))
	}
	w.placeAll(names...)
	stores := []*Store{open(t, Options{}, w.gateway()), open(t, Options{}, w.gateway())}
	prefix := "k"
	var watching []*told
	for _, s := range stores {
		watching = append(watching, follow(t, s, store.Watch{Prefix: &prefix}),
			follow(t, s, store.Watch{Keys: []string{"k0", "k1", "k2", "k3", "k4"}}))
	}
	// wait until each watch of names has reported; a watch of an empty prefix reports nothing
	for i := range keys {
		watching[1].wait(fmt.Sprint("k", i), "", 0)
		watching[3].wait(fmt.Sprint("k", i), "", 0)
	}
	var mu sync.Mutex
	newest, count := map[string]store.Item{}, map[string]uint64{}
	var work sync.WaitGroup
	for i, s := range stores {
		work.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(i)))
			for n := range writes {
				name := fmt.Sprint("k", random.IntN(keys))
				value := fmt.Sprint(i, ".", n)
				v, err := s.Put(t.Context(), key(name), []byte(value))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				count[name]++
				if v > newest[name].Version {
					newest[name] = store.Item{Value: []byte(value), Version: v}
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	for i, x := range watching {
		for name, item := range newest {
			x.wait(name, string(item.Value), item.Version)
			_, n := x.newest(name)
			if i%2 == 1 {
				n-- // do not count the report that the key did not exist
			}
			if n > count[name] || i%2 == 1 && n != count[name] {
				t.Errorf("watch %d: of %d versions of %s %d were told or counted", i, count[name], name, n)
			}
		}
	}
}

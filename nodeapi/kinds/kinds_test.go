package kinds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/store"
)

const soon = 20 * time.Second

// counted is a store in memory that counts requests and can be made unavailable. In the durable
// store, versions are as high as those of durable keys.
type counted struct {
	*store.Memory
	above wire.Version
	mu    sync.Mutex
	calls int
	away  bool
}

func (c *counted) call() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.away {
		return nodeapi.Errorf(nodeapi.CodeUnavailable, "", "etcd is away")
	}
	return nil
}

func (c *counted) up(v wire.Version) wire.Version {
	if v != 0 {
		v += c.above
	}
	return v
}

func (c *counted) upped(i store.Item) store.Item { i.Version = c.up(i.Version); return i }

func (c *counted) down(v wire.Version) wire.Version {
	if v != 0 && v <= c.above {
		return 1 << 61 // no key of this store has this version
	}
	return v - min(v, c.above)
}

func (c *counted) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	if err := c.call(); err != nil {
		return store.Item{}, err
	}
	i, err := c.Memory.Get(ctx, key, eventual)
	return c.upped(i), err
}

func (c *counted) Put(ctx context.Context, key store.Key, value []byte) (wire.Version, error) {
	if err := c.call(); err != nil {
		return 0, err
	}
	v, err := c.Memory.Put(ctx, key, value)
	return c.up(v), err
}

func (c *counted) CompareAndSwap(ctx context.Context, key store.Key, v wire.Version, value []byte) (store.Item, bool,
	error) {
	if err := c.call(); err != nil {
		return store.Item{}, false, err
	}
	i, done, err := c.Memory.CompareAndSwap(ctx, key, c.down(v), value)
	return c.upped(i), done, err
}

func (c *counted) CompareAndDelete(ctx context.Context, key store.Key, v wire.Version) (store.Item, bool, error) {
	if err := c.call(); err != nil {
		return store.Item{}, false, err
	}
	i, done, err := c.Memory.CompareAndDelete(ctx, key, c.down(v))
	return c.upped(i), done, err
}

func (c *counted) Delete(ctx context.Context, key store.Key) (wire.Version, error) {
	if err := c.call(); err != nil {
		return 0, err
	}
	v, err := c.Memory.Delete(ctx, key)
	return c.up(v), err
}

func (c *counted) Transact(ctx context.Context, t store.Transaction) (store.Transacted, error) {
	if err := c.call(); err != nil {
		return store.Transacted{}, err
	}
	t.Compare = slices.Clone(t.Compare)
	for i := range t.Compare {
		t.Compare[i].Version = c.down(t.Compare[i].Version)
	}
	got, err := c.Memory.Transact(ctx, t)
	for i, v := range got.Versions {
		got.Versions[i] = c.up(v)
	}
	return got, err
}

func (c *counted) Page(ctx context.Context, r store.Range) (store.Page, error) {
	if err := c.call(); err != nil {
		return store.Page{}, err
	}
	p, err := c.Memory.Page(ctx, r)
	for i := range p.Names {
		p.Names[i].Item = c.upped(p.Names[i].Item)
	}
	return p, err
}

func (c *counted) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	after := map[string]wire.Version{}
	for name, v := range w.After {
		after[name] = c.down(v)
	}
	w.After = after
	return c.Memory.Watch(ctx, w, func(changes []store.Change) {
		for i := range changes {
			changes[i].Item = c.upped(changes[i].Item)
		}
		tell(changes)
	})
}

// asked returns the number of requests to the store since the last call of asked.
func (c *counted) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.calls
	c.calls = 0
	return n
}

func (c *counted) leave(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

type world struct {
	*Store
	Defaults
	volatile, durable *counted
	mu                sync.Mutex
	said              map[string]bool
}

func newWorld() *world {
	w := &world{volatile: &counted{Memory: store.NewMemory(100)}, said: map[string]bool{},
		durable: &counted{Memory: store.NewMemory(1000), above: 1 << 62}}
	w.Said = func(ns string) (durable, said bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		durable, said = w.said[ns]
		return durable, said
	}
	w.Store = New(w.volatile, w.durable, w.Of)
	return w
}

func (w *world) say(ns string, durable bool) {
	w.mu.Lock()
	w.said[ns] = durable
	w.mu.Unlock()
	w.Changed()
}

func key(name string) store.Key { return store.Key{Namespace: "ns", Name: name} }

// TestKeysStayWhatTheyAre checks that an existing key keeps its kind in every call, even if the
// default changes.
func TestKeysStayWhatTheyAre(t *testing.T) {
	ctx := t.Context()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprint("first durable ", durable), func(t *testing.T) {
			w := newWorld()
			put := func(name, value string) wire.Version {
				t.Helper()
				v, err := w.Put(ctx, key(name), []byte(value))
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			kind := func(name string, v wire.Version, want bool) {
				t.Helper()
				if got := v > 1<<62; got != want {
					t.Errorf("%s at %v is durable: %v", name, v, got)
				}
			}
			w.say("ns", durable)
			if w.Durable("ns") != durable {
				t.Error("the default is another")
			}
			kind("old", put("old", "1"), durable)
			w.say("ns", !durable)
			kind("new", put("new", "1"), !durable)
			v := put("old", "2")
			kind("old", v, durable)
			got, done, err := w.CompareAndSwap(ctx, key("old"), 0, []byte("x"))
			if err != nil || done || string(got.Value) != "2" {
				t.Errorf("a swap on 0 of a key that is there: %+v, %v, %v", got, done, err)
			}
			got, done, err = w.CompareAndSwap(ctx, key("old"), v, []byte("3"))
			if err != nil || !done || got.Version <= v {
				t.Errorf("a swap: %+v, %v, %v", got, done, err)
			}
			kind("old", got.Version, durable)
			got, err = w.Get(ctx, key("old"), false)
			if err != nil || string(got.Value) != "3" {
				t.Errorf("%+v, %v", got, err)
			}
			all, err := w.List(ctx, "ns", "")
			if err != nil || len(all) != 2 || all[0].Name != "new" || all[1].Name != "old" {
				t.Errorf("listed: %v, %v", all, err)
			}
			page, err := w.Page(ctx, store.Range{Namespace: "ns", Most: 10, Bytes: 100})
			if err != nil || len(page.Names) != 2 || page.Names[0].Key != key("new") ||
				page.Names[1].Key != key("old") || page.More {
				t.Errorf("a page: %+v, %v", page, err)
			}
			gone, done, err := w.CompareAndDelete(ctx, key("old"), got.Version)
			if err != nil || !done || gone.Version <= got.Version {
				t.Errorf("deleted: %+v, %v, %v", gone, done, err)
			}
			kind("old", put("old", "4"), durable) // the store still knows a deleted key
			if v, err := w.Delete(ctx, key("old")); err != nil {
				t.Error(err)
			} else {
				kind("old", v, durable)
			}
			if v, err := w.Delete(ctx, key("never")); err != nil || v != 0 {
				t.Errorf("deleting what never was: %v, %v", v, err)
			}
			if got, done, err := w.CompareAndSwap(ctx, key("fresh"), 0, []byte("1")); err != nil || !done {
				t.Errorf("made by a swap: %+v, %v, %v", got, done, err)
			} else {
				kind("fresh", got.Version, !durable)
			}
			if _, done, err := w.CompareAndSwap(ctx, key("none"), 77, []byte("1")); err != nil || done {
				t.Errorf("a swap of what never was: %v, %v", done, err)
			}
			refusal := nodeapi.Errorf(nodeapi.CodePermissionDenied, "", "may make none")
			may := store.WithoutCreating(ctx, refusal)
			if _, err := w.Put(may, key("more"), []byte("1")); !errors.Is(err, refusal) {
				t.Errorf("who may make none: %v", err)
			}
			if _, err := w.Put(may, key("old"), []byte("1")); err != nil {
				t.Errorf("who may make none writes what is there: %v", err)
			}
		})
	}
}

// TestLengths checks values that are too long for one kind but not for the other. The kind of the
// key must decide whether a value is accepted.
func TestLengths(t *testing.T) {
	ctx, w := t.Context(), newWorld()
	long := make([]byte, 500)
	tooLarge := &nodeapi.Error{Code: nodeapi.CodeTooLarge}
	w.say("ns", false)
	if _, err := w.Put(ctx, key("v"), long); !errors.Is(err, tooLarge) || w.MaxValue("ns") != 100 {
		t.Errorf("volatile: %v, %d", err, w.MaxValue("ns"))
	}
	if _, err := w.Put(ctx, key("v"), []byte("1")); err != nil {
		t.Error(err)
	}
	w.say("ns", true)
	if _, err := w.Put(ctx, key("d"), long); err != nil || w.MaxValue("ns") != 1000 {
		t.Errorf("durable: %v, %d", err, w.MaxValue("ns"))
	}
	if _, err := w.Put(ctx, key("v"), long); !errors.Is(err, tooLarge) {
		t.Errorf("volatile still: %v", err)
	}
	w.say("ns", false)
	if _, err := w.Put(ctx, key("d"), long); err != nil {
		t.Errorf("durable still: %v", err)
	}
}

// TestCosts checks to which store requests go. If a namespace has keys of one kind, requests go
// only to that store, and the other store may be unavailable. If a namespace has keys of both
// kinds, requests for existing keys of the default kind go only to the default store.
func TestCosts(t *testing.T) {
	ctx, w := t.Context(), newWorld()
	w.durable.leave(true)
	calls := func(name string) {
		t.Helper()
		if _, err := w.Put(ctx, key(name), []byte("1")); err != nil {
			t.Error(err)
		}
		if _, err := w.Get(ctx, key(name), false); err != nil {
			t.Error(err)
		}
	}
	calls("k")
	if _, err := w.Get(ctx, key("never"), false); err != nil || w.durable.asked() != 0 {
		t.Errorf("a volatile namespace asks for durable keys: %v", err)
	}
	w.say("ns", false)
	calls("k")
	if n := w.durable.asked(); n != 0 {
		t.Errorf("for keys that are there the other is asked %d times", n)
	}
	away := &nodeapi.Error{Code: nodeapi.CodeUnavailable}
	for name, do := range map[string]func() error{
		"get": func() error { _, err := w.Get(ctx, key("never"), false); return err },
		"put": func() error { _, err := w.Put(ctx, key("never"), []byte("1")); return err },
		"page": func() error {
			_, err := w.Page(ctx, store.Range{Namespace: "ns", Most: 1, Bytes: 1})
			return err
		},
	} {
		if err := do(); !errors.Is(err, away) {
			t.Errorf("%s of what may be durable: %v", name, err)
		}
	}
	// Existing durable keys must be found even if the operator has configured no default.
	w.durable.leave(false)
	if v, err := w.Put(ctx, store.Key{Namespace: "other", Name: "k"}, []byte("1")); err != nil || v > 1<<62 {
		t.Errorf("%v, %v", v, err)
	}
	d, err := w.durable.Put(ctx, store.Key{Namespace: "other", Name: "d"}, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	w.Made(map[string]bool{"other": true})
	w.Changed()
	if got, err := w.Get(ctx, store.Key{Namespace: "other", Name: "d"}, false); err != nil || got.Version != d {
		t.Errorf("%+v, %v", got, err)
	}
}

// told has the changes that a watch has reported.
type told struct {
	mu   sync.Mutex
	all  []store.Change
	done chan error
}

func (w *world) follow(t *testing.T, what store.Watch) *told {
	x := &told{done: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() {
		x.done <- w.Watch(ctx, what, func(changes []store.Change) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.all = append(x.all, changes...)
		})
	}()
	return x
}

func (x *told) of(name string) (out []store.Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.all {
		if c.Key.Name == name {
			out = append(out, c)
		}
	}
	return out
}

func (x *told) wait(t *testing.T, name, value string, n int) {
	t.Helper()
	poll.Until(t, soon, fmt.Sprintf("%s is told to be %q, with %d changes", name, value, n), func() bool {
		all := x.of(name)
		return len(all) == n && string(all[n-1].Value) == value
	}, func() string { return fmt.Sprintf("%+v", x.of(name)) })
}

// TestWatch checks that watches see keys of both kinds. A watch that began while there was only one
// kind must end when there may be two kinds. A missing key must be reported once, when both stores
// have reported it.
func TestWatch(t *testing.T) {
	ctx, w := t.Context(), newWorld()
	put := func(name, value string) wire.Version {
		t.Helper()
		v, err := w.Put(ctx, key(name), []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := put("v", "1")
	prefix := ""
	first := w.follow(t, store.Watch{Namespace: "ns", Prefix: &prefix})
	stays := w.follow(t, store.Watch{Namespace: "quiet", Keys: []string{"k"}})
	first.wait(t, "v", "1", 1)
	stays.wait(t, "k", "", 1)
	w.say("ns", true)
	select {
	case err := <-first.done:
		if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(soon):
		t.Fatal("a watch of volatile keys goes on in a namespace that has others, too")
	}
	both := w.follow(t, store.Watch{Namespace: "ns", Prefix: &prefix, Keys: []string{"v", "d", "never"},
		After: map[string]wire.Version{"v": v}})
	both.wait(t, "never", "", 1)
	both.wait(t, "d", "", 1)
	d := put("d", "1")
	both.wait(t, "d", "1", 2)
	put("v", "2")
	both.wait(t, "v", "2", 1) // the version that the watch already knew was not reported
	again := w.follow(t, store.Watch{Namespace: "ns", Keys: []string{"v", "d"}, After: map[string]wire.Version{"d": d}})
	again.wait(t, "v", "2", 1)
	w.say("ns", false)
	put("d", "2")
	again.wait(t, "d", "2", 1)
	both.wait(t, "d", "2", 3)
	if len(both.of("never")) != 1 || len(stays.of("k")) != 1 {
		t.Error("what is not there is told again")
	}
	select {
	case err := <-stays.done:
		t.Errorf("another namespace's watch ended: %v", err)
	default:
	}
}

// TestTransact checks that a transaction may contain only durable keys. A key that is volatile, or
// would become volatile, must be refused, and nothing may be written.
func TestTransact(t *testing.T) {
	ctx, w := t.Context(), newWorld()
	volatile := &nodeapi.Error{Code: nodeapi.CodeInvalidArgument}
	put := func(names ...string) (x store.Transaction) {
		x.Namespace = "ns"
		for _, n := range names {
			x.Write = append(x.Write, store.Write{Name: n, Value: []byte("t")})
		}
		return x
	}
	compare := func(x store.Transaction, name string, v wire.Version) store.Transaction {
		x.Compare = append(x.Compare, store.Comparison{Name: name, Version: v})
		return x
	}
	check := func(what string, x store.Transaction, refused string) {
		t.Helper()
		for _, x.CheckOnly = range []bool{true, false} {
			got, err := w.Transact(ctx, x)
			switch {
			case refused == "" && (err != nil || got.Done == x.CheckOnly):
				t.Errorf("%s: %+v, %v", what, got, err)
			case refused != "" && (got.Done || !errors.Is(err, volatile) ||
				!strings.Contains(err.Error(), fmt.Sprintf("%q", refused))):
				t.Errorf("%s: %+v, %v", what, got, err)
			}
		}
	}
	make := func(durable bool, name string) wire.Version {
		t.Helper()
		w.say("ns", durable)
		v, err := w.Put(ctx, key(name), []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	other := put("k")
	other.Namespace = "other" // no default is configured for this namespace, so it has only volatile keys
	if _, err := w.Transact(ctx, other); err != nil || w.durable.asked() != 0 || w.volatile.asked() != 1 {
		t.Errorf("the transaction did not go to the volatile keys' store, which refuses it: %v", err)
	}
	d, v := make(true, "d"), make(false, "v")
	// In this namespace new keys are volatile.
	check("one that would be volatile", put("d", "new"), "new")
	check("one that would be, compared", compare(put("d"), "new", 0), "new")
	check("one that is, compared with its version", compare(put("d"), "v", v), "v")
	check("one that is", put("v", "d"), "v")
	gone := put("d")
	gone.Write = append(gone.Write, store.Write{Name: "v", Delete: true})
	check("one that is, deleted", gone, "v")
	check("a durable one", compare(put("d"), "d", d), "")
	// Now new keys of this namespace are durable.
	w.say("ns", true)
	check("one that is volatile still", put("d", "v"), "v")
	check("... compared", compare(put("d"), "v", 0), "v")
	check("... deleted", gone, "v")
	check("durable ones", compare(put("d", "new"), "never", 0), "")
	if got, err := w.Get(ctx, key("v"), false); err != nil || string(got.Value) != "1" {
		t.Errorf("the volatile key: %+v, %v", got, err)
	}
	if got, err := w.Get(ctx, key("new"), false); err != nil || got.Version <= 1<<62 {
		t.Errorf("the new key: %+v, %v", got, err)
	}
	w.durable.leave(true)
	if _, err := w.Transact(ctx, put("d")); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) {
		t.Errorf("while etcd is away: %v", err)
	}
}

// TestTransactOfAKeyInBoth checks a key that exists in both stores, because nodes with different
// defaults have created it. Each call must use the key in the default store. A transaction that
// compares the version from there must succeed.
func TestTransactOfAKeyInBoth(t *testing.T) {
	ctx, w := t.Context(), newWorld()
	service := coordination.New(w, coordination.Options{Sweep: -1})
	defer service.Close(context.Background())
	volatile, durable := cell.Cell{Value: []byte("volatile")}, cell.Cell{Value: []byte("durable")}
	for at, value := range map[store.Store][]byte{w.volatile: volatile.Encode(), w.durable: durable.Encode()} {
		if _, err := at.Put(ctx, key("k"), value); err != nil {
			t.Fatal(err)
		}
	}
	transact := func(value string) (coordination.Transacted, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return service.Transact(ctx, "ns", []coordination.Comparison{{Name: "k", Value: &value}},
			[]coordination.Write{{Name: "k", Value: []byte("written")}})
	}
	w.say("ns", false)
	for _, value := range []string{"volatile", "durable"} {
		if got, err := transact(value); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeInvalidArgument}) {
			t.Errorf("a key that is read as volatile, compared with %s: %+v, %v; want it refused", value, got, err)
		}
	}
	w.say("ns", true)
	if got, err := transact("durable"); err != nil || !got.Done {
		t.Errorf("a key that is read as durable: %+v, %v", got, err)
	}
}

// TestTransactCosts checks that a key is not searched in both stores if the transaction compares it
// with the version of a durable key.
func TestTransactCosts(t *testing.T) {
	ctx, w := t.Context(), newWorld()
	w.say("ns", true)
	x := store.Transaction{Namespace: "ns"}
	for _, n := range []string{"a", "b"} {
		v, err := w.Put(ctx, key(n), []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		x.Compare = append(x.Compare, store.Comparison{Name: n, Version: v})
		x.Write = append(x.Write, store.Write{Name: n, Value: []byte("2")})
	}
	w.durable.asked()
	w.volatile.asked()
	if got, err := w.Transact(ctx, x); err != nil || !got.Done {
		t.Errorf("%+v, %v", got, err)
	}
	if d, v := w.durable.asked(), w.volatile.asked(); d != 1 || v != 0 {
		t.Errorf("etcd was asked %d times, the switches %d times", d, v)
	}
}

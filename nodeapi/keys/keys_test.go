package keys_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/refchain"
	"github.com/netcraq/netcraq/client/refchain/refadmin"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/store"
)

type bed struct {
	t *testing.T
	*refadmin.Controller
	chains []*refchain.Chain
}

func newBed(t *testing.T, slots int) *bed {
	t.Helper()
	x := &bed{t: t}
	for id := range 2 {
		c, err := refchain.New(refchain.Config{ChainID: uint8(id + 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Close()
			if v := c.Violations(); len(v) > 0 {
				t.Error(v)
			}
		})
		x.chains = append(x.chains, c)
	}
	x.Controller = refadmin.New(slots, x.chains...)
	t.Cleanup(x.Controller.Close)
	return x
}

// store makes the store of another node.
func (x *bed) store(adjust ...func(*keys.Options)) *keys.Store {
	x.t.Helper()
	o := keys.Options{Admin: admin.NewClient(x.URL()), Node: "n", Sessions: 4, Interval: 50 * time.Millisecond}
	for _, a := range adjust {
		a(&o)
	}
	s, err := keys.New(x.t.Context(), o)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			x.t.Error(err)
		}
	})
	return s
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func key(name string) store.Key { return store.Key{Namespace: "shop", Name: name} }

func wantCode(t *testing.T, err error, code nodeapi.Code, words ...string) {
	t.Helper()
	var e *nodeapi.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%v, want %s", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) {
			t.Errorf("%q does not say %q", e.Message, w)
		}
	}
}

// TestStore checks that the store behaves like store.Memory, which is the reference for other
// tests.
func TestStore(t *testing.T) {
	x := newBed(t, 64)
	for name, s := range map[string]store.Store{"memory": store.NewMemory(16), "keys": x.store()} {
		t.Run(name, func(t *testing.T) {
			ctx := within(t)
			k := key("a/b")
			if got, err := s.Get(ctx, k, false); err != nil || got.Found || got.Version != 0 || got.Key != k {
				t.Error(got, err)
			}
			if v, err := s.Delete(ctx, k); v != 0 || err != nil {
				t.Error(v, err)
			}
			if got, ok, err := s.CompareAndDelete(ctx, k, 0); err != nil || !ok || got.Found {
				t.Error(got, ok, err)
			}
			if got, ok, err := s.CompareAndSwap(ctx, k, wire.MakeVersion(1, 1), []byte("no")); err != nil || ok ||
				got.Version != 0 {
				t.Error(got, ok, err)
			}
			got, ok, err := s.CompareAndSwap(ctx, k, 0, []byte("1"))
			if err != nil || !ok || !got.Found || string(got.Value) != "1" || got.Key != k {
				t.Fatal(got, ok, err)
			}
			first := got.Version
			if got, ok, err := s.CompareAndSwap(ctx, k, 0, []byte("2")); err != nil || ok || got.Version != first ||
				string(got.Value) != "1" {
				t.Error(got, ok, err)
			}
			v, err := s.Put(ctx, k, []byte("3"))
			if err != nil || v <= first {
				t.Error(v, err)
			}
			for _, eventual := range []bool{false, true} {
				if got, err := s.Get(ctx, k, eventual); err != nil || string(got.Value) != "3" || got.Version != v {
					t.Error(got, err)
				}
			}
			if got, ok, err := s.CompareAndDelete(ctx, k, first); err != nil || ok || got.Version != v {
				t.Error(got, ok, err)
			}
			got, ok, err = s.CompareAndDelete(ctx, k, v)
			if err != nil || !ok || got.Found || got.Version <= v {
				t.Error(got, ok, err)
			}
			if again, err := s.Get(ctx, k, false); err != nil || again.Found || again.Version != got.Version {
				t.Error(again, err)
			}
			_, err = s.Put(ctx, k, make([]byte, 17))
			wantCode(t, err, nodeapi.CodeTooLarge, "17 bytes", "at most 16")
			for _, name := range []string{"a/a", "b", "a"} {
				if _, err := s.Put(ctx, key(name), []byte("v")); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Put(ctx, store.Key{Namespace: "shop2", Name: "a/c"}, nil); err != nil {
				t.Error(err)
			}
			list, err := s.List(ctx, "shop", "a")
			if err != nil || !slices.Equal(list, []store.Key{key("a"), key("a/a"), key("a/b")}) {
				t.Error(list, err)
			}
			var names []string
			for r := (store.Range{Namespace: "shop", Prefix: "a", Most: 2, Bytes: 1 << 20}); ; {
				page, err := s.Page(ctx, r)
				if err != nil || len(page.Names) > 2 {
					t.Fatal(page, err)
				}
				for _, n := range page.Names {
					names = append(names, n.Key.Name)
					if n.Key.Namespace != "shop" || n.Read != (name == "memory") {
						t.Error(n)
					}
				}
				if !page.More || len(page.Names) == 0 {
					break
				}
				r.After = names[len(names)-1]
			}
			if !slices.Equal(names, []string{"a", "a/a", "a/b"}) {
				t.Errorf("pages: %q", names)
			}
			if s.MaxValue("shop") != 16 {
				t.Error(s.MaxValue("shop"))
			}
		})
	}
}

// TestNoChains checks that New fails before the first chain exists, because the store could accept
// no value.
func TestNoChains(t *testing.T) {
	c := refadmin.New(8)
	t.Cleanup(c.Close)
	s, err := keys.New(within(t), keys.Options{Admin: admin.NewClient(c.URL()), Node: "n"})
	if err == nil {
		s.Close()
		t.Error("a store without chains is made")
	}
}

// TestTwoNodesMakeOneKey checks that when two nodes create the same key at once, no write is lost.
func TestTwoNodesMakeOneKey(t *testing.T) {
	x := newBed(t, 64)
	ctx := within(t)
	nodes := []*keys.Store{x.store(), x.store(), x.store()}
	var mu sync.Mutex
	won := map[int]int{}
	var wg sync.WaitGroup
	for i := range 20 {
		for n, s := range nodes {
			wg.Go(func() {
				got, ok, err := s.CompareAndSwap(ctx, key(fmt.Sprint(i)), 0, fmt.Append(nil, n))
				if err != nil || !ok && (!got.Found || got.Version == 0) {
					t.Error(got, ok, err)
				}
				if ok {
					mu.Lock()
					defer mu.Unlock()
					won[i]++
				}
			})
		}
	}
	wg.Wait()
	for i := range 20 {
		if won[i] != 1 {
			t.Errorf("key %d was swapped from nothing %d times", i, won[i])
		}
	}
}

// TestRefusals checks the codes and the numbers in errors.
func TestRefusals(t *testing.T) {
	x := newBed(t, 2)
	s := x.store(func(o *keys.Options) {
		o.Quota = func(ns string) int { return map[string]int{"shop": 3}[ns] }
		o.Chains = func(ns string) []string { return map[string][]string{"tight": {"b"}}[ns] }
	})
	ctx := within(t)
	for i := range 3 {
		if _, err := s.Put(ctx, key(fmt.Sprint(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Put(ctx, key("more"), nil)
	wantCode(t, err, nodeapi.CodeQuotaExceeded, "there are 3 keys", "there may be 3")
	if _, err := s.Put(ctx, store.Key{Namespace: "tight", Name: "1"}, nil); err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(ctx, store.Key{Namespace: "tight", Name: "2"}, nil)
	wantCode(t, err, nodeapi.CodeNoRoom, "2 slots each")

	for _, check := range []bool{true, false} {
		_, err = s.Transact(ctx, store.Transaction{Namespace: "shop", Write: []store.Write{{Name: "0"}}, CheckOnly: check})
		wantCode(t, err, nodeapi.CodeInvalidArgument, `the key "0" of the namespace shop`, "is volatile")
	}

	known, unknown := key("0"), key("unknown")
	s = x.store(func(o *keys.Options) { o.Patience = 200 * time.Millisecond })
	if _, err := s.Get(ctx, known, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, known, nil); err != nil {
		t.Fatal(err)
	}
	x.SetDown(true)
	if _, err := s.Put(ctx, known, []byte("goes on")); err != nil {
		t.Error(err)
	}
	_, err = s.Put(ctx, unknown, nil)
	wantCode(t, err, nodeapi.CodeUnavailable)
	_, err = s.List(ctx, "shop", "")
	wantCode(t, err, nodeapi.CodeUnavailable)
	_, err = s.Page(ctx, store.Range{Namespace: "shop", Most: 10, Bytes: 1})
	wantCode(t, err, nodeapi.CodeUnavailable)
	x.SetDown(false)

	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for _, c := range x.chains {
		c.SetDown(0, true)
		c.SetDown(1, true)
	}
	_, err = s.Put(short(), known, nil)
	wantCode(t, err, nodeapi.CodeOutcomeUnknown)
	_, _, err = s.CompareAndSwap(short(), known, 5, nil)
	wantCode(t, err, nodeapi.CodeOutcomeUnknown)
	_, err = s.Get(short(), known, false)
	wantCode(t, err, nodeapi.CodeTimeout)
	for _, c := range x.chains {
		c.SetDown(0, false)
		c.SetDown(1, false)
		c.Refuse(0, wire.Denied)
		c.Refuse(1, wire.Denied)
	}
	_, err = s.Get(ctx, known, false)
	wantCode(t, err, nodeapi.CodePermissionDenied)
	_, err = s.Put(ctx, known, nil)
	wantCode(t, err, nodeapi.CodePermissionDenied)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Put(gone, known, nil)
	wantCode(t, err, nodeapi.CodeCanceled)
}

// tail follows a watch, and stores the changes that the watch reports.
type tail struct {
	mu   sync.Mutex
	all  []store.Change
	last map[string]store.Change
}

func follow(t *testing.T, s store.Store, w store.Watch) *tail {
	t.Helper()
	x := &tail{last: map[string]store.Change{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, w, func(changes []store.Change) {
			x.mu.Lock()
			defer x.mu.Unlock()
			for _, c := range changes {
				if before, ok := x.last[c.Key.Name]; ok && c.Version <= before.Version && c.Version != 0 {
					t.Errorf("%s: version %v after %v", c.Key.Name, c.Version, before.Version)
				}
				x.last[c.Key.Name] = c
				x.all = append(x.all, c)
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return x
}

// expect waits until the newest change of each key has the given value. The value "-" means that
// the key is not found.
func (x *tail) expect(t *testing.T, want map[string]string) {
	t.Helper()
	state := func() map[string]string {
		x.mu.Lock()
		defer x.mu.Unlock()
		out := map[string]string{}
		for k, c := range x.last {
			if out[k] = string(c.Value); !c.Found {
				out[k] = "-"
			}
		}
		return out
	}
	poll.Until(t, 10*time.Second, fmt.Sprint("the watch tells ", want), func() bool { return fmt.Sprint(state()) == fmt.Sprint(want) },
		func() string { return fmt.Sprint(state()) })
}

// TestWatch checks that a watch reports keys by name and by prefix. It must report when keys are
// created, written, moved, deleted, removed and created again.
func TestWatch(t *testing.T) {
	x := newBed(t, 64)
	writer, s := x.store(), x.store()
	ctx := within(t)
	put := func(name, value string) {
		t.Helper()
		if _, err := writer.Put(ctx, key(name), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "1")
	put("p/1", "1")
	prefix := "p/"
	byName := follow(t, s, store.Watch{Namespace: "shop", Keys: []string{"a", "none"}})
	byPrefix := follow(t, s, store.Watch{Namespace: "shop", Prefix: &prefix})
	byName.expect(t, map[string]string{"a": "1", "none": "-"})
	byPrefix.expect(t, map[string]string{"p/1": "1"})
	put("none", "now")
	put("p/2", "2")
	put("other", "x")
	byName.expect(t, map[string]string{"a": "1", "none": "now"})
	byPrefix.expect(t, map[string]string{"p/1": "1", "p/2": "2"})
	got, err := writer.Get(ctx, key("a"), false)
	if err != nil {
		t.Fatal(err)
	}
	known := follow(t, s, store.Watch{Namespace: "shop", Keys: []string{"a"}, After: map[string]wire.Version{"a": got.Version}})
	x.Move(nodeapi.KeyName("shop", "a"), "b", 20*time.Millisecond)
	x.Move(nodeapi.KeyName("shop", "a"), "a", 20*time.Millisecond)
	time.Sleep(3 * 50 * time.Millisecond) // wait for enough reads to show that a move is not reported
	for i := range 7 {
		put("a", fmt.Sprint("v", i))
	}
	known.expect(t, map[string]string{"a": "v6"})
	byName.expect(t, map[string]string{"a": "v6", "none": "now"})
	known.mu.Lock()
	told := uint64(len(known.all))
	for _, c := range known.all {
		told += c.Overtaken
	}
	// The first report of a watch counts no skipped versions.
	if told > 7 || told == 0 || string(known.all[0].Value) == "1" {
		t.Errorf("7 versions were written, and %d are accounted for: %+v", told, known.all)
	}
	known.mu.Unlock()
	if _, err := writer.Delete(ctx, key("p/1")); err != nil {
		t.Fatal(err)
	}
	byPrefix.expect(t, map[string]string{"p/1": "-", "p/2": "2"})
	x.Remove(nodeapi.KeyName("shop", "p/2")) // removes the key together with its value
	x.Remove(nodeapi.KeyName("shop", "a"))
	byPrefix.expect(t, map[string]string{"p/1": "-", "p/2": "-"})
	byName.expect(t, map[string]string{"a": "-", "none": "now"})
	put("p/2", "again")
	put("a", "again")
	byPrefix.expect(t, map[string]string{"p/1": "-", "p/2": "again"})
	byName.expect(t, map[string]string{"a": "again", "none": "now"})
	// Without a controller, watches of known keys continue.
	x.SetDown(true)
	put("a", "still")
	byName.expect(t, map[string]string{"a": "still", "none": "now"})
	x.SetDown(false)
}

// pushed is a Push that reports the commits that the test chooses.
type pushed struct {
	helps atomic.Bool
	mu    sync.Mutex
	gives map[wire.Key]func(keys.News)
}

func (p *pushed) Follow(id wire.Key, told func(keys.News)) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gives[id] = told
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.gives, id)
	}
}

func (p *pushed) Helps(wire.Key) bool { return p.helps.Load() }

func (p *pushed) tell(n keys.News) bool {
	p.mu.Lock()
	told := p.gives[n.Key]
	p.mu.Unlock()
	if told != nil {
		told(n)
	}
	return told != nil
}

// TestPush checks that reports of a Push reach watchers at once, long before the next read. Reports
// of old versions must be ignored. A hint must trigger a read. When a watch ends, it must stop
// following its keys.
func TestPush(t *testing.T) {
	x := newBed(t, 64)
	p := &pushed{gives: map[wire.Key]func(keys.News){}}
	s := x.store(func(o *keys.Options) { o.Push, o.Interval = p, time.Hour })
	ctx := within(t)
	if _, err := s.Put(ctx, key("a"), []byte("1")); err != nil {
		t.Fatal(err)
	}
	var w *tail
	t.Run("watching", func(t *testing.T) {
		w = follow(t, s, store.Watch{Namespace: "shop", Keys: []string{"a"}})
		w.expect(t, map[string]string{"a": "1"})
		k := x.Key(nodeapi.KeyName("shop", "a"))
		id := wire.Key(k.KeyID)
		at := w.last["a"].Version - wire.Version(k.VersionOffset)
		for _, n := range []keys.News{{Key: id, Version: at + 3, Found: true, Value: []byte("4")},
			{Key: id, Version: at + 2, Found: true, Value: []byte("3")}} {
			if !p.tell(n) {
				t.Fatal("nobody follows the key")
			}
		}
		w.expect(t, map[string]string{"a": "4"})
		if got := w.last["a"]; got.Overtaken != 2 {
			t.Errorf("%+v", got)
		}
		for range 4 {
			if _, err := s.Put(ctx, key("a"), []byte("5")); err != nil {
				t.Fatal(err)
			}
		}
		p.tell(keys.News{Key: id})
		w.expect(t, map[string]string{"a": "5"})
	})
	poll.Until(t, 10*time.Second, "nobody follows", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.gives) == 0
	})
}

// TestRounds checks that a key whose commits the Push reports is read once per round, which finds
// missed changes. When the Push stops reporting the key, the key must be read once per interval.
func TestRounds(t *testing.T) {
	x := newBed(t, 64)
	p := &pushed{gives: map[wire.Key]func(keys.News){}}
	p.helps.Store(true)
	registry := prometheus.NewRegistry()
	s := x.store(func(o *keys.Options) {
		o.Push, o.Interval, o.Round, o.Metrics = p, 20*time.Millisecond, time.Hour, registry
	})
	ctx := within(t)
	put := func(s *keys.Store, value string) {
		t.Helper()
		if _, err := s.Put(ctx, key("a"), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put(s, "1")
	w := follow(t, s, store.Watch{Namespace: "shop", Keys: []string{"a"}})
	w.expect(t, map[string]string{"a": "1"})
	id := wire.Key(x.Key(nodeapi.KeyName("shop", "a")).KeyID)
	const writes = 40
	for i := range writes {
		put(s, fmt.Sprint("v", i))
		time.Sleep(20 * time.Millisecond)
	}
	w.mu.Lock()
	if n := len(w.all); n > 4 { // allow for two late reads at the beginning
		t.Errorf("%d of %d writes were found, and no round has gone by", n, writes)
	}
	w.mu.Unlock()
	p.helps.Store(false)
	p.tell(keys.News{Key: id})
	w.expect(t, map[string]string{"a": fmt.Sprint("v", writes-1)})
	put(s, "2")
	w.expect(t, map[string]string{"a": "2"})
	if counts := counted(t, registry); counts["repair"] == 0 || counts["read"] != 1 || counts["notification"] != 0 {
		t.Errorf("%v", counts)
	}

	p.helps.Store(true)
	registry = prometheus.NewRegistry()
	other := x.store(func(o *keys.Options) {
		o.Push, o.Interval, o.Round, o.Metrics = p, time.Millisecond, 100*time.Millisecond, registry
	})
	t.Run("a round", func(t *testing.T) {
		w := follow(t, other, store.Watch{Namespace: "shop", Keys: []string{"a"}})
		w.expect(t, map[string]string{"a": "2"})
		put(s, "3")
		w.expect(t, map[string]string{"a": "3"})
		if counts := counted(t, registry); counts["repair"] != 1 || counts["read"] != 0 {
			t.Errorf("%v", counts)
		}
	})
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if counts := counted(t, registry); len(counts) > 0 {
		t.Errorf("counted when it is closed: %v", counts)
	}
}

// counted returns the number of reported changes, by the way in which they were found.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			out[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return out
}

// TestPagesMeanwhile checks lists while keys move to another chain, and other keys are created,
// deleted and removed. Pages must contain each key that remains exactly once, and a read of the key
// must find its value.
func TestPagesMeanwhile(t *testing.T) {
	x := newBed(t, 64)
	writer, s := x.store(), x.store()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stay := map[string]int{}
	for i := range 10 {
		name := fmt.Sprintf("k%d", i)
		stay[name] = 0
		if _, err := writer.Put(ctx, key(name), []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	again := func(do func(n int)) {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(3 * time.Millisecond):
					do(n)
				}
			}
		})
	}
	again(func(n int) {
		x.Move(nodeapi.KeyName("shop", fmt.Sprintf("k%d", n%10)), []string{"a", "b"}[n/10%2], time.Millisecond)
	})
	again(func(n int) {
		name := fmt.Sprintf("k%d+", n%10)
		if _, err := writer.Put(ctx, key(name), []byte(name)); err != nil {
			t.Error(err)
		}
		if _, err := writer.Delete(ctx, key(name)); err != nil {
			t.Error(err)
		}
		x.Remove(nodeapi.KeyName("shop", name))
	})
	defer wg.Wait()
	defer close(over)
	for round := 1; round <= 10; round++ {
		r := store.Range{Namespace: "shop", Prefix: "k", Most: 1 + round%5, Bytes: 1}
		for more := true; more; {
			page, err := s.Page(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range page.Names {
				if n.Key.Name <= r.After {
					t.Errorf("%q after %q", n.Key.Name, r.After)
				}
				r.After = n.Key.Name
				if _, stays := stay[n.Key.Name]; !stays {
					continue
				}
				stay[n.Key.Name]++
				if got, err := s.Get(ctx, n.Key, false); err != nil || string(got.Value) != n.Key.Name {
					t.Errorf("%+v, %v", got, err)
				}
			}
			more = page.More
		}
		for name, times := range stay {
			if times != round {
				t.Errorf("%s was listed %d times in %d rounds", name, times, round)
			}
		}
	}
}

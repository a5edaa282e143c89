package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// gate is a Store whose reads block until the test releases them.
type gate struct {
	*Memory
	mu     sync.Mutex
	inside map[string]int
	most   int
	began  []string
	let    map[string]chan struct{}
}

func newGate(namespaces ...string) *gate {
	g := &gate{Memory: NewMemory(100), inside: map[string]int{}, let: map[string]chan struct{}{}}
	for _, name := range namespaces {
		g.let[name] = make(chan struct{})
	}
	return g
}

func (g *gate) Get(ctx context.Context, key Key, eventual bool) (Item, error) {
	g.mu.Lock()
	g.inside[key.Namespace]++
	g.began = append(g.began, key.Namespace)
	all := 0
	for _, n := range g.inside {
		all += n
	}
	g.most = max(g.most, all)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside[key.Namespace]--
	}()
	select {
	case <-g.let[key.Namespace]:
	case <-ctx.Done():
	}
	return g.Memory.Get(ctx, key, eventual)
}

// Transact blocks until the test releases it, as reads do.
func (g *gate) Transact(ctx context.Context, t Transaction) (Transacted, error) {
	_, err := g.Get(ctx, Key{Namespace: t.Namespace}, false)
	return Transacted{}, err
}

// TestFairTakesTurns checks that the calls of namespaces take turns. No namespace may ever have all
// turns, and the limit must be kept.
func TestFairTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("flood", "other", "third")
		f := NewFair(g, 8)
		var all sync.WaitGroup
		ask := func(namespace string, times int) {
			for range times {
				all.Go(func() {
					if _, err := f.Get(t.Context(), Key{Namespace: namespace, Name: "a"}, false); err != nil {
						t.Error(namespace, err)
					}
				})
			}
			synctest.Wait()
		}
		want := func(when string, flood, other, third int) {
			t.Helper()
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.inside["flood"] != flood || g.inside["other"] != other || g.inside["third"] != third {
				t.Fatalf("%s: %v, want %d of flood, %d of other, %d of third", when, g.inside, flood, other, third)
			}
		}
		ask("flood", 1000)
		want("one alone has three quarters", 6, 0, 0)
		ask("other", 10)
		want("another has the rest at once", 6, 2, 0)
		ask("third", 10)
		want("all are taken", 6, 2, 0)
		g.mu.Lock()
		g.began = nil
		g.mu.Unlock()
		for range 12 { // the turns that end go to the namespaces in turn
			g.let["flood"] <- struct{}{}
			synctest.Wait()
			if g.inside["flood"] == 0 {
				break
			}
		}
		if got := strings.Join(g.began[:6], " "); strings.Count(got, "flood") != 2 || strings.Count(got, "other") != 2 ||
			strings.Count(got, "third") != 2 {
			t.Errorf("they have their turns so: %s", got)
		}
		for _, let := range g.let {
			close(let)
		}
		all.Wait()
		if g.most != 8 {
			t.Errorf("%d at a time, want 8 at most", g.most)
		}
		if len(f.lanes) != 0 || f.queued.Len() != 0 || f.under != 0 {
			t.Errorf("left over: %v, %d waiting, %d under way", f.lanes, f.queued.Len(), f.under)
		}
	})
}

// TestFairWaitsNoMore checks that a call that stops waiting has done nothing, and occupies no turn.
func TestFairWaitsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("a", "b")
		f := NewFair(g, 2) // the limit permits one call of each namespace
		var all sync.WaitGroup
		get := func(ctx context.Context, namespace string, want nodeapi.Code) {
			all.Go(func() {
				_, err := f.Get(ctx, Key{Namespace: namespace, Name: "k"}, false)
				var e *nodeapi.Error
				if errors.As(err, &e); (err == nil) != (want == "") || err != nil && e.Code != want {
					t.Errorf("%s: %v, want %q", namespace, err, want)
				}
			})
			synctest.Wait()
		}
		get(t.Context(), "a", "")
		ctx, cancel := context.WithCancel(t.Context())
		get(ctx, "a", nodeapi.CodeCanceled)
		get(t.Context(), "a", "")
		timed, done := context.WithTimeout(t.Context(), 1)
		defer done()
		get(timed, "a", nodeapi.CodeTimeout)
		cancel()
		<-timed.Done()
		synctest.Wait()
		if len(g.began) != 1 {
			t.Errorf("the store was asked %d times", len(g.began))
		}
		close(g.let["a"])
		close(g.let["b"])
		all.Wait()
		if len(g.began) != 2 || len(f.lanes) != 0 {
			t.Errorf("the store was asked %d times; left over: %v", len(g.began), f.lanes)
		}
	})
}

func BenchmarkFair(b *testing.B) {
	f := NewFair(NewMemory(100), 256)
	for b.Loop() {
		_, _ = f.Get(b.Context(), Key{Namespace: "a", Name: "k"}, false)
	}
}

// TestFairApart checks that hanging calls of namespaces with a separate limit do not block the
// calls of other namespaces.
func TestFairApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("vault", "safe", "shop")
		f := NewFair(g, 4).Apart(func(namespace string) bool { return namespace != "shop" }, 4)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, namespace := range []string{"vault", "safe"} {
			for range 10 {
				all.Go(func() { _, _ = f.Get(ctx, Key{Namespace: namespace, Name: "a"}, false) })
			}
		}
		synctest.Wait()
		close(g.let["shop"])
		for range 10 {
			if _, err := f.Get(t.Context(), Key{Namespace: "shop", Name: "a"}, false); err != nil {
				t.Error(err)
			}
		}
		g.mu.Lock()
		if n := g.inside["vault"] + g.inside["safe"]; n != 4 {
			t.Errorf("%d calls are under way in namespaces apart", n)
		}
		g.mu.Unlock()
		stop()
		all.Wait()
		if len(f.lanes)+len(f.apart.lanes) != 0 {
			t.Error("something is left")
		}
	})
}

// TestFairTransactApart checks that all transactions use the separate limit, whatever the default
// of their namespace is. Hanging transactions must not block calls for volatile keys.
func TestFairTransactApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("both", "too", "shop")
		f := NewFair(g, 4).Apart(func(string) bool { return false }, 4)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, namespace := range []string{"both", "too"} {
			for range 10 {
				all.Go(func() { _, _ = f.Transact(ctx, Transaction{Namespace: namespace}) })
			}
		}
		synctest.Wait()
		close(g.let["shop"])
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := f.Get(within, Key{Namespace: "shop", Name: "a"}, false); err != nil {
			t.Errorf("while transactions of other namespaces hang: %v", err)
		}
		stop()
		all.Wait()
		if len(f.lanes)+len(f.apart.lanes) != 0 {
			t.Error("something is left")
		}
	})
}

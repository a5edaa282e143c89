package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

// TestWaker: what the leader hears of has a reconciler look at its objects, but for what failed and
// waits for its next try; when a switch has connected that is tried, too.
func TestWaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute))
		defer q.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWaker()
		keys := named([]string{"good", "bad"})
		if err := w.source(func(context.Context) []reconcile.Request { return keys }).Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		looked := func() string {
			synctest.Wait()
			var out []string
			for range q.Len() {
				k, _ := q.Get()
				q.Done(k)
				out = append(out, k.Name)
			}
			slices.Sort(out)
			return strings.Join(out, " ")
		}
		expect := func(what, want string) {
			t.Helper()
			if got := looked(); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("at first", "")
		w.wake()
		w.wake() // another look is as good as two
		expect("woken", "bad good")
		for n, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			q.AddRateLimited(keys[1])
			w.wake()
			expect("one has failed", "good")
			time.Sleep(pause - 100*time.Millisecond)
			expect("before its next try", "")
			time.Sleep(200 * time.Millisecond)
			expect("at its next try", "bad")
			if got := q.NumRequeues(keys[1]); got != n+1 {
				t.Errorf("%d failures, not %d", got, n+1)
			}
		}
		q.AddRateLimited(keys[1])
		w.retry()
		expect("a switch has connected", "bad good")
		if n := q.NumRequeues(keys[1]); n != 0 {
			t.Errorf("%d failures are remembered", n)
		}
	})
}

// fakeChains is a controller with one chain.
type fakeChains struct {
	epoch   uint16 // of the chain, after a recovery
	err     error
	changes []api.ChainChange
	removed []string
}

func (f *fakeChains) Chain(context.Context, string) (*api.Chain, error) {
	return &api.Chain{Epoch: f.epoch}, nil
}

func (f *fakeChains) BringIn(context.Context, string, string) (*api.Chain, error) {
	f.epoch += map[bool]uint16{true: 2}[f.err == nil || f.err.Error() == "late"]
	return nil, f.err
}

func (f *fakeChains) ChangeChain(_ context.Context, _ string, c api.ChainChange) (*api.Chain, error) {
	f.changes = append(f.changes, c)
	return nil, f.err
}

func (f *fakeChains) RemoveKey(_ context.Context, _, key string) error {
	f.removed = append(f.removed, key)
	return f.err
}

// TestSettled: a node's switch is brought in when it has been ready, and no member, for a while.
func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settle := rejoin.Default().Settle
		tm := &term{back: rejoin.New(rejoin.Default()), began: time.Now()}
		nodes := cluster(3)
		all := map[string]bool{}
		for _, n := range nodes {
			all[n.Name] = true
		}
		spare, lost := nodes[0].Name, nodes[1].Name
		is := &api.Chain{Name: "main", Members: []api.Member{{Switch: lost}}}
		look := func(ready map[string]bool, want ...string) {
			t.Helper()
			steady := tm.settled(is, nodes, ready)
			var got []string
			for _, n := range nodes[:2] {
				if steady(n.Name) {
					got = append(got, n.Name)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %v there are %v, not %v", time.Since(tm.began), got, want)
			}
		}
		look(all)
		time.Sleep(settle)
		look(all, spare)
		is.Members = nil // it is lost, and was ready all the while
		look(all, spare)
		time.Sleep(settle / 2)
		look(all, spare)
		look(map[string]bool{spare: true}, spare)
		look(all, spare)
		time.Sleep(settle / 2)
		look(all, spare)
		time.Sleep(settle / 2)
		look(all, spare, lost)
	})
}

// TestTake: a step is carried out, and a switch that was brought in, or has cost epochs for
// nothing, has to be ready for longer the next time; one that was refused at once has not.
func TestTake(t *testing.T) {
	lease := 500
	settle := rejoin.Default().Settle
	tm := &term{back: rejoin.New(rejoin.Default()), began: time.Now()}
	c := &fakeChains{}
	for _, s := range []*step{{lease: &lease}, {members: []string{"a", "b"}}} {
		if err := tm.take(t.Context(), c, "main", s); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.changes; len(n) != 2 || *n[0].LeaseMillis != lease || n[0].Members != nil ||
		n[1].LeaseMillis != nil || !slices.Equal(*n[1].Members, []string{"a", "b"}) {
		t.Errorf("changed: %+v", n)
	}
	for _, x := range []struct {
		err  error
		wait time.Duration
	}{{errors.New("refused"), settle}, {nil, 2 * settle}, {errors.New("late"), 4 * settle}, {errors.New("refused"), 4 * settle}} {
		c.err = x.err
		if err := tm.take(t.Context(), c, "main", &step{bringIn: "s3"}); !errors.Is(err, x.err) {
			t.Errorf("%v: %v", x.err, err)
		}
		if got := tm.back.Wait(time.Since(tm.began), rejoin.Candidate{Chain: "main", Switch: "s3"}); got != x.wait {
			t.Errorf("after %v it has to be ready for %v, not %v", x.err, got, x.wait)
		}
	}
}

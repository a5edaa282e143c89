package apiobjects

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestWaker checks that Wake makes a reconciler check its objects, except for those that failed and
// wait for their next retry. Retry must include these.
func TestWaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute))
		defer q.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := NewWaker()
		keys := Named([]string{"good", "bad"})
		if err := w.Source(func(context.Context) []reconcile.Request { return keys }).Start(ctx, q); err != nil {
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
		w.Wake()
		w.Wake() // two wake-ups may cause only one check
		expect("woken", "bad good")
		for n, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			q.AddRateLimited(keys[1])
			w.Wake()
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
		w.Retry()
		expect("a switch has connected", "bad good")
		if n := q.NumRequeues(keys[1]); n != 0 {
			t.Errorf("%d failures are remembered", n)
		}
	})
}

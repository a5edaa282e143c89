package inprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/notify"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/test/system/lab"
)

// notifiedWatch has the changes that a single Watch has received, and the times at which it
// received them.
type notifiedWatch struct {
	mu   sync.Mutex
	last map[string]store.Change
	at   map[string]map[wire.Version]time.Time
	bad  []string
}

func (w *notifiedWatch) tell(changes []store.Change) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		name := c.Key.Name
		if before, ok := w.last[name]; ok && c.Version <= before.Version {
			w.bad = append(w.bad, fmt.Sprintf("%s: %v after %v", name, c.Version, before.Version))
		}
		w.last[name] = c
		if w.at[name] == nil {
			w.at[name] = map[wire.Version]time.Time{}
		}
		w.at[name][c.Version] = now
	}
}

// TestNotified checks watchers at a node whose switch is not a member of the chain. Notifications
// of the switch must tell them of another node's writes. They must get the newest version even if
// half of the notifications are lost, if keys move, and if the controller is replaced. If no key is
// watched, the switches must have no entries for watches.
func TestNotified(t *testing.T) {
	x := newTestbed(t, calmChains())
	c := x.controller()
	c.WaitAllReady()
	writer, writersWay := nodeStore(x, c, 1)
	registry := prometheus.NewRegistry()
	var push *notify.Receiver
	// The rounds of reads are far apart, so a change that arrives soon was not found by reading.
	watcher, way := nodeStore(x, c, 4, func(o *keys.Options) {
		push = notify.New(notify.Options{Admin: o.Admin, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		o.Push, o.Interval, o.Round, o.Metrics = push, 200*time.Millisecond, 3*time.Second, registry
	})
	t.Cleanup(push.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	names := []string{"a", "b", "c", "d"}
	var mu sync.Mutex
	written := map[string]map[wire.Version]string{}
	newest := map[string]wire.Version{}
	begun := map[string]map[wire.Version]time.Time{}
	put := func(name, value string) {
		begin := time.Now()
		v, err := writer.Put(ctx, store.Key{Namespace: shop, Name: name}, []byte(value))
		if err != nil {
			if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}) {
				// the outcome of a write is unknown while its key moves
				t.Errorf("writing %s: %v", name, err)
			}
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if written[name] == nil {
			written[name], begun[name] = map[wire.Version]string{}, map[wire.Version]time.Time{}
		}
		written[name][v], begun[name][v] = value, begin
		newest[name] = max(newest[name], v)
	}
	for _, name := range names {
		put(name, "first")
	}

	watching, stop := context.WithCancel(ctx)
	var watches sync.WaitGroup
	var all []*notifiedWatch
	prefix := ""
	for _, what := range []store.Watch{{Namespace: shop, Keys: names}, {Namespace: shop, Prefix: &prefix}} {
		w := &notifiedWatch{last: map[string]store.Change{}, at: map[string]map[wire.Version]time.Time{}}
		all = append(all, w)
		watches.Go(func() { _ = watcher.Watch(watching, what, w.tell) })
	}
	// whole waits until every watch has received the newest version.
	whole := func(why string) {
		t.Helper()
		for _, w := range all {
			for _, name := range names {
				poll.Until(t, 30*time.Second, why+": the newest of "+name+" is told", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return w.last[name].Version >= newest[name]
				}, func() string { return fmt.Sprint(w.last[name].Version, " of ", newest[name]) })
			}
		}
	}
	// heard writes until a notification arrives.
	heard := func(why string) {
		t.Helper()
		for _, name := range names {
			before := way.notified.Load()
			poll.Until(t, 30*time.Second, why+": the switch tells of "+name, func() bool {
				put(name, "h")
				return way.notified.Load() > before
			})
		}
	}
	news := func() lab.News {
		t.Helper()
		n, err := lab.NewsOf(registry)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	whole("at first")
	heard("at first")

	before := news()
	const rounds = 50
	for i := range rounds {
		for _, name := range names {
			put(name, fmt.Sprint("v", i))
		}
	}
	whole("with notifications")
	after := news()
	told := after["notification"] - before["notification"]
	read := after["read"] + after["repair"] - before["read"] - before["repair"]
	var late []time.Duration
	for _, w := range all {
		w.mu.Lock()
		for name, of := range w.at {
			for v, at := range of {
				if value := written[name][v]; len(value) > 1 && value[0] == 'v' {
					late = append(late, at.Sub(begun[name][v]))
				}
			}
		}
		w.mu.Unlock()
	}
	slices.Sort(late)
	t.Logf("of %d writes %d were told of by the network and %d by reading; from a write's begin to who watches: p50 %v, p99 %v",
		rounds*len(names), told, read, late[len(late)/2], late[len(late)*99/100])
	// Not every write causes an event, because a watch that is late gets only the newest version.
	if told < rounds || told < 4*read {
		t.Error("hardly anything was told of by the network")
	}

	way.lossy.Store(2)
	burst := func(why string, meanwhile func()) {
		t.Helper()
		var writers sync.WaitGroup
		for _, name := range names {
			writers.Go(func() {
				for i := range 40 {
					put(name, fmt.Sprint("b", i))
				}
			})
		}
		if meanwhile != nil {
			meanwhile()
		}
		writers.Wait()
		whole(why)
	}
	burst("half is lost", nil)
	if way.lost.Load() < 20 {
		t.Errorf("%d notifications were lost", way.lost.Load())
	}
	burst("keys move", func() {
		for range 3 {
			move(t, c, nodeapi.KeyName(shop, "a"))
			time.Sleep(100 * time.Millisecond)
		}
	})
	way.lossy.Store(0)
	heard("moved")

	c.Stop()
	c = x.controller()
	way.ask(c.URL)
	writersWay.ask(c.URL)
	burst("another controller", nil)
	c.WaitAllReady()
	heard("another controller")
	whole("in the end")
	t.Logf("notifications: %d, of which %d lost on purpose; what was told, by what it was found by: %v",
		way.notified.Load(), way.lost.Load(), news())

	stop()
	watches.Wait()
	for _, w := range all {
		for _, bad := range w.bad {
			t.Error(bad)
		}
		for name, c := range w.last {
			if want, ok := written[name][c.Version]; ok && want != string(c.Value) {
				t.Errorf("%s: %q was told at %v, which is %q", name, c.Value, c.Version, want)
			}
		}
	}
	poll.Until(t, 30*time.Second, "the switches have nothing of it", func() bool { return x.watchEntries() == 0 })
}

package inprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/notify"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/test/system/lab"
)

// elected starts a controller that is elected as the leader in an etcd, and keeps its state there.
func (x *testbed) elected(etcd, name string) (*lab.Controller, *etcdstore.Term) {
	x.t.Helper()
	top, err := topology.Load(x.file)
	if err != nil {
		x.t.Fatal(err)
	}
	candidate := &etcdstore.Candidate{Client: etcdtest.Client(x.t, etcd), Prefix: "/netcraq/",
		Identity: etcdstore.Identity{Name: name}, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithTimeout(x.t.Context(), 30*time.Second)
	defer cancel()
	term, err := candidate.Campaign(ctx, func(etcdstore.Identity) {})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(term.Resign)
	c, err := controller.New(controller.Options{Topology: top, Store: term, ElectionID: term.ElectionID(),
		Led: term.Led, Leading: etcdstore.Leading, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		x.t.Fatal(err)
	}
	return lab.Serve(x.t, c), term
}

// In TestWatchOverTakeovers, controllers with their state in etcd replace each other. They remove
// the key of a watched name and create it again. The name's versions must only grow, and watchers
// must receive every lasting change. This must also hold if the new key is in a chain with far
// lower versions, and if a replaced controller continues.
func TestWatchOverTakeovers(t *testing.T) {
	x := newTestbed(t, calmChains())
	etcd := etcdtest.Start(t)
	c, term := x.elected(etcd, "first")
	c.WaitAllReady()
	// The variable chain determines in which chain the controller creates the key.
	var mu sync.Mutex
	chain := "a"
	in := func(string) []string { mu.Lock(); defer mu.Unlock(); return []string{chain} }
	writer, writersWay := nodeStore(x, c, 1, func(o *keys.Options) { o.Chains = in })
	var push *notify.Receiver
	watcher, way := nodeStore(x, c, 4, func(o *keys.Options) {
		push = notify.New(notify.Options{Admin: o.Admin, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		o.Push, o.Interval, o.Round = push, 200*time.Millisecond, time.Second
	})
	t.Cleanup(push.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const name = "a"
	key := store.Key{Namespace: shop, Name: name}
	var last wire.Version
	put := func(value string) {
		t.Helper()
		v, err := writer.Put(ctx, key, []byte(value))
		for errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}) {
			// the outcome is unknown if the key was removed just before
			v, err = writer.Put(ctx, key, []byte(value))
		}
		if err != nil {
			t.Fatal(err)
		}
		if v <= last {
			t.Errorf("%q was given version %v, after %v", value, v, last)
		}
		last = max(last, v)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w := &notifiedWatch{last: map[string]store.Change{}, at: map[string]map[wire.Version]time.Time{}}
	var watches sync.WaitGroup
	watches.Go(func() { _ = watcher.Watch(watching, store.Watch{Namespace: shop, Keys: []string{name}}, w.tell) })
	heard := func(value string) {
		t.Helper()
		poll.Until(t, 30*time.Second, fmt.Sprintf("%q is told, at %v", value, last), func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return string(w.last[name].Value) == value && w.last[name].Found && w.last[name].Version == last
		}, func() string { return fmt.Sprintf("%+v", w.last[name]) })
	}

	put("first")
	heard("first")
	// These writes and new epochs make the versions of chain a grow.
	for i := range 6 {
		frozen := i%2 == 0
		if _, err := c.API.ChangeChain(ctx, "a", admin.ChainChange{Frozen: &frozen}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 4 {
		for i := range 20 {
			put(fmt.Sprintf("%d.%d", round, i))
		}
		heard(fmt.Sprintf("%d.19", round))
		k, err := c.API.Lookup(ctx, nodeapi.KeyName(shop, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.API.RemoveKey(ctx, k.Chain, k.Name); err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 { // In this round, the controller's process ends.
			c.Stop()
			term.Resign()
		} else {
			// In this round, the controller continues, and does not know yet that it is replaced.
			if _, err := etcdtest.Client(t, etcd).Delete(ctx, "/netcraq/leader/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		}
		c, term = x.elected(etcd, fmt.Sprint("round ", round))
		way.ask(c.URL)
		writersWay.ask(c.URL)
		mu.Lock()
		chain = map[string]string{"a": "b", "b": "a"}[chain]
		mu.Unlock()
		put(fmt.Sprintf("%d again", round))
		heard(fmt.Sprintf("%d again", round))
	}
	c.WaitAllReady()
	before := way.notified.Load()
	poll.Until(t, 30*time.Second, "the switch tells of it", func() bool {
		put("notified")
		return way.notified.Load() > before
	})
	heard("notified")
	stop()
	watches.Wait()
	for _, bad := range w.bad {
		t.Error(bad)
	}
}

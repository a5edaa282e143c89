package durable

import (
	"context"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

const soon = 30 * time.Second // generous limit for what happens at once on an idle machine

// world is an etcd with gateways in front of it.
type world struct {
	*etcdtest.Cluster
	t     testing.TB
	slots *etcdtest.Slots
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{Cluster: etcdtest.New(t, 1, etcdtest.Options{}), t: t, slots: etcdtest.NewSlots()}
}

// place places a key of etcd in a slot of the network. The returned function removes it from the
// network.
func (w *world) place(ctx context.Context, client *clientv3.Client, name string) (remove func(), err error) {
	store := placement.Store{KV: client, Prefix: placement.DefaultPrefix}
	e, err := store.Put(ctx, name, w.slots.Add())
	if err != nil {
		return nil, err
	}
	return func() {
		w.slots.Remove(wire.Key(e.ID))
		for ctx.Err() == nil && store.Delete(ctx, name, e.Mod) != nil {
			time.Sleep(time.Millisecond)
		}
	}, nil
}

// placeAll repeatedly places keys in the network and removes them, until the programs of the test
// have ended.
func (w *world) placeAll(names ...string) {
	client := etcdtest.Client(w.t, w.Endpoints()...)
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		placed := map[string]func(){}
		for ctx.Err() == nil {
			name := names[rand.IntN(len(names))]
			if remove := placed[name]; remove == nil {
				if r, err := w.place(ctx, client, name); err == nil {
					placed[name] = r
				}
			} else if rand.IntN(4) == 0 {
				remove()
				delete(placed, name)
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	w.t.Cleanup(func() {
		stop()
		work.Wait()
	})
}

// gateway starts a gateway that runs until the end of the test, and returns its URL.
func (w *world) gateway() string {
	w.t.Helper()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	u, err := gateway.Dial(gateway.UpstreamConfig{Endpoints: w.Endpoints()})
	must(err)
	client, err := u.NewClient(w.t.Context(), "", "")
	must(err)
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	follower, err := placement.Follow(ctx, client, placement.DefaultPrefix, nil)
	must(err)
	seals := seal.NewKeys(client, placement.DefaultPrefix)
	must(seals.Ensure(ctx))
	sessions, runtime, newest := guardedshell.NewLeases(client, placement.DefaultPrefix, 0, nil),
		guardedshell.NewGoroutines(), new(gateway.Newest)
	metrics := hotkeys.NewMetrics(hotkeys.Bounds{}, nil)
	server := guarded.New(guarded.Config{Etcd: gateway.Forward(u, metrics), Slots: w.slots, Directory: follower,
		Sessions: sessions, Newest: newest, Codec: slotcodec.NewLibrary(client, placement.DefaultPrefix), Seals: seals,
		Runtime: runtime, Observer: metrics, Prefix: placement.DefaultPrefix, Reserved: []string{"/netcraq/"},
		Patience: 10 * time.Second})
	g, err := gateway.New(gateway.Config{Upstream: u, KV: server, Newest: newest, Metrics: metrics,
		Reserved: reserved.With("/netcraq/"), AsSelf: client})
	must(err)
	l, err := gateway.Listen(url.URL{Scheme: "http", Host: "127.0.0.1:0"}, transport.TLSInfo{})
	must(err)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		g.Shutdown(ctx)
		if err := <-served; err != nil {
			w.t.Error(err)
		}
		runtime.Close()
		sessions.Close()
		follower.Close()
		client.Close()
		u.Close()
	})
	return "http://" + l.Addr().String()
}

// open makes a store with the given endpoints. The store is closed at the end of the test.
func open(t testing.TB, o Options, endpoints ...string) *Store {
	t.Helper()
	etcd, err := Dial(Access{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	o.Etcd = etcd
	s := New(o)
	t.Cleanup(func() {
		s.Close()
		etcd.Close()
	})
	return s
}

// read calls get until the network has answered a read.
func (w *world) read(get func() error) {
	w.t.Helper()
	before := w.slots.Answered.Load()
	poll.Until(w.t, soon, "the network answers", func() bool {
		if err := get(); err != nil {
			w.t.Fatal(err)
		}
		return w.slots.Answered.Load() > before
	})
}

func entryName(name string) string { return strings.Join([]string{"/netcraq.io/keys", ns, name}, "/") }

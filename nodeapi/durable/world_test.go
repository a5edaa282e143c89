package durable

import (
	"context"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/placement"
	"github.com/netcraq/netcraq/api/slotcodec"
	"github.com/netcraq/netcraq/client/core"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/guarded"
	"github.com/netcraq/netcraq/etcd-monitor/guardedshell"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/etcd-monitor/reserved"
	"github.com/netcraq/netcraq/etcd-monitor/seal"
	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/wire"
)

const soon = 30 * time.Second // for what comes at once on a machine that is not busy

// network is slots in memory, in the switches' place.
type network struct {
	mu    sync.Mutex
	slots map[wire.Key]*slot
	last  uint32
	reads atomic.Int64 // that had an answer
}

type slot struct {
	value   []byte
	version wire.Version
}

func (n *network) Size(wire.Key) int { return 1024 }

func (n *network) Read(_ context.Context, id wire.Key) ([]byte, wire.Version, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at := n.slots[id]; at != nil {
		kind, _, _, err := slotcodec.ReadSlot(at.value)
		if err == nil && (kind == slotcodec.Value || kind == slotcodec.Absent) {
			n.reads.Add(1)
		}
		return slices.Clone(at.value), at.version, nil
	}
	return nil, 0, core.ErrNotFound
}

func (n *network) CAS(_ context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch at := n.slots[id]; {
	case at == nil:
		return 0, core.ErrNotFound
	case at.version != expected:
		return 0, core.ErrCASFailed
	default:
		at.value, at.version = slices.Clone(value), at.version+1
		return at.version, nil
	}
}

// world is an etcd, and gateways before it.
type world struct {
	*etcdtest.Cluster
	t     testing.TB
	slots *network
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{Cluster: etcdtest.New(t, 1, etcdtest.Options{}), t: t, slots: &network{slots: map[wire.Key]*slot{}}}
}

// place gives a key of etcd's a slot; remove takes it away.
func (w *world) place(ctx context.Context, client *clientv3.Client, name string) (remove func(), err error) {
	store := placement.Store{KV: client, Prefix: placement.DefaultPrefix}
	n := w.slots
	n.mu.Lock()
	n.last++
	id := wire.MakeKey(1, n.last)
	n.slots[id] = &slot{[]byte(slotcodec.Unsealed), 1}
	n.mu.Unlock()
	e, err := store.Put(ctx, name, placement.Entry{ID: uint32(id), Chain: "main", Version: 1})
	if err != nil {
		return nil, err
	}
	return func() {
		n.mu.Lock()
		delete(n.slots, id)
		n.mu.Unlock()
		for ctx.Err() == nil && store.Delete(ctx, name, e.Mod) != nil {
			time.Sleep(time.Millisecond)
		}
	}, nil
}

// placeAll has keys come into the network and leave it until the test's programs are done.
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

// gateway starts one, until the test ends, and gives its URL.
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

// open makes a store over endpoints, until the test ends.
func open(t testing.TB, o Options, endpoints ...string) *Store {
	t.Helper()
	o.Etcd = Over(etcdtest.Client(t, endpoints...))
	s := New(o)
	t.Cleanup(func() { s.Close() })
	return s
}

// read waits until a key of etcd's is answered from the network.
func (w *world) read(get func() error) {
	w.t.Helper()
	before := w.slots.reads.Load()
	poll.Until(w.t, soon, "the network answers", func() bool {
		if err := get(); err != nil {
			w.t.Fatal(err)
		}
		return w.slots.reads.Load() > before
	})
}

func entryName(name string) string { return strings.Join([]string{"/netcraq.io/keys", ns, name}, "/") }

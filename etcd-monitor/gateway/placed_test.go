package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/etcderrors"
	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/test/histories"
)

// ownPrefix is the prefix of the keys that the controllers and the gateways use themselves.
const ownPrefix = "/netcraq/"

// world is a set of gateways in front of one etcd. The test continuously places and removes random
// keys of this etcd.
type world struct {
	t       testing.TB
	cluster *etcdtest.Cluster
	slots   *etcdtest.Slots
	metrics *hotkeys.Metrics
	absent  []string // keys that are placed although they do not exist, and that are not removed
}

func newWorld(t *testing.T, absent ...string) *world {
	t.Helper()
	w := &world{t: t, cluster: etcdtest.New(t, 1, etcdtest.Options{}),
		slots: etcdtest.NewSlots(), metrics: hotkeys.NewMetrics(hotkeys.Bounds{}, nil),
		absent: absent}
	client := etcdtest.Client(t, w.cluster.Endpoints()...)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.place(ctx, client)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return w
}

// place repeatedly places every key of etcd and some missing keys, and removes random ones.
func (w *world) place(ctx context.Context, client *clientv3.Client) {
	store := placement.Store{KV: client, Prefix: placement.DefaultPrefix}
	entries := map[string]placement.Entry{}
	for ctx.Err() == nil {
		r, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
		if err != nil {
			break
		}
		names := append([]string{"a", "b", "w1"}, w.absent...)
		for _, kv := range r.Kvs {
			names = append(names, string(kv.Key))
		}
		for _, name := range names {
			if _, ok := entries[name]; ok || strings.HasPrefix(name, ownPrefix) {
				continue
			}
			e := w.slots.Add()
			if e, err = store.Put(ctx, name, e); err == nil {
				entries[name] = e
			}
		}
		for name, e := range entries {
			if rand.IntN(4) > 0 || slices.Contains(w.absent, name) {
				continue
			}
			w.slots.Remove(wire.Key(e.ID))
			for ctx.Err() == nil && store.Delete(ctx, name, e.Mod) != nil {
				time.Sleep(time.Millisecond)
			}
			delete(entries, name)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// gateway starts a gateway.
func (w *world) gateway() string {
	w.t.Helper()
	return w.gatewayBefore(w.cluster.Endpoints()...)
}

// gatewayBefore starts a gateway in front of these endpoints of etcd.
func (w *world) gatewayBefore(endpoints ...string) string {
	w.t.Helper()
	return w.gatewayOf("", endpoints...)
}

// gatewayOf starts a gateway with a namespace in front of these endpoints of etcd.
func (w *world) gatewayOf(namespace string, endpoints ...string) string {
	w.t.Helper()
	u, err := Dial(UpstreamConfig{Endpoints: endpoints})
	if err != nil {
		w.t.Fatal(err)
	}
	client, err := u.NewClient(w.t.Context(), "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	follower, err := placement.Follow(ctx, client, placement.DefaultPrefix, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	seals := seal.NewKeys(client, placement.DefaultPrefix)
	if err := seals.Ensure(ctx); err != nil {
		w.t.Fatal(err)
	}
	sessions, runtime, newest := guardedshell.NewLeases(client, placement.DefaultPrefix, 0, nil),
		guardedshell.NewGoroutines(), new(Newest)
	w.t.Cleanup(func() { // the cleanup runs after the gateway has ended
		runtime.Close()
		sessions.Close()
		follower.Close()
		client.Close()
		u.Close()
	})
	server := guarded.New(guarded.Config{Etcd: Forward(u, w.metrics), Slots: w.slots, Directory: follower,
		Sessions: sessions, Newest: newest, Codec: slotcodec.NewLibrary(client, placement.DefaultPrefix),
		Seals: seals, Runtime: runtime, Observer: w.metrics, Prefix: placement.DefaultPrefix,
		Reserved: []string{ownPrefix}, Patience: 10 * time.Second})
	return begin(w.t, Config{Upstream: u, KV: server, Newest: newest, Metrics: w.metrics,
		Reserved: reserved.With(ownPrefix), AsSelf: client, Namespace: namespace}).Endpoint
}

// TestPlaced checks that etcd's own tools do not notice when keys are placed and removed.
func TestPlaced(t *testing.T) {
	t.Parallel()
	for name, path := range etcdctls(t) {
		t.Run("etcdctl "+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			e := etcdtest.Etcdctl{Path: path, Flags: []string{"--endpoints", w.gateway()}}
			etcdctlKeys(t, e)
			etcdctlLeases(t, e)
			etcdctlWaits(t, e)
			refuses(t, e, "ask etcd itself for it", "snapshot", "save", filepath.Join(t.TempDir(), "snapshot.db"))
			etcdctlMaintenance(t, e)
		})
	}
	t.Run("benchmark", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		benchmarkWorks(t, etcdtest.Tool(t, "go.etcd.io/etcd/v3/tools/benchmark"), w.gateway())
	})
	t.Run("concurrency", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		concurrencyWorks(t, w.gateway(), w.gateway())
	})
	t.Run("counters", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		counts(t, w)
	})
}

// counts increases counters with transactions through two gateways, and reads the counters through
// both. No increase may be lost, and a read after an increase must see it.
func counts(t *testing.T, w *world) {
	t.Helper()
	const each, keys = 150, 3
	clients := []*clientv3.Client{etcdtest.Client(t, w.gateway()), etcdtest.Client(t, w.gateway())}
	var mu sync.Mutex
	done := make([]int, keys) // number of acknowledged increases, by key
	var wg sync.WaitGroup
	for i, c := range clients {
		other := clients[1-i]
		wg.Go(func() {
			for n := range each {
				k := n % keys
				key := fmt.Sprint("counter", k)
				for {
					r, err := c.Get(t.Context(), key)
					if err != nil {
						t.Error(err)
						return
					}
					value, revision := 0, int64(0)
					if len(r.Kvs) > 0 {
						value, _ = strconv.Atoi(string(r.Kvs[0].Value))
						revision = r.Kvs[0].ModRevision
					}
					if r.Header.Revision < revision {
						t.Errorf("%s of revision %d in an answer of revision %d", key, revision, r.Header.Revision)
					}
					txn, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=",
						revision)).Then(clientv3.OpPut(key, fmt.Sprint(value+1))).Commit()
					if err != nil {
						t.Error(err)
						return
					}
					if txn.Succeeded {
						break
					}
				}
				mu.Lock()
				done[k]++
				least := done[k]
				mu.Unlock()
				r, err := other.Get(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				if len(r.Kvs) == 0 {
					t.Errorf("%s is not there", key)
				} else if value, _ := strconv.Atoi(string(r.Kvs[0].Value)); value < least {
					t.Errorf("%s is %d after %d increases", key, value, least)
				}
			}
		})
	}
	wg.Wait()
	for k, want := range done {
		if r, err := clients[0].Get(t.Context(), fmt.Sprint("counter", k)); err != nil ||
			string(r.Kvs[0].Value) != fmt.Sprint(want) {
			t.Errorf("counter%d: %v, %v; want %d", k, r, err, want)
		}
	}
	if want := "answered=\"network\""; !strings.Contains(exposed(t, w.metrics), want) {
		t.Errorf("no read was answered by the network: this test shows nothing")
	}
}

// exposed returns the metrics in Prometheus' text form.
func exposed(t *testing.T, m *hotkeys.Metrics) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	return page.Body.String()
}

// TestMetrics checks that requests are counted by kind, and that errors, read keys and etcd's time
// are counted. It tests a gateway that forwards the key-value service, and one that serves it.
func TestMetrics(t *testing.T) {
	for way, served := range ways {
		t.Run(way, func(t *testing.T) {
			c := etcdtest.New(t, 1, etcdtest.Options{})
			u, err := Dial(UpstreamConfig{Endpoints: c.Endpoints()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { u.Close() })
			newest := new(Newest)
			m := hotkeys.NewMetrics(hotkeys.Bounds{}, newest.Revision)
			cfg := Config{Upstream: u, Newest: newest, Metrics: m}
			if served {
				cfg.KV = forwarded{Forward(u, m)}
			}
			client := etcdtest.Client(t, begin(t, cfg).Endpoint)
			for range 3 {
				client.Get(t.Context(), "k")
			}
			client.Get(t.Context(), "k", clientv3.WithPrefix())
			// counted as a get, but not as a read of the key, because the switches cannot answer it
			client.Get(t.Context(), "old", clientv3.WithRev(1))
			client.Put(t.Context(), "k", "v")
			client.Txn(t.Context()).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("k", "w"),
				clientv3.OpDelete("k")}, nil)).Commit()
			client.Delete(t.Context(), "k")
			client.Delete(t.Context(), "k", clientv3.WithPrefix())
			client.Put(t.Context(), "", "v") // the key is empty
			client.Grant(t.Context(), 60)
			// The relay counts an answer after it has forwarded it, so the client may see the
			// answer first.
			want := []string{
				`etcd_monitor_requests_total{kind="get"} 4`, `etcd_monitor_requests_total{kind="range"} 1`, `etcd_monitor_requests_total{kind="put"} 2`, `etcd_monitor_requests_total{kind="txn"} 1`,
				`etcd_monitor_requests_total{kind="delete"} 1`, `etcd_monitor_requests_total{kind="delete_range"} 1`, `etcd_monitor_requests_total{kind="LeaseGrant"} 1`,
				`etcd_monitor_request_errors_total{code="InvalidArgument",kind="put"} 1`, `etcd_monitor_key_reads_total{key="k"} 3`, `etcd_monitor_key_writes_total{key="k"} 4`,
				`etcd_monitor_keys_counted 1`, `etcd_monitor_etcd_seconds_count{kind="get"} 4`, `etcd_monitor_etcd_seconds_count{kind="txn"} 1`, "etcd_monitor_revision 3",
			}
			poll.Nil(t, 10*time.Second, "all to be counted", func() error {
				got := exposed(t, m)
				for _, line := range want {
					if !strings.Contains(got, line+"\n") {
						return fmt.Errorf("no %s in\n%s", line, got)
					}
				}
				return nil
			})
		})
	}
}

// TestHistories checks that clients of two gateways see linearizable keys, values, versions and
// revisions while keys are placed and removed. The gateways serve over TCP, as the command does.
func TestHistories(t *testing.T) {
	w := newWorld(t)
	etcd := etcdtest.Client(t, w.cluster.Endpoints()...)
	since, err := etcd.Get(t.Context(), "since")
	if err != nil {
		t.Fatal(err)
	}
	h := histories.New(func(err error) bool {
		return etcderrors.Definite(err) || strings.Contains(err.Error(), "nothing was written")
	})
	var gateways [2]pb.KVServer
	for i := range gateways {
		gateways[i] = histories.Through(etcdtest.Client(t, w.gateway()).KV)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	var clients sync.WaitGroup
	for c := range 6 {
		clients.Go(func() { h.Client(ctx, c, func() pb.KVServer { return gateways[c%2] }, []string{"a", "b", "w1", "k"}) })
	}
	clients.Wait()
	if err := h.Check(time.Minute); err != nil {
		t.Fatal(err)
	}
	headers, err := h.CheckHeaders(t.Context(), etcd, since.Header.Revision)
	if err != nil {
		t.Fatal(err)
	}
	operations, unanswered := h.Count()
	t.Logf("%d operations, %d of them without an answer; what %d say of a revision is so; %d hits", operations, unanswered,
		headers, w.hits())
	if operations < 20 {
		t.Error("too little happened")
	}
}

// hits returns the number of reads that the switches have answered.
func (w *world) hits() (n int) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.metrics)
	families, err := registry.Gather()
	if err != nil {
		w.t.Error(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "etcd_monitor_reads_total" && l.GetValue() == "network" {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

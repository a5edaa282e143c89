package gateway

import (
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	etcdnamespace "go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// TestNamespace checks that everything works in a namespace, and that at etcd all names have the
// prefix. The gateway reads what etcd's own client with a namespace writes, and vice versa. A key
// is placed under its name at etcd. The gateway then reads it from the switches and guards it.
func TestNamespace(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	w := &world{t: t, cluster: c, slots: etcdtest.NewSlots(), metrics: hotkeys.NewMetrics(
		hotkeys.Bounds{}, nil)}
	direct := etcdtest.Client(t, c.Endpoints()...)
	for _, key := range []string{"team/placed", "placed"} { // the second key is outside of the namespace
		if _, err := (placement.Store{KV: direct, Prefix: placement.DefaultPrefix}).Put(t.Context(), key,
			w.slots.Add()); err != nil {
			t.Fatal(err)
		}
	}
	within := etcdnamespace.NewKV(direct.KV, "team/")
	for name, endpoint := range map[string]string{"placement": w.gatewayOf("team/", c.Endpoints()...),
		"passed": begin(t, Config{Namespace: "team/"}, c.Endpoints()...).Endpoint} {
		client := etcdtest.Client(t, endpoint)
		watch := client.Watch(t.Context(), "", clientv3.WithFromKey(), clientv3.WithPrevKV(),
			clientv3.WithCreatedNotify())
		if r := <-watch; r.Err() != nil {
			t.Fatal(name, r.Err())
		}
		for _, put := range []func() error{
			func() error { return second(client.Put(t.Context(), "placed", "1")) },
			func() error { return second(direct.Put(t.Context(), "elsewhere", "1")) },
			func() error { return second(client.Put(t.Context(), "placed", "2")) },
			func() error { return second(within.Put(t.Context(), "k", "3")) },
		} {
			if err := put(); err != nil {
				t.Fatal(name, err)
			}
		}
		for _, want := range []string{"placed=1", "placed=2", "k=3"} {
			r := <-watch
			if r.Err() != nil || len(r.Events) != 1 || string(r.Events[0].Kv.Key)+"="+
				string(r.Events[0].Kv.Value) != want {
				t.Fatalf("%s: the watch: %v, %v; want %s", name, r, r.Err(), want)
			}
			if want == "placed=2" && string(r.Events[0].PrevKv.Key) != "placed" {
				t.Errorf("%s: the former value is of %q", name, r.Events[0].PrevKv.Key)
			}
		}
		for range 3 { // the first read may go to etcd
			if r, err := client.Get(t.Context(), "placed"); err != nil || len(r.Kvs) != 1 ||
				string(r.Kvs[0].Key) != "placed" || string(r.Kvs[0].Value) != "2" {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		}
		if name == "placement" {
			if got := exposed(t, w.metrics); !strings.Contains(got, `etcd_monitor_reads_total{answered="network"`) || !strings.Contains(got, `etcd_monitor_key_reads_total{key="team/placed"}`) {
				t.Errorf("the placed key was not read from the network, or is not counted by its name:\n%s", got)
			}
		}
		if r, err := direct.Get(t.Context(), "team/placed"); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "2" {
			t.Errorf("%s: at etcd: %v, %v", name, r, err)
		}
		all, err := client.Get(t.Context(), "", clientv3.WithFromKey())
		if err != nil || len(all.Kvs) != 2 || string(all.Kvs[0].Key) != "k" {
			t.Errorf("%s: all keys: %v, %v", name, all, err)
		}
		if _, err := client.Put(t.Context(), "", "x"); err == nil ||
			!strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCEmptyKey)) {
			t.Errorf("%s: a put without a key: %v", name, err)
		}

		lease, err := client.Grant(t.Context(), 60)
		if err != nil {
			t.Fatal(name, err)
		}
		client.Put(t.Context(), "leased", "", clientv3.WithLease(lease.ID))
		direct.Put(t.Context(), "other", "", clientv3.WithLease(lease.ID))
		if r, err := client.TimeToLive(t.Context(), lease.ID, clientv3.WithAttachedKeys()); err != nil ||
			len(r.Keys) != 1 || string(r.Keys[0]) != "leased" {
			t.Errorf("%s: the lease's keys: %q, %v", name, r.Keys, err)
		}
		lock, err := v3lockpb.NewLockClient(client.ActiveConnection()).Lock(t.Context(),
			&v3lockpb.LockRequest{Name: []byte("lock"), Lease: int64(lease.ID)})
		if err != nil || !strings.HasPrefix(string(lock.Key), "lock/") {
			t.Fatalf("%s: the lock: %v, %v", name, lock, err)
		}
		if r, err := direct.Get(t.Context(), "team/"+string(lock.Key)); err != nil || len(r.Kvs) != 1 {
			t.Errorf("%s: the lock's key at etcd: %v, %v", name, r, err)
		}
		if _, err := v3lockpb.NewLockClient(client.ActiveConnection()).Unlock(t.Context(),
			&v3lockpb.UnlockRequest{Key: lock.Key}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		concurrencyWorks(t, endpoint, endpoint)
		election, err := concurrency.NewSession(client)
		if err != nil {
			t.Fatal(name, err)
		}
		election.Close()

		// This delete must not change keys outside of the namespace.
		if _, err := client.Delete(t.Context(), "", clientv3.WithFromKey()); err != nil {
			t.Fatal(name, err)
		}
		r, err := direct.Get(t.Context(), "", clientv3.WithFromKey(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, kv := range r.Kvs {
			if !strings.HasPrefix(string(kv.Key), placement.DefaultPrefix) {
				left = append(left, string(kv.Key))
			}
		}
		if !slices.Equal(left, []string{"elsewhere", "other"}) {
			t.Errorf("%s: after everything was deleted there are %q", name, left)
		}
		client.Revoke(t.Context(), lease.ID)
	}
}

package gateway

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// unplacedWays returns an etcd and ways to reach it: directly, through etcd's own proxy, and
// through gateways. The gateway "passed" forwards everything. "placement" has placement enabled,
// but no placed key. "grpc" forwards everything without the relay.
func unplacedWays(b testing.TB) (*etcdtest.Cluster, []struct{ name, endpoint string }) {
	c := etcdtest.New(b, 1, etcdtest.Options{})
	w := &world{t: b, cluster: c, slots: etcdtest.NewSlots(), metrics: hotkeys.NewMetrics(
		hotkeys.Bounds{}, nil)}
	return c, []struct{ name, endpoint string }{
		{"etcd", c.Endpoints()[0]}, {"grpc-proxy", beginGRPCProxy(b, c.Endpoints()...)},
		{"passed", beginWay(b, false, c.Endpoints()...).Endpoint}, {"placement", w.gateway()},
		{"grpc", beginAs(b, Config{}, UpstreamConfig{Endpoints: c.Endpoints()}, "http", transport.TLSInfo{}).Endpoint},
	}
}

// BenchmarkUnplaced measures a gateway's cost for keys that are not placed: go test
// ./etcd-monitor/gateway -bench Unplaced -run xxx
func BenchmarkUnplaced(b *testing.B) {
	_, ways := unplacedWays(b)
	for _, op := range []struct {
		name string
		op   clientv3.Op
	}{{"put", clientv3.OpPut("r/1", strings.Repeat("v", 100))}, {"range", clientv3.OpGet("r/", clientv3.WithPrefix())}} {
		for _, way := range ways {
			b.Run(op.name+"/"+way.name, func(b *testing.B) {
				var clients []*clientv3.Client
				for range 8 {
					clients = append(clients, etcdtest.Client(b, way.endpoint))
				}
				if _, err := clients[0].Do(b.Context(), op.op); err != nil {
					b.Fatal(err)
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				var working sync.WaitGroup
				b.ResetTimer()
				for i := range 64 {
					working.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := clients[i%len(clients)].Do(b.Context(), op.op); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				working.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			})
		}
	}
}

// BenchmarkWatches measures 10,000 watches of one key on 100 streams. It reports how many watches
// etcd has, and how long it takes until all watches have an event.
func BenchmarkWatches(b *testing.B) {
	c, ways := unplacedWays(b)
	direct := etcdtest.Client(b, c.Endpoints()...)
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			all := watchMany(b, way.endpoint, 10, 10, 100, "k")
			time.Sleep(2 * time.Second)
			atEtcd := metricOf(b, c.Endpoints()[0], watchersMetric)
			b.ResetTimer()
			defer func() { b.ReportMetric(float64(atEtcd), "at-etcd") }()
			for range b.N {
				if _, err := direct.Put(b.Context(), "k", "v"); err != nil {
					b.Fatal(err)
				}
				for _, ch := range all {
					r := <-ch
					if r.Err() != nil && way.name == "grpc-proxy" {
						b.Skip("it ends a client's stream that is busy for 50 ms: ", r.Err())
					}
					if r.Err() != nil || len(r.Events) != 1 {
						b.Fatal(r, r.Err())
					}
				}
			}
		})
	}
}

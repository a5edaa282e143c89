package gateway

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// BenchmarkGet measures the gateway's cost for a linearizable read of one key, with one client and
// with 64 concurrent ones: go test ./etcd-monitor/gateway -bench Get -run xxx
func BenchmarkGet(b *testing.B) {
	c := etcdtest.New(b, 1, etcdtest.Options{})
	endpoints := []struct{ name, endpoint string }{
		{"direct", c.Endpoints()[0]},
		{"passed", beginWay(b, false, c.Endpoints()...).Endpoint},
		{"served", beginWay(b, true, c.Endpoints()...).Endpoint},
	}
	if _, err := etcdtest.Client(b, c.Endpoints()...).Put(b.Context(), "k", "some hundred bytes, as most values in etcd are not, but those that are read often may well be, so here"); err != nil {
		b.Fatal(err)
	}
	for _, workers := range []int{1, 64} {
		for _, e := range endpoints {
			b.Run(map[int]string{1: "one/", 64: "64/"}[workers]+e.name, func(b *testing.B) {
				client := etcdtest.Client(b, e.endpoint)
				if _, err := client.Get(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				var mu sync.Mutex
				var all []time.Duration
				var wg sync.WaitGroup
				b.ResetTimer()
				for range workers {
					wg.Go(func() {
						var took []time.Duration
						for left.Add(-1) >= 0 {
							began := time.Now()
							if _, err := client.Get(b.Context(), "k"); err != nil {
								b.Error(err)
								return
							}
							took = append(took, time.Since(began))
						}
						mu.Lock()
						defer mu.Unlock()
						all = append(all, took...)
					})
				}
				wg.Wait()
				b.StopTimer()
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
			})
		}
	}
}

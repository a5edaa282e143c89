package durable

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestMetrics checks that calls are counted by result, and keys by namespace. Each metric must be
// in the documentation.
func TestMetrics(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	registry := prometheus.NewPedanticRegistry()
	s := open(t, Options{Metrics: registry, Quota: func(string) int { return 2 }}, cluster.Endpoints()...)
	ctx := t.Context()
	for _, name := range []string{"a", "a", "b"} {
		if _, err := s.Put(ctx, key(name), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(ctx, key("c"), []byte("value")); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}) {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, key("a"), false); err != nil {
		t.Fatal(err)
	}
	// this call also reads the key, but counts as one call
	if _, swapped, err := s.CompareAndSwap(ctx, key("a"), 5, []byte("x")); swapped || err != nil {
		t.Fatal(swapped, err)
	}
	if _, err := s.Delete(ctx, key("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(ctx, key("a").Namespace, ""); err != nil {
		t.Fatal(err)
	}
	for labels, want := range map[[2]string]float64{{"put", "ok"}: 3, {"put", "quota_exceeded"}: 1, {"get", "ok"}: 1,
		{"cas", "ok"}: 1, {"delete", "ok"}: 1, {"list", "ok"}: 1} {
		if got := testutil.ToFloat64(s.count.calls.WithLabelValues(labels[:]...)); got != want {
			t.Errorf("%v: %v, not %v", labels, got, want)
		}
	}
	if got := testutil.ToFloat64(s.count.keys.WithLabelValues(key("a").Namespace)); got != 2 {
		t.Errorf("%v keys", got)
	}
	if got := testutil.ToFloat64(s.count.reaches); got != 1 {
		t.Errorf("connected: %v", got)
	}
	text, err := os.ReadFile("../../docs/node-api.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != len(s.count.all()) {
		t.Fatal(families, err)
	}
	for _, f := range families {
		if !strings.Contains(string(text), "\n| `"+f.GetName()+"` |") {
			t.Errorf("%s is not documented", f.GetName())
		}
	}
	for i := range 2 * maxCounted { // many namespaces must not cause more time series than the maximum
		s.count.has(fmt.Sprint("namespace", i), 1)
	}
	if n := testutil.CollectAndCount(s.count.keys); n != maxCounted {
		t.Errorf("keys of %d namespaces", n)
	}

	cluster.Stop(0)
	poll.Until(t, soon, "that etcd cannot be reached is seen", func() bool { return testutil.ToFloat64(s.count.reaches) == 0 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("%d metrics are left: %v", n, err)
	}
}

package durable

import (
	"testing"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// BenchmarkCalls measures single calls, one after the other, through a gateway. The etcd is in this
// process and does not wait for its disk, and slots are in memory. So the benchmark measures the
// software without a network.
func BenchmarkCalls(b *testing.B) {
	w := newWorld(b)
	s := open(b, Options{}, w.gateway())
	ctx := b.Context()
	put := func(name string) {
		if _, err := s.Put(ctx, key(name), []byte("value")); err != nil {
			b.Fatal(err)
		}
	}
	get := func(name string) error {
		_, err := s.Get(ctx, key(name), false)
		return err
	}
	put("placed")
	put("other")
	if _, err := w.place(ctx, etcdtest.Client(b, w.Endpoints()...), nameOf(key("placed"))); err != nil {
		b.Fatal(err)
	}
	put("placed")
	w.read(func() error { return get("placed") })
	for _, name := range []string{"placed", "other"} {
		b.Run("get "+name, func(b *testing.B) {
			for b.Loop() {
				if err := get(name); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("put "+name, func(b *testing.B) {
			for b.Loop() {
				put(name)
			}
		})
	}
}

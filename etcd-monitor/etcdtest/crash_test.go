package etcdtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestKillWhileReading kills a member repeatedly while many clients read. A handler that reads the
// closed database must not panic.
func TestKillWhileReading(t *testing.T) {
	c := New(t, 1, Options{})
	ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()
	filler := Client(t, c.Endpoints()...)
	for i := range 500 {
		if _, err := filler.Put(ctx, fmt.Sprintf("/k/%03d", i), strings.Repeat("v", 500)); err != nil {
			t.Fatalf("put: %v", err)
		}
	}
	var reads atomic.Int64
	var readers sync.WaitGroup
	for i := range 16 {
		reader := Client(t, c.Endpoints()...)
		readers.Go(func() {
			var options = []clientv3.OpOption{clientv3.WithPrefix()}
			if i%2 == 0 {
				options = append(options, clientv3.WithSerializable())
			}
			for ctx.Err() == nil {
				ask, cancel := context.WithTimeout(ctx, time.Second)
				if answer, err := reader.Get(ask, "/k/", options...); err == nil {
					if len(answer.Kvs) != 500 {
						t.Errorf("a read has %d of 500 keys", len(answer.Kvs))
					}
					reads.Add(1)
				}
				cancel()
			}
		})
	}
	for range 3 {
		for before := reads.Load(); reads.Load() < before+50 && ctx.Err() == nil; {
			time.Sleep(5 * time.Millisecond)
		}
		c.Kill(0)
		c.Start(0)
	}
	if ctx.Err() != nil {
		t.Error("not read and killed three times within a minute")
	}
	stop()
	readers.Wait()
}

package seal

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

const prefix = placement.DefaultPrefix

func newKeys(t *testing.T, etcd clientv3.KV) *Keys {
	t.Helper()
	k := NewKeys(etcd, prefix)
	if err := k.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

func primary(k *Keys) uint32 {
	id, _ := k.Ring().Primary()
	return id
}

// If several gateways start at once, one of them makes the first key, and all of them get it. If
// several gateways are told to rotate the key at once, all their new keys remain. If several
// gateways find that the key is too old, only one of them makes a new key.
func TestKeys(t *testing.T) {
	etcd := etcdtest.Client(t, etcdtest.New(t, 1, etcdtest.Options{}).Endpoints()...)
	var all [6]*Keys
	atOnce := func(do func(int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() {
				if err := do(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range all {
			if err := all[i].Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if primary(all[i]) != primary(all[0]) || len(all[i].Ring().Keys()) != len(all[0].Ring().Keys()) {
				t.Fatalf("%v and %v", all[i].Ring().Keys(), all[0].Ring().Keys())
			}
		}
	}
	atOnce(func(i int) error {
		all[i] = NewKeys(etcd, prefix)
		return all[i].Ensure(t.Context())
	})
	if n := len(all[0].Ring().Keys()); n != 1 {
		t.Errorf("%d keys", n)
	}
	first := primary(all[0])
	b, err := all[0].Ring().Seal(value, here)
	if err != nil {
		t.Fatal(err)
	}
	atOnce(func(i int) error { _, err := all[i].Rotate(t.Context(), false); return err })
	if n := len(all[0].Ring().Keys()); n != 7 {
		t.Errorf("%d keys; want the first and six more", n)
	}
	old := primary(all[0])
	atOnce(func(i int) error { return all[i].RotateIf(t.Context(), old) })
	if n := len(all[0].Ring().Keys()); n != 8 || primary(all[0]) == old {
		t.Errorf("%d keys; want one more", n)
	}
	if got, err := all[3].Ring().Open(b, here); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%x, %v", got, err)
	}
	// A key is dropped a day after it was replaced, unless a cell is still sealed with it.
	now := time.Now()
	for _, step := range []struct {
		at   time.Time
		used map[uint32]bool
		left int
	}{{now, nil, 8}, {now.Add(Kept - time.Minute), nil, 8}, {now.Add(Kept + time.Minute),
		map[uint32]bool{first: true}, 2}, {now.Add(Kept + time.Minute), nil, 1}, {now.Add(1000 * Kept), nil, 1}} {
		if err := all[1].Prune(t.Context(), step.used, step.at); err != nil || len(all[1].Ring().Keys()) != step.left {
			t.Errorf("after %v, with %v in use: %v, %v; want %d", step.at.Sub(now), step.used, all[1].Ring().Keys(), err, step.left)
		}
	}
	if ok, err := all[2].Want(t.Context(), first); err != nil || !ok {
		t.Errorf("a key that was dropped, of who has not heard of that: %v, %v", ok, err)
	}
	if ok, err := all[1].Want(t.Context(), first); err != nil || ok {
		t.Errorf("a key that was dropped: %v, %v", ok, err)
	}
	if id, err := all[1].Rotate(t.Context(), true); err != nil || len(all[1].Ring().Keys()) != 1 ||
		primary(all[1]) != id {
		t.Errorf("%v, %v", all[1].Ring().Keys(), err)
	}
}

// A key is replaced when it is too old or has sealed too many cells, and all gateways learn the new
// key. Without a maximum age, no key is too old.
func TestFollow(t *testing.T) {
	etcd := etcdtest.Client(t, etcdtest.New(t, 1, etcdtest.Options{}).Endpoints()...)
	k, other := newKeys(t, etcd), newKeys(t, etcd)
	follow := func(k *Keys, age time.Duration) func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Follow(ctx, etcd, age, slog.New(slog.DiscardHandler))
		}()
		return func() { cancel(); <-done }
	}
	first := primary(k)
	stop := follow(k, time.Hour)
	time.Sleep(300 * time.Millisecond)
	stop()
	if primary(k) != first {
		t.Error("a new key was replaced")
	}
	stop = follow(k, time.Millisecond)
	poll.Until(t, 5*time.Second, "there are two keys", func() bool { return len(k.Ring().Keys()) >= 2 })
	stop()
	old := primary(k)
	k.Ring().sealed.Store(MaxSeals)
	listening := follow(other, 0)
	defer listening()
	stop = follow(k, 0)
	defer stop()
	poll.Until(t, 5*time.Second, "both have the same new key", func() bool { return primary(k) != old && primary(other) == primary(k) },
		func() string {
			return fmt.Sprintf("sealed %d; %d was replaced by %d and %d", k.Ring().Sealed(), old, primary(k), primary(other))
		})
	if n := k.Ring().Sealed(); n != 0 {
		t.Errorf("a new key has sealed %d", n)
	}
	// The count of a key's sealed cells survives the removal of other keys.
	if _, err := k.Ring().Seal(value, here); err != nil {
		t.Fatal(err)
	}
	if err := k.Prune(t.Context(), nil, time.Now().Add(2*Kept)); err != nil || len(k.Ring().Keys()) != 1 ||
		k.Ring().Sealed() != 1 {
		t.Errorf("%v; %v, sealed %d", err, k.Ring().Keys(), k.Ring().Sealed())
	}
}

// An invalid keyset in etcd causes an error, and the known keys remain in use.
func TestNoKeys(t *testing.T) {
	etcd := etcdtest.Client(t, etcdtest.New(t, 1, etcdtest.Options{}).Endpoints()...)
	k := newKeys(t, etcd)
	first := primary(k)
	if _, err := etcd.Put(t.Context(), Prefix(prefix)+"keys", "nonsense"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Load": k.Load(t.Context()), "Ensure": k.Ensure(t.Context()),
		"a new one": NewKeys(etcd, prefix).Ensure(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "with it deleted the next gateway makes new ones") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if primary(k) != first {
		t.Error("the keys that were known are gone")
	}
	if _, err := etcd.Delete(t.Context(), Prefix(prefix)+"keys"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Rotate(t.Context(), false); err == nil || !strings.Contains(err.Error(), "no gateway has been started") {
		t.Errorf("%v", err)
	}
	if _, err := k.Want(t.Context(), first+1); err == nil {
		t.Error("a key is not there for sure, though there are none in etcd")
	}
	if err := k.Ensure(t.Context()); err != nil || primary(k) == first {
		t.Errorf("%v", err)
	}
}

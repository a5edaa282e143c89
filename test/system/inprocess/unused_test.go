package inprocess

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestRemoveUnused checks that a key is removed only if it has not changed since its deletion. One
// client removes the key while another client writes it all the time. No write may be lost.
func TestRemoveUnused(t *testing.T) {
	x := newTestbed(t, twoChains())
	r := x.controller()
	r.WaitAllReady()
	s, _ := nodeStore(x, r, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	k := store.Key{Namespace: shop, Name: "k"}
	full := nodeapi.KeyName(shop, "k")
	refused := &admin.Error{Code: admin.CodeFailedPrecondition}
	if err := r.API.RemoveUnused(ctx, full, 0); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
		t.Error(err)
	}
	v, err := s.Put(ctx, k, []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []wire.Version{0, v, v + 1} {
		if err := r.API.RemoveUnused(ctx, full, uint64(version)); !errors.Is(err, refused) {
			t.Errorf("in use, and removed at %v: %v", version, err)
		}
	}
	if v, err = s.Delete(ctx, k); err != nil {
		t.Fatal(err)
	}
	if err := r.API.RemoveUnused(ctx, full, uint64(v-1)); !errors.Is(err, refused) {
		t.Error(err)
	}
	if err := r.API.RemoveUnused(ctx, full, uint64(v)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.API.Lookup(ctx, full); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
		t.Error(err)
	}
	poll.Until(t, 20*time.Second, "the slot is free", func() bool {
		a, err := r.API.Chain(ctx, "a")
		b, err2 := r.API.Chain(ctx, "b")
		return err == nil && err2 == nil && a.Keys+b.Keys == 0
	})
	if got, ok, err := s.CompareAndSwap(ctx, k, v, []byte("no")); err != nil || ok || got.Version != 0 {
		t.Error(got, ok, err)
	}
	if _, err := request(t, r, admin.KeyRequest{Name: full}); err != nil {
		t.Fatal(err)
	}
	if err := r.API.RemoveUnused(ctx, full, 0); err != nil {
		t.Error("never written: ", err)
	}

	// One client writes the key. Another client removes the key whenever it finds the key deleted.
	busy, stop := context.WithTimeout(ctx, 15*time.Second)
	defer stop()
	var removed atomic.Int32
	var wg sync.WaitGroup
	other, _ := nodeStore(x, r, 4)
	wg.Go(func() {
		for busy.Err() == nil && removed.Load() < 8 {
			got, err := other.Get(ctx, k, false)
			if err != nil {
				t.Error(err)
				return
			}
			if !got.Found && r.API.RemoveUnused(ctx, full, uint64(got.Version)) == nil {
				removed.Add(1)
			}
		}
		stop()
	})
	last, unknown := v, 0
	newer := func(v wire.Version, err error) bool {
		switch {
		case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}):
			unknown++
			return false
		case err != nil:
			t.Error(err)
			return false
		case v <= last && v != 0: // The key was already deleted.
			t.Errorf("version %v after %v", v, last)
		}
		last = max(last, v)
		return true
	}
	rounds := 0
	for ; busy.Err() == nil && !t.Failed(); rounds++ {
		want := fmt.Sprint(rounds)
		if newer(s.Put(ctx, k, []byte(want))) {
			if got, err := other.Get(ctx, k, false); err != nil || string(got.Value) != want {
				t.Errorf("%q was written, and is %+v, %v", want, got, err)
			}
		}
		newer(s.Delete(ctx, k))
		// Some pauses are long enough for the removal.
		time.Sleep(time.Duration(rounds%4) * 15 * time.Millisecond)
	}
	wg.Wait()
	t.Logf("%d rounds, %d writes of unknown outcome, removed %d times", rounds, unknown, removed.Load())
	if removed.Load() == 0 {
		t.Error("it was never removed")
	}
}

// TestUnusedKeysGo checks that the stores of nodes remove unused keys automatically.
func TestUnusedKeysGo(t *testing.T) {
	x := newTestbed(t, twoChains())
	r := x.controller()
	r.WaitAllReady()
	s, _ := nodeStore(x, r, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for i := range 4 {
		if _, err := s.Put(ctx, store.Key{Namespace: shop, Name: fmt.Sprint(i)}, []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if _, err := s.Delete(ctx, store.Key{Namespace: shop, Name: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := request(t, r, admin.KeyRequest{Name: nodeapi.KeyName(shop, "never")}); err != nil {
		t.Fatal(err)
	}
	if _, err := request(t, r, admin.KeyRequest{Name: "not/the node API's"}); err != nil {
		t.Fatal(err)
	}
	// This is the store of another node, which has deleted none of the keys.
	nodeStore(x, r, 4, func(o *keys.Options) { o.Unused = 500 * time.Millisecond })
	poll.Until(t, 20*time.Second, "the deleted ones have gone", func() bool {
		left, err := r.API.Directory(ctx, "no", false)
		return err == nil && len(left) == 3
	})
	list, err := s.List(ctx, shop, "")
	if err != nil || fmt.Sprint(list) != "[{shop 2} {shop 3}]" {
		t.Error(list, err)
	}
}

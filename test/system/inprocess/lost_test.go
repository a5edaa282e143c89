package inprocess

import (
	"context"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestNodeKeysLost checks what happens to a chain's keys when all members are restarted at once.
// Keys that nodes have created must read as deleted, with a version above their old version.
// Watchers must be notified, and clients that use CAS must be able to continue. A key that an
// operator has created must read as never written.
func TestNodeKeysLost(t *testing.T) {
	l := twoChains()
	l.Chains = l.Chains[:1]
	x := newTestbed(t, l)
	r := x.controller()
	r.WaitAllReady()
	one, _ := nodeStore(x, r, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	written := store.Key{Namespace: shop, Name: "written"}
	held := store.Key{Namespace: shop, Name: "held"}
	before, err := one.Put(ctx, written, []byte("gold"))
	if err != nil {
		t.Fatal(err)
	}
	first, ok, err := one.CompareAndSwap(ctx, held, 0, []byte("me"))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	told := make(chan store.Change, 100)
	go func() {
		_ = one.Watch(ctx, store.Watch{Namespace: shop, Keys: []string{written.Name}}, func(all []store.Change) {
			for _, c := range all {
				told <- c
			}
		})
	}()
	if c := <-told; !c.Found || c.Version != before {
		t.Fatalf("the watch begins with %+v", c)
	}
	for _, s := range x.switches[:2] {
		s.Kill()
	}
	r.WaitEvent("switch.disconnected", "s1")
	r.WaitEvent("switch.disconnected", "s2")
	for _, s := range x.switches[:2] {
		s.start()
	}
	r.WaitEvent("chain.lost", "")
	// The store follows the key until its tombstone is written, which may take longer than one
	// call.
	var got store.Item
	poll.Nil(t, 20*time.Second, "it is read", func() (err error) {
		short, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		got, err = one.Get(short, written, false)
		return err
	})
	if got.Found || got.Version <= before {
		t.Errorf("a key whose value is lost is %+v; it had %v", got, before)
	}
	if c := <-told; c.Found || c.Version != got.Version {
		t.Errorf("the watch tells %+v, want the loss at %v", c, got.Version)
	}
	lost := got
	state, ok, err := one.CompareAndSwap(ctx, held, first.Version, []byte("still me"))
	if err != nil || ok || state.Found || state.Version <= first.Version {
		t.Errorf("swapped by a version that is lost: %+v, %v, %v", state, ok, err)
	}
	again, ok, err := one.CompareAndSwap(ctx, held, state.Version, []byte("you"))
	if err != nil || !ok || again.Version <= state.Version {
		t.Errorf("swapped by the version of the loss: %+v, %v, %v", again, ok, err)
	}
	if got, err = one.Get(ctx, held, true); err != nil || string(got.Value) != "you" {
		t.Errorf("read: %+v, %v", got, err)
	}
	r.WaitAllReady()
	// this is the time of two rounds in which the controller searches for such keys
	time.Sleep(time.Second)
	if now, err := one.Get(ctx, written, false); err != nil || now.Version != lost.Version {
		t.Errorf("with nobody writing it is %+v, %v", now, err)
	}
}

package inprocess

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/test/system/lab"
)

// This file tests the store of the node API with the real controller and the real switch program.

const shop = "shop"

// calmChains returns a layout of two chains. Their members keep their leases, however busy the
// machine is.
func calmChains() lab.Layout {
	layout := twoChains()
	for i := range layout.Chains {
		layout.Chains[i].Lease = 2000
	}
	return layout
}

// nodeStore returns the store of a node at the host of a switch.
func nodeStore(x *testbed, r *lab.Controller, host int, adjust ...func(*keys.Options)) (*keys.Store, *relay) {
	x.t.Helper()
	way, url := newRelay(x, host)
	way.ask(r.URL)
	o := keys.Options{Admin: admin.NewClient(url), Node: fmt.Sprint("h", host), Sessions: 4,
		Interval: 50 * time.Millisecond,
		Patience: 10 * time.Second}
	for _, a := range adjust {
		a(&o)
	}
	s, err := keys.New(x.t.Context(), o)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			x.t.Error(err)
		}
	})
	return s, way
}

// move moves a key to the other chain. It returns false if the key cannot be moved now.
func move(t *testing.T, r *lab.Controller, name string) bool {
	k, err := r.API.Lookup(t.Context(), name)
	if err != nil {
		return false
	}
	_, err = r.API.MoveKey(t.Context(), k.Chain, name, map[string]string{"a": "b", "b": "a"}[k.Chain])
	return err == nil
}

// TestNodeKeysLife checks that two nodes that create a key at once get the same key. They find it
// again after the operator has removed it. Without a controller, known keys can still be used.
// Quotas are enforced.
func TestNodeKeysLife(t *testing.T) {
	x := newTestbed(t, calmChains())
	r := x.controller()
	r.WaitAllReady()
	quota := func(o *keys.Options) {
		o.Quota, o.Patience = func(string) int { return 3 }, 2*time.Second
	}
	one, way := nodeStore(x, r, 1, quota)
	two, _ := nodeStore(x, r, 4, quota)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	k := store.Key{Namespace: shop, Name: "leader"}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won []wire.Version
	for i, s := range []*keys.Store{one, two, one, two} {
		wg.Go(func() {
			got, ok, err := s.CompareAndSwap(ctx, k, 0, fmt.Append(nil, i))
			if err != nil || !got.Found {
				t.Error(got, ok, err)
			}
			if ok {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, got.Version)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d have swapped it from nothing", len(won))
	}
	placed, err := r.API.Directory(ctx, nodeapi.KeyPrefix, false)
	if err != nil || len(placed) != 1 || placed[0].Name != "node/shop/leader" {
		t.Fatal(placed, err)
	}
	// The operator removes the key, and a node creates it again. What nodes knew about the key's
	// versions is then obsolete.
	if err := r.API.RemoveKey(ctx, placed[0].Chain, placed[0].Name); err != nil {
		t.Fatal(err)
	}
	if got, err := one.Get(ctx, k, false); err != nil || got.Found || got.Version != 0 {
		t.Error(got, err)
	}
	var v wire.Version
	// This write may have started just after the KEY_ID was removed. In that case, the store cannot
	// know whether a copy of the write was executed.
	poll.Nil(t, 20*time.Second, "the key is written again", func() error {
		v, err = two.Put(ctx, k, []byte("again"))
		if err != nil && !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}) {
			t.Error(err)
		}
		return err
	})
	if v <= won[0] {
		t.Errorf("there again at %v, before %v", v, won[0])
	}
	if got, ok, err := one.CompareAndSwap(ctx, k, won[0], []byte("no")); err != nil || ok || got.Version != v {
		t.Error(got, ok, err)
	}
	for _, name := range []string{"two", "three"} {
		if _, err := one.Put(ctx, store.Key{Namespace: shop, Name: name}, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err = two.Put(ctx, store.Key{Namespace: shop, Name: "four"}, nil)
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}) || !strings.Contains(err.Error(), "there are 3 keys") {
		t.Error(err)
	}
	want := []store.Key{{Namespace: shop, Name: "three"}, {Namespace: shop, Name: "two"}}
	if list, err := two.List(ctx, shop, "t"); err != nil || !slices.Equal(list, want) {
		t.Error(list, err)
	}
	way.ask("")
	if _, err := one.Put(ctx, k, []byte("alone")); err != nil {
		t.Error("without a controller:", err)
	}
	if got, err := one.Get(ctx, k, false); err != nil || string(got.Value) != "alone" {
		t.Error(got, err)
	}
	_, err = one.Put(ctx, store.Key{Namespace: shop, Name: "new"}, nil)
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) {
		t.Error(err)
	}
}

// TestNodeKeysMove checks that the history of two nodes is linearizable, including versions. Some
// keys move between chains all the time, and others never move. A counter must not lose an
// increment.
func TestNodeKeysMove(t *testing.T) {
	x := newTestbed(t, calmChains())
	r := x.controller()
	r.WaitAllReady()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	names := []string{"x", "y"}
	counter := store.Key{Namespace: shop, Name: "counter"}
	const wanted = 6 // number of moves
	busy, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	var mu sync.Mutex
	var history []linearizable.Call
	var calls, sure, unknown, moves int
	var wg sync.WaitGroup
	for c := range 4 {
		s, _ := nodeStore(x, r, 1+3*(c%2))
		wg.Go(func() {
			var mine []linearizable.Call
			r := rand.New(rand.NewPCG(11, uint64(c)))
			seen := map[string]wire.Version{}
			for n := 0; busy.Err() == nil; n++ {
				which := r.IntN(len(names))
				k := store.Key{Namespace: shop, Name: names[which]}
				call := linearizable.Call{Client: c, Key: uint32(which), Op: wire.Read, Begin: time.Now().UnixNano()}
				var err error
				var got store.Item
				ok := true
				switch p := r.IntN(10); {
				case p < 4:
					got, err = s.Get(ctx, k, false)
					call.Got, call.Found = string(got.Value), got.Found
				case p < 6:
					call.Op, call.Value = wire.Write, fmt.Sprintf("%d.%d", c, n)
					got.Version, err = s.Put(ctx, k, []byte(call.Value))
				default:
					call.Op, call.Value, call.Expected = wire.CAS, fmt.Sprintf("%d.%d", c, n), seen[k.Name]
					if call.Delete = p == 9 && call.Expected != 0; call.Delete {
						call.Value = ""
						got, ok, err = s.CompareAndDelete(ctx, k, call.Expected)
					} else {
						got, ok, err = s.CompareAndSwap(ctx, k, call.Expected, []byte(call.Value))
					}
					if call.Failed = err == nil && !ok; call.Failed {
						call.Got, call.Found = string(got.Value), got.Found
					}
				}
				call.End, call.Version = time.Now().UnixNano(), got.Version
				switch {
				case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}):
					call.Unknown, call.Version = true, 0
				case err != nil:
					t.Error(err)
					return
				default:
					seen[k.Name] = got.Version
				}
				mine = append(mine, call)
				mu.Lock()
				calls++
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			history = append(history, mine...)
		})
		wg.Go(func() {
			for busy.Err() == nil {
				got, err := s.Get(ctx, counter, false)
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(got.Value))
				_, ok, err := s.CompareAndSwap(ctx, counter, got.Version, fmt.Append(nil, n+1))
				mu.Lock()
				switch {
				case ok:
					sure++
				case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}):
					unknown++
				case err != nil:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return moves >= wanted && calls >= 50 && sure >= 10
	}
	for i := 0; busy.Err() == nil && !enough(); i++ {
		if move(t, r, nodeapi.KeyName(shop, append(names, "counter")[i%3])) {
			moves++
		}
		time.Sleep(200 * time.Millisecond)
	}
	stop()
	wg.Wait()
	s, _ := nodeStore(x, r, 2)
	got, err := s.Get(ctx, counter, false)
	count, _ := strconv.Atoi(string(got.Value))
	if err != nil || count < sure || count > sure+unknown {
		t.Errorf("the count is %d; %d were surely done, of %d it is not known; %v", count, sure, unknown, err)
	}
	open := 0
	for _, c := range history {
		if c.Unknown {
			open++
		}
	}
	t.Logf("%d moves; %d calls, of %d the outcome is not known; %d increments, %d not known", moves, len(history), open,
		sure, unknown)
	if moves < wanted/2 || len(history) < 50 || sure < 10 {
		t.Errorf("too little has happened")
	}
	switch porcupine.CheckOperationsTimeout(linearizable.Registers, linearizable.Operations(history), 30*time.Second) {
	case porcupine.Illegal:
		t.Error("the history is not linearizable")
	case porcupine.Unknown:
		t.Log("the history was not searched through in time")
	}
}

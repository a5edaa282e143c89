package late

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/p4proxy"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/test/system/lab"
)

// In TestRemovedValue, a switch leaves a chain, a key is removed, and the switch comes back while
// the chain has no keys. Another key gets the removed key's slot. Before the first write of this
// key is committed, no switch may return the removed key's value for it. The same holds if another
// chain takes over the slots of a removed chain. The packets of the first write are held for a
// while at the head.
func TestRemovedValue(t *testing.T) { onEachEngine(t, removedValue) }

func removedValue(t *testing.T, engine string) {
	const secret = "secret"
	nw := lab.NewNetwork(t, engine, ring(3,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: 2 * lease, Patience: lease},
		lab.Chain{ID: 4, Name: "beside", Members: []int{2}, Lease: 2 * lease, Patience: lease}))
	all := []string{"s1", "s2", "s3"}
	// few gives each chain so few slots that a new chain gets the slots of a removed chain.
	few := func(top topologytest.Object) {
		for _, c := range top["chains"].([]any) {
			c.(topologytest.Object)["slots"] = 100
		}
	}
	c := nw.StartControllerWith("state.json", nw.Changed(few))
	c.WaitAllReady()

	// next adds a key whose KEY_ID is known in advance. While the key is added, next reads it at
	// each switch.
	next := func(chain string, id wire.Key, slot int) {
		t.Helper()
		first := nw.Messages[1].Add(p4proxy.Rule{
			Match: p4proxy.All(p4proxy.Kinds(p4proxy.PacketOut), nw.Packets(wire.Write, wire.CAS)),
			Delay: func() time.Duration { return 300 * time.Millisecond }})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var readers sync.WaitGroup
		var mu sync.Mutex
		reads, told := 0, map[string]int{}
		for sw := 1; sw <= 3; sw++ {
			readers.Go(func() {
				for ctx.Err() == nil {
					r, err := nw.Hosts[sw-1].Ask(lab.SwitchAddr(sw), &wire.Packet{Op: wire.Read, Key: id, Request: 7},
						100*time.Millisecond)
					mu.Lock()
					if err == nil && r.Status == wire.OK && string(r.Value) != "mine" {
						told[fmt.Sprintf("%q at %v, by s%d", r.Value, r.Version, sw)]++
					}
					reads++
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		number := uint32(id)
		k := add(c, chain, []admin.KeySpec{{Name: "/mine", KeyID: &number, Value: []byte("mine")}})[0]
		if k.Slot != slot {
			t.Fatalf("the key has slot %d, not that of the removed one, %d: this says nothing", k.Slot, slot)
		}
		time.Sleep(100 * time.Millisecond)
		stop()
		readers.Wait()
		if n, _ := first.Count(); n == 0 {
			t.Error("no first write has come by s1: this says little")
		}
		first.End()
		t.Logf("%d reads of the new key", reads)
		for what, n := range told {
			t.Errorf("%d reads of a key that had just been added were answered %s", n, what)
		}
		remove(c, chain, []admin.KeySpec{{Name: "/mine"}})
	}

	k := add(c, "main", []admin.KeySpec{{Name: "/secret", Value: []byte(secret)}})[0]
	members(c, "main", "s1", "s2")
	remove(c, "main", []admin.KeySpec{{Name: "/secret"}})
	members(c, "main", all...)
	next("main", wire.MakeKey(3, 100), k.Slot)

	// Another chain takes over the slots of a removed chain, with a switch that missed the removal.
	k = add(c, "main", []admin.KeySpec{{Name: "/secret", Value: []byte(secret)}})[0]
	members(c, "main", "s1", "s2")
	remove(c, "main", []admin.KeySpec{{Name: "/secret"}})
	c.Update(nw.Changed(few, func(top topologytest.Object) { topologytest.Drop(top, "chains", "main") }))
	c.WaitUntil(func() bool {
		chains, err := c.API.Chains(t.Context())
		return err == nil && len(chains) == 1
	}, "the chain to be gone")
	c.Update(nw.Changed(func(top topologytest.Object) {
		topologytest.Drop(top, "chains", "main")
		topologytest.Add(top, "chains", topologytest.Object{"id": 9, "name": "other", "address": lab.ServiceAddrOf(
			9).String(), "members": all, "leaseMillis": 2 * lease, "patienceMillis": lease, "slots": 100})
	}))
	c.WaitAllReady()
	next("other", wire.MakeKey(9, 100), k.Slot)
}

// In TestFormerRecords, a chain without keys changes its members, and the controller has been
// replaced. The switches still have old records of sessions. These must not prevent the controller
// from adding keys, or a client from writing them.
func TestFormerRecords(t *testing.T) { onEachEngine(t, formerRecords) }

func formerRecords(t *testing.T, engine string) {
	nw := lab.NewNetwork(t, engine, ring(3,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: lease, Patience: lease / 2}))
	// Adding 64 keys at once uses each of the controller's own sessions.
	use := func(c *lab.Controller) {
		t.Helper()
		add(c, "main", specs("use", 64, false))
		remove(c, "main", specs("use", 64, false))
	}
	c := nw.StartController("state.json")
	c.WaitReady()
	use(c)
	members(c, "main", "s1", "s2")
	c.Stop()
	c = nw.StartController("state.json")
	c.WaitReady()
	use(c)
	members(c, "main", "s3", "s1", "s2")
	const keys = 16
	began := time.Now()
	placed, err := c.API.AddKeys(within(t, time.Minute), "main", specs("k", keys, true))
	if err != nil {
		t.Fatalf("%v\n%s", err, c.History())
	}
	failed := 0
	for _, k := range placed {
		if k.Error != nil {
			if failed++; failed == 1 {
				t.Logf("%s: %v", k.Name, k.Error)
			}
		}
	}
	t.Logf("%d keys, after %v", keys, time.Since(began).Round(time.Millisecond))
	if failed > 0 {
		t.Fatalf("%d of %d additions have failed", failed, keys)
	}

	// While a switch is stopped, a client leases a session. The switch has a record of an earlier
	// lease of this session.
	remove(c, "main", specs("k", keys, true))
	k := add(c, "main", []admin.KeySpec{{Name: "before", Value: []byte("before")}})[0]
	u := user(nw, c, 1)
	for n := range 16 {
		_, err := u.Put(within(t, 20*time.Second), wire.Key(k.KeyID), fmt.Append(nil, n), service(k.KeyID))
		if err != nil {
			t.Fatal(err)
		}
	}
	remove(c, "main", []admin.KeySpec{{Name: "before"}})
	u.Close()
	members(c, "main", "s1", "s2")
	nw.PauseSwitch(3, true)
	u = user(nw, c, 1)
	nw.PauseSwitch(3, false)
	c.WaitUntil(func() bool { return c.Switches()[2].Ready }, "s3 to be set up")
	members(c, "main", "s3", "s1", "s2")
	for _, k := range add(c, "main", specs("later", 4, true)) {
		if _, err := u.Put(within(t, 20*time.Second), wire.Key(k.KeyID), []byte("mine"), service(k.KeyID)); err != nil {
			t.Errorf("a client whose session was leased while s3 stood still writes %s: %v", k.Name, err)
		}
	}
}

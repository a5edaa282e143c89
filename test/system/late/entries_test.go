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

// nth holds the n-th P4Runtime Write of a table at a switch, so that the caller of the Write gives
// up.
func nth(nw *lab.Network, sw, n int, table string) *p4proxy.Caught {
	var mu sync.Mutex
	writes := p4proxy.Writes(table)
	return nw.Messages[sw].Add(p4proxy.Rule{Most: 1, Hold: true, GiveUp: true, Match: func(m *p4proxy.Message) bool {
		if !writes(m) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		n--
		return n == 0
	}})
}

// answers reads a key at a switch for a second. It counts how often each answer came.
func answers(nw *lab.Network, sw int, key uint32) map[string]int {
	out := map[string]int{}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r, err := nw.Hosts[sw-1].Read(lab.SwitchAddr(sw), key)
		if err != nil || r.Status == wire.NotServing || r.Status == wire.Retry {
			// the packet was lost, or the switch does not answer reads now
			continue
		}
		out[fmt.Sprintf("%v %q", r.Status, r.Value)]++
	}
	return out
}

// In TestLateEntry, a key is added and removed. Meanwhile, one of the Writes of the key's entry at
// a switch is held, and its caller gets DEADLINE_EXCEEDED. The next key gets the first key's slot.
// After the held Write arrives, no client may read the next key's value under the first KEY_ID. The
// test does the same with a key whose move fails. In this case, no switch may answer that the key
// does not exist.
func TestLateEntry(t *testing.T) { onEachEngine(t, lateEntry) }

func lateEntry(t *testing.T, engine string) {
	const at = 2 // position of the replica
	// The leases are so long that no member is lost, however busy the machine is.
	nw := lab.NewNetwork(t, engine, ring(4,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: 10 * lease, Patience: 10 * lease},
		lab.Chain{ID: 4, Name: "side", Members: []int{4}, Lease: 10 * lease, Patience: 10 * lease}))
	c := nw.StartControllerWith("state.json", nw.Changed(func(top topologytest.Object) {
		for i, slots := range []int{100, 1} {
			top["chains"].([]any)[i].(topologytest.Object)["slots"] = slots
		}
	}))
	c.WaitAllReady()
	// this fills the chain side, so that no key can be moved there
	add(c, "side", specs("fills", 1, true))
	// These are the Writes that create, open, close and delete the entry.
	for n := 1; n <= 4; n++ {
		first, second := fmt.Sprint("first", n), fmt.Sprint("second", n)
		held := nth(nw, at, n, "key_index")
		k := add(c, "main", []admin.KeySpec{{Name: first, Value: []byte(first)}})[0]
		remove(c, "main", []admin.KeySpec{{Name: first}})
		held.End()
		if caught, _ := held.Count(); caught == 0 {
			t.Logf("a key is added and removed by %d Writes", n-1)
			break
		}
		if next := add(c, "main", []admin.KeySpec{{Name: second, Value: []byte(second)}})[0]; next.Slot != k.Slot {
			t.Fatalf("the next key has slot %d, not %d: this says nothing", next.Slot, k.Slot)
		}
		ok := refused(t, release(t, held))
		for what, times := range answers(nw, at, k.KeyID) {
			if what != fmt.Sprintf("%v %q", wire.NotFound, "") {
				t.Errorf("Write %d of a removed key came late, and %d reads of the key were answered %s", n, times, what)
			}
		}
		if !ok {
			t.Errorf("Write %d of a key's entry was executed after its caller had given up", n)
		}
		remove(c, "main", []admin.KeySpec{{Name: second}})
	}
	// These are the Writes that create the entry of the key's alias, and that delete the key's own
	// entry.
	for n := 1; n <= 2; n++ {
		name := fmt.Sprint("stays", n)
		k := add(c, "main", []admin.KeySpec{{Name: name, Value: []byte(name)}})[0]
		held := nth(nw, at, n, "key_index")
		if _, err := c.API.MoveKey(within(t, time.Minute), "main", name, "side"); err == nil {
			t.Fatal("a key was moved to a chain that is full")
		}
		c.WaitUntil(func() bool {
			now, err := c.API.Lookup(t.Context(), name)
			return err == nil && now.KeyID == k.KeyID
		}, name+" to be where it was")
		held.End()
		if caught, _ := held.Count(); caught == 0 && n > 1 {
			t.Logf("a key is moved and put back by %d Writes", n-1)
			break
		}
		ok := refused(t, release(t, held))
		for what, times := range answers(nw, at, k.KeyID) {
			if what != fmt.Sprintf("%v %q", wire.OK, name) {
				t.Errorf("Write %d of a key that was put back came late, and %d reads of the key were answered %s",
					n, times, what)
			}
		}
		if !ok {
			t.Errorf("Write %d of a key that is moved was executed after its caller had given up", n)
		}
	}
}

// In TestLateRemoval, the packets that delete keys are held at the head switch. The chain continues
// without that switch, and the keys are removed. New keys with their names get the same slots, and
// are written. When the held packets then arrive, they must delete nothing.
func TestLateRemoval(t *testing.T) { onEachEngine(t, lateRemoval) }

func lateRemoval(t *testing.T, engine string) {
	const keys = 5
	nw := lab.NewNetwork(t, engine, ring(3,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: lease, Patience: lease / 2}))
	c := nw.StartController("state.json")
	c.WaitReady()
	add(c, "main", specs("k", keys, true))
	u := user(nw, c, 3)
	held := nw.Messages[1].Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.PacketOut), Hold: true})
	var all sync.WaitGroup
	for _, k := range specs("k", keys, false) {
		all.Go(func() {
			if err := c.API.RemoveKey(within(t, time.Minute), "main", k.Name); err != nil {
				t.Errorf("removing %s: %v", k.Name, err)
			}
		})
	}
	all.Wait()
	placed := add(c, "main", specs("k", keys, true))
	versions := map[uint32]wire.Version{}
	for _, k := range placed {
		r, err := u.Put(within(t, 20*time.Second), wire.Key(k.KeyID), []byte("c."+k.Name), service(k.KeyID))
		if err != nil {
			t.Fatal(err)
		}
		versions[k.KeyID] = r.Version
	}
	t.Logf("%d packets come late", len(release(t, held)))
	settled()
	for _, k := range placed {
		r, err := u.Get(within(t, 20*time.Second), wire.Key(k.KeyID), service(k.KeyID))
		if err != nil || string(r.Value) != "c."+k.Name || r.Version != versions[k.KeyID] {
			t.Errorf("%s was written at %v, and reads %q at %v (%v)", k.Name, versions[k.KeyID], r.Value, r.Version, err)
		}
	}
}

// In TestLateLease, LEASE packets for a member are held. The chain then gives up the member, which
// is also cut off from the controller. Clients write. The LEASE packets then arrive on a stream
// that the controller has closed. They must not make the switch answer reads.
func TestLateLease(t *testing.T) { onEachEngine(t, lateLease) }

func lateLease(t *testing.T, engine string) {
	nw := lab.NewNetwork(t, engine, ring(3,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: lease, Patience: lease / 2}))
	c := nw.StartController("state.json")
	c.WaitReady()
	k := add(c, "main", []admin.KeySpec{{Name: "k", Value: []byte("old")}})[0]
	u := user(nw, c, 1)
	held := nw.Messages[3].Add(p4proxy.Rule{
		Match: p4proxy.All(p4proxy.Kinds(p4proxy.PacketOut), nw.Packets(wire.Lease)), Hold: true})
	if err := held.Await(within(t, 30*time.Second), 3); err != nil {
		t.Fatalf("s3 gets no LEASEs: %v", err)
	}
	nw.Proxies[3].SetCut(true)
	c.WaitUntil(func() bool { return len(c.Chain().Members) == 2 && c.API.Ready(t.Context()) == nil },
		"the chain to go on without s3")
	if _, err := u.Put(within(t, 20*time.Second), wire.Key(k.KeyID), []byte("new"), service(k.KeyID)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	stale, asked := 0, 0
	reader.Go(func() {
		for ctx.Err() == nil {
			read := &wire.Packet{Op: wire.Read, Key: wire.Key(k.KeyID), Request: 7}
			r, err := nw.Hosts[2].Ask(lab.SwitchAddr(3), read, 50*time.Millisecond)
			if asked++; err == nil && string(r.Value) == "old" {
				stale++
			}
		}
	})
	t.Logf("%d LEASEs come late", len(release(t, held)))
	time.Sleep(2 * time.Second)
	stop()
	reader.Wait()
	if stale > 0 {
		t.Errorf("%d of %d reads at a switch that was given up were answered with what there was before", stale, asked)
	}
}

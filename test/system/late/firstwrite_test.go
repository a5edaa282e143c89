package late

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/internal/testutil/p4proxy"
	"github.com/netcraq/netcraq/test/system/lab"
)

// In TestLateFirstWrite, the controller writes a new key, a moved key, or the tombstone of a key
// without a value. Its packets are held at the switch that is then the head. The chain continues
// without that switch, the controller writes through the next head, and clients write the key. Then
// the held packets arrive at the old head, which forwards them to the present head. No client's
// write may be lost, and no lock may have two holders.
func TestLateFirstWrite(t *testing.T) { onEachEngine(t, lateFirstWrite) }

func lateFirstWrite(t *testing.T, engine string) {
	const keys = 5
	nw := lab.NewNetwork(t, engine, ring(4,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: lease, Patience: lease / 2},
		lab.Chain{ID: 4, Name: "side", Members: []int{4}, Lease: lease, Patience: lease / 2}))
	c := nw.StartController("state.json")
	c.WaitAllReady()
	// Each chain uses all of the controller's own sessions.
	for _, chain := range []string{"main", "side"} {
		add(c, chain, specs(chain+"-warm-", 64, true))
	}
	add(c, "side", specs("moved", keys, true))
	u := user(nw, c, 4)

	// late calls the function `do`, and holds its packets to the head of the chain main. The
	// packets are held until the chain has another head and `do` has succeeded, and then until
	// `after` has returned.
	late := func(do func(), after func()) {
		t.Helper()
		head := c.Chain().Members[0].Switch
		held := nw.Messages[number(t, head)].Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.PacketOut), Hold: true})
		do()
		ch := c.Chain()
		for _, m := range ch.Members {
			if m.Switch == head {
				t.Fatalf("%s is a member, and nothing that was sent to it has arrived: %+v", head, ch)
			}
		}
		after()
		t.Logf("%d packets come late by %s", len(release(t, held)), head)
		settled()
	}
	back := func() {
		t.Helper()
		c.Heal()
		c.WaitAllReady()
	}
	// written makes clients write keys of the chain main. It returns the versions in the answers.
	written := func(placed []admin.Key) map[string]wire.Version {
		t.Helper()
		told := map[string]wire.Version{}
		for _, k := range placed {
			r, err := u.Put(within(t, 20*time.Second), wire.Key(k.KeyID), []byte("c."+k.Name), service(k.KeyID))
			if err != nil {
				t.Fatalf("writing %s: %v\n%s", k.Name, err, c.History())
			}
			told[k.Name] = r.Version
		}
		return told
	}
	// kept checks that every member has the written values.
	kept := func(what string, placed []admin.Key, told map[string]wire.Version) {
		t.Helper()
		lost := 0
		for _, k := range placed {
			r, err := u.Get(within(t, 20*time.Second), wire.Key(k.KeyID), service(k.KeyID))
			if err != nil && !errors.Is(err, client.ErrNotFound) {
				t.Fatalf("reading %s: %v", k.Name, err)
			}
			if string(r.Value) != "c."+k.Name || r.Version != told[k.Name] {
				lost++
				t.Logf("%s was written at %v, and is %q at %v", k.Name, told[k.Name], r.Value, r.Version)
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d keys that %s have lost a write that was acknowledged", lost, len(placed), what)
		}
	}

	var placed []admin.Key
	var told map[string]wire.Version
	late(func() { placed = add(c, "main", specs("added", keys, true)) }, func() { told = written(placed) })
	kept("were added", placed, told)
	back()

	late(func() {
		placed = make([]admin.Key, keys)
		errs := make([]error, keys)
		var all sync.WaitGroup
		for i := range keys {
			all.Go(func() {
				k, err := c.API.MoveKey(t.Context(), "side", fmt.Sprint("moved", i), "main")
				if errs[i] = err; err == nil {
					placed[i] = *k
				}
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%v\n%s", err, c.History())
		}
	}, func() { told = written(placed) })
	kept("were moved", placed, told)
	back()

	locks := make([]admin.Key, keys)
	take := func(k admin.Key, expected wire.Version, who string) error {
		_, err := u.CompareAndSwap(within(t, 20*time.Second), wire.Key(k.KeyID), expected, []byte(who),
			service(k.KeyID))
		return err
	}
	late(func() { placed = add(c, "main", specs("lock", keys, false)) }, func() {
		for i, k := range placed {
			found, err := c.API.Lookup(t.Context(), k.Name)
			if err != nil {
				t.Fatal(err)
			}
			locks[i] = *found
			if err := take(*found, wire.Version(found.Unwritten-found.VersionOffset), "first"); err != nil {
				t.Fatalf("taking %s, which nobody has: %v", k.Name, err)
			}
		}
	})
	twice := 0
	for _, k := range locks {
		r, err := u.Get(within(t, 20*time.Second), wire.Key(k.KeyID), service(k.KeyID))
		var e *client.OpError
		switch {
		case err == nil && string(r.Value) == "first":
		case errors.As(err, &e) && errors.Is(e, client.ErrNotFound) && e.Version != 0:
			t.Logf("%s is free, at %v", k.Name, e.Version)
			if take(k, e.Version, "second") == nil {
				twice++
			}
		default:
			t.Errorf("%s reads %+v, %v", k.Name, r, err)
		}
	}
	if twice > 0 {
		t.Errorf("%d of %d locks were taken by a second client while the first one had them", twice, keys)
	}
}

package controller_test

import (
	"maps"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/wire"
)

// twoChains is a line of four switches: chain a at s1 and s2, b at s3 and s4.
func twoChains() layout {
	return layout{n: 4, chains: []chainSpec{{1, "a", []int{1, 2}, 200, 0}, {2, "b", []int{3, 4}, 200, 0}}}
}

// TestMovedKeyStaysAway: a KEY_ID whose key has moved away must not be taken in again from what switches once had. The
// chain that it was in must not give it entries, whatever comes and goes: then it would be read under one KEY_ID, and
// written under the other.
func TestMovedKeyStaysAway(t *testing.T) {
	for _, gone := range []string{"moved", "removed"} {
		t.Run(gone, func(t *testing.T) { t.Parallel(); goneKey(t, gone == "moved") })
	}
}

func goneKey(t *testing.T, moved bool) {
	x := newTestbed(t, twoChains())
	a, b := serviceAddrOf(1), serviceAddrOf(2)
	c := x.controller()
	c.waitAllReady()
	old, err := c.api.AddKey(t.Context(), "a", api.KeySpec{Name: "/x", Value: []byte("first")})
	if err != nil {
		t.Fatal(err)
	}
	c.stop()
	c = x.controller() // it finds the key in the switches
	c.waitAllReady()
	leased, err := c.api.NewSessions(t.Context(), api.SessionsRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	session := &leased.Sessions[0]
	if moved {
		k, err := c.api.MoveKey(t.Context(), "a", "/x", "b")
		if err != nil {
			t.Fatal(err)
		}
		x.mustWrite(b, session, k.KeyID, "second")
	} else if err := c.api.RemoveKey(t.Context(), "a", "/x"); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		for _, s := range x.switches {
			if _, has := s.keys()[old.KeyID]; has {
				return false
			}
		}
		return true
	}
	c.waitUntil(gone, "the old KEY_ID to have no entry")
	// A switch that is in the other chain alone is killed, and comes back.
	x.switches[3].kill()
	c.waitEvent("switch.disconnected", "s4")
	x.switches[3].start()
	c.waitUntil(func() bool { s, err := c.api.Switches(t.Context()); return err == nil && s[3].Ready }, "s4 to be there")
	check := func(when string) {
		t.Helper()
		time.Sleep(100 * time.Millisecond) // what compares the switches with the directory does it a moment after all are there
		keys, err := c.api.Directory(t.Context(), "", false)
		if want := map[bool]int{true: 1}[moved]; err != nil || len(keys) != want || moved && keys[0].Name != "/x" {
			t.Errorf("%s, the directory has %+v, %v", when, keys, err)
		}
		for _, s := range x.switches {
			if slot, has := s.keys()[old.KeyID]; has {
				t.Errorf("%s, s%d has an entry for %#x, slot %d", when, s.n, old.KeyID, slot)
			}
		}
		if r, err := x.write(a, session, old.KeyID, "lost"); err != nil || r.Status != wire.NotFound {
			t.Errorf("%s, a write of %#x, which is gone, is answered %+v, %v", when, old.KeyID, r, err)
		}
	}
	check("when a switch has come back")
	c.stop()
	c = x.controller()
	c.waitUntil(func() bool {
		s, err := c.api.Switches(t.Context())
		return err == nil && s[0].Ready && s[1].Ready && s[2].Ready && s[3].Ready
	}, "all switches to be there")
	check("when the controller has been restarted")
	if moved {
		k, err := c.api.Lookup(t.Context(), "/x")
		if err != nil {
			t.Fatal(err)
		}
		if r, err := x.read(b, k.KeyID); err != nil || string(r.Value) != "second" {
			t.Errorf("the key reads %+v, %v", r, err)
		}
	}
	if !maps.Equal(x.switches[0].keys(), x.switches[1].keys()) {
		t.Errorf("s1 has %v, s2 %v", x.switches[0].keys(), x.switches[1].keys())
	}
}

// TestForgottenKeys: a controller whose directory is lost gives no KEY_ID and no slot before the switches have said
// which are in use.
func TestForgottenKeys(t *testing.T) {
	x := newTestbed(t, layout{n: 2, chains: []chainSpec{{1, "a", []int{1, 2}, 200, 0}}})
	a := serviceAddrOf(1)
	c := x.controllerWith(controller.Memory{})
	old, err := c.api.AddKey(t.Context(), "a", api.KeySpec{Name: "/old", Value: []byte("old")}) // at once: it waits for the chain
	if err != nil {
		t.Fatal(err)
	}
	c.stop()
	x.switches[1].suspend()
	c = x.controllerWith(controller.Memory{})
	time.AfterFunc(200*time.Millisecond, x.switches[1].resume)
	k, err := c.api.AddKey(t.Context(), "a", api.KeySpec{Name: "/new", Value: []byte("new")})
	if err != nil {
		t.Fatal(err)
	}
	if k.KeyID == old.KeyID || k.Slot == old.Slot {
		t.Errorf("the new key is %+v, the old one was %+v", k, old)
	}
	for id, want := range map[uint32]string{old.KeyID: "old", k.KeyID: "new"} {
		if r, err := x.read(a, id); err != nil || string(r.Value) != want {
			t.Errorf("%#x reads %+v, %v; want %s", id, r, err, want)
		}
	}
}

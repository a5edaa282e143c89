package inprocess

import (
	"maps"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/test/system/lab"
)

// twoChains returns a layout of four switches in a line. Chain a has s1 and s2, and chain b has s3
// and s4.
func twoChains() lab.Layout {
	return lab.Layout{N: 4, Chains: []lab.Chain{{ID: 1, Name: "a", Members: []int{1, 2}, Lease: 200,
		Patience: 0}, {ID: 2, Name: "b", Members: []int{3, 4}, Lease: 200, Patience: 0}}}
}

// TestMovedKeyStaysAway checks that after a key has moved, its old KEY_ID does not come back from a
// switch that once had it. Whatever restarts, the old chain must not give the key entries again.
// Otherwise clients would read the key under one KEY_ID, and write it under another.
func TestMovedKeyStaysAway(t *testing.T) {
	for _, gone := range []string{"moved", "removed"} {
		t.Run(gone, func(t *testing.T) { t.Parallel(); goneKey(t, gone == "moved") })
	}
}

func goneKey(t *testing.T, moved bool) {
	x := newTestbed(t, twoChains())
	a, b := lab.ServiceAddrOf(1), lab.ServiceAddrOf(2)
	c := x.controller()
	c.WaitAllReady()
	old, err := c.API.AddKey(t.Context(), "a", admin.KeySpec{Name: "/x", Value: []byte("first")})
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
	c = x.controller() // the new controller finds the key in the switches
	c.WaitAllReady()
	leased, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	session := &leased.Sessions[0]
	if moved {
		k, err := c.API.MoveKey(t.Context(), "a", "/x", "b")
		if err != nil {
			t.Fatal(err)
		}
		x.mustWrite(b, session, k.KeyID, "second")
	} else if err := c.API.RemoveKey(t.Context(), "a", "/x"); err != nil {
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
	c.WaitUntil(gone, "the old KEY_ID to have no entry")
	// A switch that is only in the other chain is killed, and comes back.
	x.switches[3].Kill()
	c.WaitEvent("switch.disconnected", "s4")
	x.switches[3].start()
	c.WaitUntil(func() bool { s, err := c.API.Switches(t.Context()); return err == nil && s[3].Ready }, "s4 to be there")
	check := func(when string) {
		t.Helper()
		// The controller compares the switches with the directory a moment after all switches are
		// connected.
		time.Sleep(100 * time.Millisecond)
		keys, err := c.API.Directory(t.Context(), "", false)
		if want := map[bool]int{true: 1}[moved]; err != nil || len(keys) != want || moved && keys[0].Name != "/x" {
			t.Errorf("%s, the directory has %+v, %v", when, keys, err)
		}
		for _, s := range x.switches {
			if slot, has := s.keys()[old.KeyID]; has {
				t.Errorf("%s, s%d has an entry for %#x, slot %d", when, s.Number(), old.KeyID, slot)
			}
		}
		if r, err := x.write(a, session, old.KeyID, "lost"); err != nil || r.Status != wire.NotFound {
			t.Errorf("%s, a write of %#x, which is gone, is answered %+v, %v", when, old.KeyID, r, err)
		}
	}
	check("when a switch has come back")
	c.Stop()
	c = x.controller()
	c.WaitUntil(func() bool {
		s, err := c.API.Switches(t.Context())
		return err == nil && s[0].Ready && s[1].Ready && s[2].Ready && s[3].Ready
	}, "all switches to be there")
	check("when the controller has been restarted")
	if moved {
		k, err := c.API.Lookup(t.Context(), "/x")
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

// TestForgottenKeys checks that a controller whose directory is lost assigns no KEY_ID and no slot
// before the switches have reported which ones are in use.
func TestForgottenKeys(t *testing.T) {
	x := newTestbed(t, lab.Layout{N: 2, Chains: []lab.Chain{{ID: 1, Name: "a", Members: []int{1, 2}, Lease: 200,
		Patience: 0}}})
	a := lab.ServiceAddrOf(1)
	c := x.controllerWith(saved.Memory{})
	// This request comes while the controller still waits for the chain.
	old, err := c.API.AddKey(t.Context(), "a", admin.KeySpec{Name: "/old", Value: []byte("old")})
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
	x.switches[1].Suspend()
	c = x.controllerWith(saved.Memory{})
	time.AfterFunc(200*time.Millisecond, x.switches[1].Resume)
	k, err := c.API.AddKey(t.Context(), "a", admin.KeySpec{Name: "/new", Value: []byte("new")})
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

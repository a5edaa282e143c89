package inprocess

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/test/system/lab"
)

// In TestEarlierRecord, the controller's state file is replaced by an old copy, from before the
// controller gave up a switch. This switch still has its old values, and either its old role or no
// role. No client may read the old values, and the chain must continue with the configuration that
// the switches report.
func TestEarlierRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		fenced bool // whether the switch knows that it is not a member any more
		both   bool // whether the file of the keys is also replaced by an old copy
	}{{"fenced", true, false}, {"out of reach", false, false}, {"with the keys", true, true}} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); earlierRecord(t, c.fenced, c.both) })
	}
}

func earlierRecord(t *testing.T, fenced, both bool) {
	x := newTestbed(t, lab.Layout{N: 3, Chains: []lab.Chain{{ID: 1, Name: "a", Members: []int{1, 2, 3},
		Lease: 200, Patience: 100}}})
	service := lab.ServiceAddrOf(1)
	c := x.controller()
	c.WaitAllReady()
	add := func(name, value string) uint32 {
		t.Helper()
		k, err := c.API.AddKey(t.Context(), "a", admin.KeySpec{Name: name, Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		return k.KeyID
	}
	key, gone := add("/x", "old"), add("/gone", "old")
	c.Stop()
	files := []string{x.state}
	if both {
		files = append(files, x.keysFile())
	}
	copies := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		copies[f] = b
	}
	c = x.controller()
	c.WaitAllReady()
	members := func(want int) func() bool {
		return func() bool {
			ch, err := c.API.Chain(t.Context(), "a")
			return err == nil && ch.Ready && len(ch.Members) == want
		}
	}
	x.switches[2].Suspend()
	c.WaitUntil(members(2), "the chain to go on without s3")
	leased, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	x.mustWrite(service, &leased.Sessions[0], key, "new")
	if err := c.API.RemoveKey(t.Context(), "a", "/gone"); err != nil {
		t.Fatal(err)
	}
	later := add("/later", "new")
	if fenced {
		x.switches[2].Resume()
		c.WaitUntil(func() bool { s, err := c.API.Switches(t.Context()); return err == nil && s[2].Ready }, "s3 to be back")
		// after connecting, the switch needs this time to get its configuration
		time.Sleep(50 * time.Millisecond)
	}
	c.Stop()
	x.switches[2].Resume()
	for f, b := range copies {
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The controller must hear from the switch with the oldest state first.
	x.switches[0].Suspend()
	x.switches[1].Suspend()
	c = x.controller()
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if r, err := x.once(3, lab.SwitchAddr(3), key); err == nil && string(r.Value) == "old" {
				t.Errorf("s3 reads %+v", r)
				return
			}
		}
	})
	time.Sleep(500 * time.Millisecond)
	x.switches[0].Resume()
	x.switches[1].Resume()
	c.WaitUntil(members(2), "the chain to be what it was")
	time.Sleep(300 * time.Millisecond)
	close(done)
	reader.Wait()
	ch, err := c.API.Chain(t.Context(), "a")
	if err != nil || len(ch.Members) != 2 || ch.Members[0].Switch != "s1" || ch.Members[1].Switch != "s2" {
		t.Errorf("%+v, %v", ch, err)
	}
	for at := 1; at <= 3; at++ {
		for id, want := range map[uint32]string{key: "new", later: "new"} {
			if r, err := x.ask(at, service, readOf(id)); err != nil || string(r.Value) != want {
				t.Errorf("%#x, from h%d: %+v, %v", id, at, r, err)
			}
		}
	}
	// KEY_IDs that were assigned after the old copy was made are not assigned again, and removed
	// keys stay away.
	next := add("/next", "new")
	for _, s := range x.switches[:2] {
		if keys := s.keys(); len(keys) != 3 || next == later || next == gone {
			t.Errorf("s%d has %v; the next key is %#x", s.Number(), keys, next)
		}
	}
	if _, err := c.API.Lookup(t.Context(), "/gone"); err == nil {
		t.Error("a key that was removed is there again")
	}
	// Sessions that were leased after the old copy was made are not leased again immediately.
	if again, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1}); err == nil {
		t.Errorf("%+v is leased, and %+v may be in use", again.Sessions, leased.Sessions)
	}
}

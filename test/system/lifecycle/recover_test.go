package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/test/system/lab"
)

const recoverLease = 200 // milliseconds

// TestRecoverBesideAdd brings a switch into a chain while keys are added. They get slots that other
// keys had before, so the members' registers still have the data of those keys. No addition may
// wait until the joining switch has this data.
func TestRecoverBesideAdd(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Line(3, recoverLease)
	l.Chains[0].Patience = recoverLease
	nw := lab.NewNetwork(t, "auto", l)
	c := nw.StartController("state.json")
	c.WaitReady()
	specs := func(kind string, n int) (all []admin.KeySpec) {
		for i := range n {
			all = append(all, admin.KeySpec{Name: fmt.Sprint(kind, i), Value: []byte("v")})
		}
		return all
	}
	if _, err := c.API.AddKeys(t.Context(), "main", append(specs("old", 20), specs("stays", 1)...)); err != nil {
		t.Fatal(err)
	}
	for _, k := range specs("old", 20) {
		if err := c.API.RemoveKey(t.Context(), "main", k.Name); err != nil {
			t.Fatal(err)
		}
	}
	nw.KillSwitch(3)
	c.WaitUntil(func() bool { return len(c.Chain().Members) == 2 && c.API.Ready(t.Context()) == nil }, "the chain to go on without s3")
	nw.StartSwitch(3)
	c.WaitUntil(func() bool {
		all, err := c.API.Switches(t.Context())
		return err == nil && all[2].Ready
	}, "s3 to be set up")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	began := make(chan struct{})
	wg.Go(func() {
		<-began
		for i := range 5 {
			added, err := c.API.AddKeys(ctx, "main", specs(fmt.Sprint("new", i, "-"), 4))
			if err != nil || added[0].Error != nil {
				t.Errorf("adding beside the recovery: %v %v", err, added)
			}
		}
	})
	go c.API.Events(ctx, 0, true, func(e admin.Event) error {
		if e.Type == "chain.recovering" {
			close(began)
			return context.Canceled
		}
		return nil
	})
	if _, err := c.API.Recover(ctx, "main", "s3"); err != nil {
		t.Errorf("%v\n%s", err, c.History())
	}
	wg.Wait()
	keys, err := c.API.Directory(t.Context(), "", true)
	if err != nil || len(keys) != 21 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, k := range keys {
		for _, s := range k.State {
			if s.Status != "OK" || string(s.Value) != "v" {
				t.Errorf("%s has %+v of %s", s.Switch, s, k.Name)
			}
		}
	}
}

// In TestRecoverOfTwoChains, a switch is brought into two chains that share it, after a takeover by
// a controller that has used its own sessions in only one of them. So one chain has records of the
// new controller's sessions, and the other has records of the old controller's. This must not
// prevent the switch from joining.
func TestRecoverOfTwoChains(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Layout{N: 3, Links: [][2]int{{1, 2}, {2, 3}, {3, 1}}, Chains: []lab.Chain{
		// The lease is so long that a busy machine does not make the controller give up a joining
		// switch. A joining switch that is already a member of the other chain cannot be emptied,
		// so it could not be brought in a second time.
		{ID: 3, Name: "main", Members: []int{1, 2}, Lease: 10 * recoverLease, Patience: recoverLease},
		{ID: 4, Name: "side", Members: []int{2, 3}, Lease: 10 * recoverLease, Patience: recoverLease},
	}}
	nw := lab.NewNetwork(t, "auto", l)
	add := func(c *lab.Controller, chain, kind string) {
		t.Helper()
		var specs []admin.KeySpec
		for i := range 64 { // These are more keys at once than the controller has sessions.
			specs = append(specs, admin.KeySpec{Name: fmt.Sprint(kind, i), Value: []byte(kind)})
		}
		if _, err := c.API.AddKeys(t.Context(), chain, specs); err != nil {
			t.Fatal(err)
		}
	}
	c := nw.StartController("state.json")
	c.WaitAllReady()
	add(c, "main", "first")
	add(c, "side", "beside")
	c.Stop()
	c = nw.StartController("state.json")
	c.WaitAllReady()
	add(c, "side", "second")
	for _, order := range [][]string{{"main", "side"}, {"side", "main"}} {
		nw.KillSwitch(2)
		c.WaitUntil(func() bool {
			all, err := c.API.Chains(t.Context())
			return err == nil && len(all[0].Members) == 1 && len(all[1].Members) == 1 && c.API.Ready(t.Context()) == nil
		}, "the chains to go on without s2")
		nw.StartSwitch(2)
		c.WaitUntil(func() bool {
			all, err := c.API.Switches(t.Context())
			return err == nil && all[1].Ready
		}, "s2 to be set up")
		for _, chain := range order {
			c.BringInto(chain, "s2")
		}
	}
	add(c, "main", "third")
	add(c, "side", "fourth")
}

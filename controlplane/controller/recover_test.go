package controller_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
)

const recoverLease = 200 // milliseconds

// TestRecoverBesideAdd brings a switch in while keys are being added, whose slots were others' before: what is left of those is in the registers of the members, and nothing may wait for the
// newcomer to have it.
func TestRecoverBesideAdd(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	l := line(3, recoverLease)
	l.chains[0].patience = recoverLease
	nw := newNetwork(t, "auto", l)
	c := nw.startController("state.json")
	c.waitReady()
	specs := func(kind string, n int) (all []api.KeySpec) {
		for i := range n {
			all = append(all, api.KeySpec{Name: fmt.Sprint(kind, i), Value: []byte("v")})
		}
		return all
	}
	if _, err := c.api.AddKeys(t.Context(), "main", append(specs("old", 20), specs("stays", 1)...)); err != nil {
		t.Fatal(err)
	}
	for _, k := range specs("old", 20) {
		if err := c.api.RemoveKey(t.Context(), "main", k.Name); err != nil {
			t.Fatal(err)
		}
	}
	nw.killSwitch(3)
	c.waitUntil(func() bool { return len(c.chain().Members) == 2 && c.api.Ready(t.Context()) == nil }, "the chain to go on without s3")
	nw.startSwitch(3)
	c.waitUntil(func() bool {
		all, err := c.api.Switches(t.Context())
		return err == nil && all[2].Ready
	}, "s3 to be set up")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	began := make(chan struct{})
	wg.Go(func() {
		<-began
		for i := range 5 {
			added, err := c.api.AddKeys(ctx, "main", specs(fmt.Sprint("new", i, "-"), 4))
			if err != nil || added[0].Error != nil {
				t.Errorf("adding beside the recovery: %v %v", err, added)
			}
		}
	})
	go c.api.Events(ctx, 0, true, func(e api.Event) error {
		if e.Type == "chain.recovering" {
			close(began)
			return context.Canceled
		}
		return nil
	})
	if _, err := c.api.Recover(ctx, "main", "s3"); err != nil {
		t.Errorf("%v\n%s", err, c.history())
	}
	wg.Wait()
	keys, err := c.api.Directory(t.Context(), "", true)
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

// TestRecoverOfTwoChains: a switch is brought into two chains that share it, after a controller took over that has used its own sessions in one of the two only. What each chain has of these is of
// different controllers then, which must not keep the switch out.
func TestRecoverOfTwoChains(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	l := layout{n: 3, links: [][2]int{{1, 2}, {2, 3}, {3, 1}}, chains: []chainSpec{
		{id: 3, name: "main", members: []int{1, 2}, lease: recoverLease, patience: recoverLease},
		{id: 4, name: "side", members: []int{2, 3}, lease: recoverLease, patience: recoverLease},
	}}
	nw := newNetwork(t, "auto", l)
	add := func(c *running, chain, kind string) {
		t.Helper()
		var specs []api.KeySpec
		for i := range 64 { // as many at once as the controller has sessions, and more
			specs = append(specs, api.KeySpec{Name: fmt.Sprint(kind, i), Value: []byte(kind)})
		}
		if _, err := c.api.AddKeys(t.Context(), chain, specs); err != nil {
			t.Fatal(err)
		}
	}
	c := nw.startController("state.json")
	c.waitAllReady()
	add(c, "main", "first")
	add(c, "side", "beside")
	c.stop()
	c = nw.startController("state.json")
	c.waitAllReady()
	add(c, "side", "second")
	for _, order := range [][]string{{"main", "side"}, {"side", "main"}} {
		nw.killSwitch(2)
		c.waitUntil(func() bool {
			all, err := c.api.Chains(t.Context())
			return err == nil && len(all[0].Members) == 1 && len(all[1].Members) == 1 && c.api.Ready(t.Context()) == nil
		}, "the chains to go on without s2")
		nw.startSwitch(2)
		c.waitUntil(func() bool {
			all, err := c.api.Switches(t.Context())
			return err == nil && all[1].Ready
		}, "s2 to be set up")
		for _, chain := range order {
			if _, err := c.api.Recover(t.Context(), chain, "s2"); err != nil {
				t.Fatalf("%v\n%s", err, c.history())
			}
		}
	}
	add(c, "main", "third")
	add(c, "side", "fourth")
}

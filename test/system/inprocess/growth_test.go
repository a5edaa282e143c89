package inprocess

import (
	"fmt"
	"sync"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/test/system/lab"
)

// setMembers changes the members of chain a.
func setMembers(t *testing.T, r *lab.Controller, members ...string) {
	t.Helper()
	if _, err := r.API.ChangeChain(t.Context(), "a", admin.ChainChange{Members: &members}); err != nil {
		t.Fatalf("members %v: %v\n%s", members, err, r.History())
	}
}

// addKeys adds n keys to a chain. It returns the added keys, and the number of keys that could not
// be added.
func addKeys(t *testing.T, r *lab.Controller, chain, kind string, n int) (keys []admin.Key, failed int) {
	t.Helper()
	specs := make([]admin.KeySpec, n)
	for i := range specs {
		specs[i] = admin.KeySpec{Name: fmt.Sprint(kind, i), Value: []byte("v")}
	}
	keys, err := r.API.AddKeys(t.Context(), chain, specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Error != nil {
			t.Logf("%s: %v", k.Name, k.Error)
			failed++
		}
	}
	return keys, failed
}

// In TestGrowthWithoutKeys, a switch becomes a member again of a chain that has no keys. Or it
// becomes a member of a chain that was created meanwhile. The switch has records of the sessions of
// an earlier controller, and of earlier leases of clients' sessions. Nevertheless, keys must be
// added, and clients must be able to write them.
func TestGrowthWithoutKeys(t *testing.T) {
	for _, how := range []string{"a change of the members", "a recovery", "another chain"} {
		t.Run(how, func(t *testing.T) { t.Parallel(); growthWithoutKeys(t, how) })
	}
}

func growthWithoutKeys(t *testing.T, how string) {
	// so many keys at once use each of the controller's sessions
	const n = topology.ControllerSessions
	x := newTestbed(t, lab.Layout{N: 4, Chains: []lab.Chain{{ID: 1, Name: "a", Members: []int{1, 2, 4}, Lease: 200}}})
	x.change(func(top map[string]any) { top["sessions"] = map[string]any{"ttlSeconds": 30} })
	service := lab.ServiceAddrOf(1)
	r := x.controller()
	r.WaitAllReady()
	lease := func() (s *admin.Sessions) {
		t.Helper()
		s, err := r.API.NewSessions(t.Context(), admin.SessionsRequest{Count: n})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	removeAll := func(keys []admin.Key) {
		t.Helper()
		var wg sync.WaitGroup
		for _, k := range keys {
			wg.Go(func() {
				if err := r.API.RemoveKey(t.Context(), "a", k.Name); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	first := lease()
	keys, failed := addKeys(t, r, "a", "first", n)
	for i := range first.Sessions {
		x.mustWrite(service, &first.Sessions[i], keys[i].KeyID, "v")
	}
	removeAll(keys)
	setMembers(t, r, "s1", "s2")
	if err := r.API.CloseSessions(t.Context(), first.Lease); err != nil || failed > 0 {
		t.Fatal(err, failed)
	}

	// Another controller uses its own sessions while s4 does not receive the packets. It also
	// leases the same sessions to clients.
	r.Stop()
	r = x.controller()
	r.WaitAllReady()
	x.switches[3].Suspend()
	keys, failed = addKeys(t, r, "a", "second", n)
	removeAll(keys)
	second := lease()
	for second.Sessions[0].ID != first.Sessions[0].ID {
		second = lease()
	}
	x.switches[3].Resume()
	r.WaitUntil(func() bool { s, err := r.API.Switches(t.Context()); return err == nil && s[3].Ready }, "s4 to be there")
	chain := "a"
	switch how {
	case "a change of the members":
		setMembers(t, r, "s4", "s1", "s2")
	case "a recovery":
		r.BringInto("a", "s4")
	default:
		chain, service = "c", lab.ServiceAddrOf(2)
		x.change(func(top map[string]any) {
			top["chains"] = []any{map[string]any{"id": 2, "name": chain, "address": service.String(),
				"members": []string{"s4", "s3"}}}
		})
		top, err := topology.Load(x.file)
		if err != nil {
			t.Fatal(err)
		}
		r.Update(top)
		r.WaitAllReady()
	}

	keys, more := addKeys(t, r, chain, "third", n)
	if failed+more > 0 {
		t.Errorf("%d and %d of %d keys were not added\n%s", failed, more, n, r.History())
	}
	bad := map[string]int{}
	for i := range second.Sessions {
		p, err := x.write(service, &second.Sessions[i], keys[i].KeyID, "w")
		switch {
		case err != nil:
			bad[err.Error()]++
		case p.Status != wire.OK:
			bad[p.Status.String()]++
		}
	}
	if len(bad) > 0 {
		t.Errorf("of %d clients' writes: %v", n, bad)
	}
}

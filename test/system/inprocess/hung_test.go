package inprocess

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/test/system/lab"
)

// patient is how long clients wait for the sessions that they request. netcraqctl and the Python
// library (class Admin) wait 2 s.
const patient = 2 * time.Second

// TestSessionsBesideAHungSwitch checks sessions while a switch accepts connections and answers
// nothing. Sessions must be opened in less time than clients wait, whatever the switch's position
// in the chain.
func TestSessionsBesideAHungSwitch(t *testing.T) {
	for _, c := range []struct {
		what    string
		members []int
		hung    int
	}{{"of no chain", []int{1, 2, 3}, 4}, {"the tail", []int{1, 2, 3}, 3}, {"the head", []int{1, 2, 3}, 1}, {"in the middle", []int{1, 2, 3}, 2}} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			x := newTestbed(t, lab.Layout{N: 4, Chains: []lab.Chain{{ID: 1, Name: "a", Members: c.members,
				Lease: 200, Patience: 100}}})
			r := x.controller()
			r.WaitAllReady()
			r.WaitUntil(func() bool { s, err := r.API.Switches(t.Context()); return err == nil && s[3].Ready }, "s4 to be there")
			x.switches[c.hung-1].Suspend()
			// The controller cannot know before the first request that the switch hangs. On a busy
			// machine, one more request may take too long.
			var times []time.Duration
			late := 0
			for range 6 {
				ctx, cancel := context.WithTimeout(t.Context(), patient)
				asked := time.Now()
				s, err := r.API.NewSessions(ctx, admin.SessionsRequest{Count: 4})
				times = append(times, time.Since(asked).Round(time.Millisecond))
				cancel()
				if err != nil {
					t.Logf("after %v: %v", times[len(times)-1], err)
					late++
				} else if err := r.API.CloseSessions(t.Context(), s.Lease); err != nil {
					t.Error(err)
				}
			}
			t.Logf("they took %v", times)
			if late > 1 || slices.Max(times[1:]) > patient {
				t.Errorf("%d of %d were not opened in %v: %v", late, len(times), patient, times)
			}
		})
	}
}

// TestStateBesideAHungSwitch checks a request for the state of many keys at all members, when one
// member does not answer. The controller must answer in less time than clients wait, and the result
// must say which member did not answer.
func TestStateBesideAHungSwitch(t *testing.T) {
	t.Parallel()
	// the chain has no leases and no failover
	x := newTestbed(t, lab.Layout{N: 3, Chains: []lab.Chain{{ID: 1, Name: "a", Members: []int{1, 2, 3},
		Lease: 0, Patience: 0}}})
	r := x.controller()
	r.WaitAllReady()
	keys := make([]admin.KeySpec, 200)
	for i := range keys {
		keys[i].Name = fmt.Sprint("k", i)
	}
	if _, err := r.API.AddKeys(t.Context(), "a", keys); err != nil {
		t.Fatal(err)
	}
	x.switches[1].Suspend()
	began := time.Now()
	got, err := r.API.Directory(t.Context(), "", true)
	took := time.Since(began)
	if err != nil || len(got) != len(keys) || took > patient {
		t.Fatalf("%d keys after %v, %v", len(got), took, err)
	}
	for _, k := range got {
		if s := k.State; len(s) != 3 || s[0].Status != "NOT_FOUND" || s[1].Status != "UNREACHABLE" || s[2].Status != "NOT_FOUND" {
			t.Fatalf("%+v", k)
		}
	}
}

package lifecycle

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestLostAcks: a client swaps a key 10,000 times in a row while the network loses 2 % of the ACKs
// to the head. A lost ACK leaves the key dirty at the head, and nobody but the controller sends it
// again. The head executes the next CAS all the same.
//
//	           s1 head
//	ACKs only ╱       ╲ requests
//	 (2 % lost)        ╲
//	  s3 tail ────────── s2 ── the client
//
// A second client, at the head, swaps another key meanwhile, and loses nothing: its slowest call
// says how busy the machine is.
func TestLostAcks(t *testing.T) {
	for _, engine := range []string{"interp", "auto"} {
		t.Run(engine, func(t *testing.T) { lostAcks(t, engine) })
	}
}

func lostAcks(t *testing.T, engine string) {
	if !lab.InNamespace(t) {
		return
	}
	swaps := 10_000
	if testing.Short() {
		swaps = 1000
	}
	l := lab.Layout{N: 3, Links: [][2]int{{1, 2}, {2, 3}, {1, 3}},
		Chains: []lab.Chain{{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: 3000}}}
	// The box of cables has two ports for each cable: those of the three hosts come first, and s3's
	// end of the cable to s1 is the last.
	l.Faults = fmt.Sprintf("seed=1; %d/rx: loss=0.02", 2*(l.N+len(l.Links)))
	nw := lab.NewNetwork(t, engine, l)
	c := nw.StartController("")
	c.WaitReady()
	sessions := c.SessionsFor(2)
	var slowest, prompt [2]time.Duration
	var all sync.WaitGroup
	for i, host := range []int{2, 1} {
		k, err := c.API.AddKey(t.Context(), "main", api.KeySpec{Name: fmt.Sprintf("swapped-%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			history, err := nw.Hosts[host-1].Work(lab.Workload{Client: i, Service: lab.ServiceAddr,
				Keys: []uint32{k.KeyID}, Session: sessions[i], Swaps: swaps, Duration: 5 * time.Minute})
			var took []time.Duration
			for _, x := range history {
				if x.Unknown || x.Nothing {
					t.Errorf("a swap of the client at h%d had no answer", host)
				}
				took = append(took, time.Duration(x.End-x.Begin))
			}
			if err != nil || len(took) != swaps {
				t.Errorf("the client at h%d: %d of %d swaps: %v", host, len(took), swaps, err)
				return
			}
			slices.Sort(took)
			late, _ := slices.BinarySearch(took, 20*time.Millisecond)
			slowest[i], prompt[i] = took[swaps-1], took[swaps*999/1000]
			t.Logf("%s: the client at h%d: median %v, 99 %% %v, 99.9 %% %v, slowest %v; %d took 20 ms and more",
				engine, host, took[swaps/2], took[swaps*99/100], prompt[i], took[swaps-1], swaps-late)
			if i == 0 {
				lab.CheckHistory(t, engine, history[:min(len(history), 2000)], 1000)
			}
		})
	}
	all.Wait()
	if slowest[0] >= 20*time.Millisecond && slowest[0] >= 3*slowest[1] {
		t.Errorf("the slowest of %d swaps took %v, want less than 20 ms; without losses %v", swaps, slowest[0], slowest[1])
	}
	// The head does not take an ACK that was lost.
	took := c.Counters("s1").Events["ack_committed"]
	t.Logf("%s: the head took %d ACKs", engine, took)
	if took > uint64(swaps-swaps/100) {
		t.Errorf("the head took %d ACKs: too few were lost for this to say much", took)
	}
}

package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/test/system/lab"
)

// In TestLostAcks, a client executes 10,000 CAS operations in a row on a key, while the network
// loses 2 % of the ACKs to the head. A lost ACK leaves the key dirty at the head, until the
// controller propagates it again. The head executes the next CAS nevertheless.
//
//	           s1 head
//	ACKs only ╱       ╲ requests
//	 (2 % lost)        ╲
//	  s3 tail ────────── s2 ── the client
//
// Meanwhile a second client, at the head, reads another key. The head answers these reads, so their
// packets are not lost. The slowest of these calls shows how busy the machine is.
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
	// The switch that simulates the cables has two ports for each cable. The cables of the three
	// hosts come first, and s3's end of the cable to s1 is the last port.
	l.Faults = fmt.Sprintf("seed=1; %d/rx: loss=0.02", 2*(l.N+len(l.Links)))
	nw := lab.NewNetwork(t, engine, l)
	c := nw.StartController("")
	c.WaitReady()
	sessions := c.SessionsFor(2)
	ended := filepath.Join(t.TempDir(), "ended")
	// work makes a client's calls, and returns them with the duration of the slowest call.
	work := func(host int, w lab.Workload) (history []linearizable.Call, slowest time.Duration) {
		k, err := c.API.AddKey(t.Context(), "main", admin.KeySpec{Name: fmt.Sprintf("key-%d", host)})
		if err != nil {
			t.Errorf("adding a key: %v", err)
			return nil, 0
		}
		w.Client, w.Service, w.Keys, w.Session = host, lab.ServiceAddr, []uint32{k.KeyID}, sessions[host-1]
		w.Duration = 5 * time.Minute
		history, err = nw.Hosts[host-1].Work(w)
		if err != nil || len(history) == 0 {
			t.Errorf("the client at h%d: %d calls: %v", host, len(history), err)
			return nil, 0
		}
		var took []time.Duration
		for _, x := range history {
			if x.Unknown || x.Nothing {
				t.Errorf("a call of the client at h%d had no answer", host)
			}
			took = append(took, time.Duration(x.End-x.Begin))
		}
		slices.Sort(took)
		n := len(took)
		late, _ := slices.BinarySearch(took, 20*time.Millisecond)
		t.Logf("%s: h%d, %d calls: median %v, 99 %% %v, 99.9 %% %v, slowest %v; %d took 20 ms and more",
			engine, host, n, took[n/2], took[n*99/100], took[n*999/1000], took[n-1], n-late)
		return history, took[n-1]
	}
	var undisturbed time.Duration
	var reader sync.WaitGroup
	reader.Go(func() { _, undisturbed = work(1, lab.Workload{Reads: true, Until: ended}) })
	history, slowest := work(2, lab.Workload{Swaps: swaps})
	if err := os.WriteFile(ended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reader.Wait()
	if len(history) != swaps {
		t.Fatalf("%d of %d swaps were done", len(history), swaps)
	}
	lab.CheckHistory(t, engine, history[:min(len(history), 2000)], 1000)
	if slowest >= 20*time.Millisecond && slowest >= 3*undisturbed {
		t.Errorf("the slowest of %d swaps took %v, want less than 20 ms; the slowest read took %v",
			swaps, slowest, undisturbed)
	}
	// The head counts only ACKs that arrived.
	took := c.Counters("s1").Events["ack_committed"]
	t.Logf("%s: the head took %d ACKs", engine, took)
	if took > uint64(swaps-swaps/100) {
		t.Errorf("the head took %d ACKs: too few were lost for this to say much", took)
	}
}

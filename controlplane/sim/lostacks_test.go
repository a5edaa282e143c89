package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/sim/mutants"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/sim/world"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// TestLostAcks: a client swaps one key up to 10,000 times in a row, and the network loses 2 % of
// the ACKs on each link. A lost ACK leaves the key dirty at the head. The head must still execute
// the next CAS at once, because only the controller sends that ACK again, some hundred milliseconds
// later.
//
// Replies serve as ACKs at the members that they pass. If these replies are lost, too, a call waits
// for one or several retransmissions by its client.
func TestLostAcks(t *testing.T) {
	for _, x := range []struct {
		shape, host string
		swaps       int
		replies     bool
		most        time.Duration
	}{
		// the client is at the tail, so replies pass no other member
		{"line4", "h4", 10_000, false, 20 * time.Millisecond},
		{"line4", "h2", 2000, false, 20 * time.Millisecond},
		{"mesh3", "h2", 2000, false, 20 * time.Millisecond},
		{"line4", "h1", 2000, true, 100 * time.Millisecond}, // the client is at the head, so replies are the only ACKs
		{"star3", "h3", 2000, true, 100 * time.Millisecond},
	} {
		if testing.Short() || testSeeds < 2000 {
			x.swaps = 1000
		}
		t.Run(fmt.Sprintf("%s, client at %s, replies lost: %v", x.shape, x.host, x.replies), func(t *testing.T) {
			if slowest := swapUnderLoss(t, nil, x.shape, x.host, x.swaps, x.replies); slowest >= x.most {
				t.Errorf("the slowest of %d swaps took %v, want less than %v", x.swaps, slowest, x.most)
			}
		})
	}
	// Without this rule, a CAS waits for the controller.
	t.Run("DIRTY_CAS_WAITS", func(t *testing.T) {
		m, err := mutants.Find("DIRTY_CAS_WAITS")
		world.Must(err)
		if slowest := swapUnderLoss(t, m, "line4", "h4", 200, false); slowest < 100*time.Millisecond {
			t.Errorf("the slowest swap took %v, and this test says little", slowest)
		}
	})
}

// swapUnderLoss returns the duration of a client's slowest swap.
func swapUnderLoss(t *testing.T, m *mutants.Mutant, shape, host string, swaps int, replies bool) time.Duration {
	sh, err := shapes.Find(shape)
	world.Must(err)
	sim, err := NewMutant(m)
	world.Must(err)
	w, err := world.New(sim.program, sim.removed, &sim.engines, sh, 1, nil)
	world.Must(err)
	defer w.EndTasks()
	world.Must(setUp(w, 1, 1, 1))
	at := slices.IndexFunc(sh.Topology.Hosts, func(h *topology.Host) bool { return h.Name == host })
	c := w.NewClient("c", sh.Topology.Hosts[at], 1, func(cfg *calls.Config) {
		cfg.FastRetransmit = calls.DefaultFastRetransmit
	})
	const unlimited = 1 << 40
	losses := []*world.Rule{{Op: wire.Ack, Times: unlimited, Share: 0.02}}
	if replies {
		for _, a := range sh.Topology.Switches {
			for _, b := range sh.Topology.Switches {
				losses = append(losses,
					&world.Rule{Op: wire.CASReply, From: a.Name, To: b.Name, Times: unlimited, Share: 0.02})
			}
		}
	}
	w.Network.Rules = losses
	var waits []time.Duration
	var swap func(wire.Version)
	swap = func(expected wire.Version) {
		c.Start(calls.Request{Op: wire.CAS, Key: w.Keys[0], Value: fmt.Append(nil, len(waits)),
			Expected: expected, Deadline: w.Loop.Now + 10*time.Second}, func(r calls.Result) {
			if waits = append(waits, r.RTT); r.Err != nil {
				t.Errorf("swap %d: %v", len(waits), r.Err)
				waits = nil // the loop below reports that the swaps have ended
			} else if len(waits) < swaps {
				w.Loop.After(50*time.Microsecond, func() { swap(r.Version) })
			}
		})
	}
	first := calls.Request{Op: wire.Write, Key: w.Keys[0], Deadline: w.Loop.Now + time.Second}
	c.Start(first, func(r calls.Result) {
		world.Must(r.Err)
		swap(r.Version)
	})
	w.Loop.Run(w.Loop.Now+time.Hour, func() bool { return len(waits) == swaps || t.Failed() })
	if len(waits) != swaps {
		t.Fatalf("%d of %d swaps were done", len(waits), swaps)
	}
	for _, v := range w.History.Check(w.Peeks.Guesses) {
		t.Error(v)
	}
	lost := 0
	for _, l := range losses {
		lost += unlimited - l.Times
	}
	if lost < swaps/100 {
		t.Errorf("%d packets were lost in %d swaps, and this test says little", lost, swaps)
	}
	slices.Sort(waits)
	prompt, _ := slices.BinarySearch(waits, 5*time.Millisecond)
	t.Logf("%d lost: median %v, 99 %% %v, 99.9 %% %v, slowest %v; %d took 5 ms and more", lost,
		waits[swaps/2], waits[swaps*99/100], waits[swaps*999/1000], waits[swaps-1], swaps-prompt)
	return waits[swaps-1]
}

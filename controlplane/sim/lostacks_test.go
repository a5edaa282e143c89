package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/core"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/wire"
)

// TestLostAcks: a client swaps one key up to 10,000 times in a row, and the network loses 2 % of
// the ACKs on each link. A lost ACK leaves the key dirty at the head, so the next CAS is not
// executed at its first try. It must not wait for the controller, which re-propagates what stays
// dirty.
//
// With the replies that are ACKs on their way lost as well, a call waits for its client's
// retransmission; it may need several.
func TestLostAcks(t *testing.T) {
	for _, x := range []struct {
		shape, host string
		swaps       int
		replies     bool
		most        time.Duration
	}{
		{"line4", "h4", 10_000, false, 20 * time.Millisecond}, // at the tail: no member hears a reply
		{"line4", "h2", 2000, false, 20 * time.Millisecond},
		{"mesh3", "h2", 2000, false, 20 * time.Millisecond},
		{"line4", "h1", 2000, true, 100 * time.Millisecond}, // at the head: there are no ACKs but replies
		{"star3", "h3", 2000, true, 100 * time.Millisecond},
	} {
		swaps := x.swaps
		if testing.Short() || testSeeds < 2000 {
			swaps = 1000
		}
		t.Run(fmt.Sprintf("%s, client at %s, replies lost: %v", x.shape, x.host, x.replies), func(t *testing.T) {
			sh, err := findShape(x.shape)
			must(err)
			sim, err := NewMutant(nil)
			must(err)
			w, err := sim.newWorld(sh, 1, nil)
			must(err)
			defer w.endTasks()
			must(w.setUp(1, 1, 1))
			at := slices.IndexFunc(sh.topo.Hosts, func(h *topology.Host) bool { return h.Name == x.host })
			c := w.newClient("c", sh.topo.Hosts[at], 1, func(cfg *core.Config) {
				cfg.FastRetransmit = core.DefaultFastRetransmit
			})
			w.network.rules = append(w.network.rules, &rule{op: wire.Ack, times: -1, share: 0.02})
			if x.replies {
				for _, a := range sh.topo.Switches {
					for _, b := range sh.topo.Switches {
						w.network.rules = append(w.network.rules,
							&rule{op: wire.CASReply, from: a.Name, to: b.Name, times: -1, share: 0.02})
					}
				}
			}
			var waits []time.Duration
			var swap func(wire.Version)
			swap = func(expected wire.Version) {
				c.start(core.Request{Op: wire.CAS, Key: w.keys[0], Value: fmt.Append(nil, len(waits)),
					Expected: expected, Deadline: w.loop.now + 10*time.Second}, func(r core.Result) {
					if waits = append(waits, r.RTT); r.Err != nil {
						t.Errorf("swap %d: %v", len(waits), r.Err)
						waits = nil // and the loop below says that it ended
					} else if len(waits) < swaps {
						w.loop.after(50*time.Microsecond, func() { swap(r.Version) })
					}
				})
			}
			first := core.Request{Op: wire.Write, Key: w.keys[0], Deadline: w.loop.now + time.Second}
			c.start(first, func(r core.Result) {
				must(r.Err)
				swap(r.Version)
			})
			w.loop.run(w.loop.now+time.Hour, func() bool { return len(waits) == swaps || t.Failed() })
			if len(waits) != swaps {
				t.Fatalf("%d of %d swaps were done", len(waits), swaps)
			}
			for _, v := range w.history.check(w.peeks) {
				t.Error(v)
			}
			slices.Sort(waits)
			prompt, _ := slices.BinarySearch(waits, 5*time.Millisecond)
			t.Logf("median %v, 99 %% %v, 99.9 %% %v, slowest %v; %d took 5 ms and more",
				waits[swaps/2], waits[swaps*99/100], waits[swaps*999/1000], waits[swaps-1], swaps-prompt)
			if waits[swaps-1] >= x.most {
				t.Errorf("the slowest of %d swaps took %v, want less than %v", swaps, waits[swaps-1], x.most)
			}
		})
	}
}

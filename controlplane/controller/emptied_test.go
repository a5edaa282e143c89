package controller_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/controller"
)

// These tests empty switches, and compare what they have then with what a new controller would give
// them. A controller that remembers what a switch had before leaves something out.

// contents returns everything in the switches, as text.
func (f *fakes) contents() (out []string) {
	for i, s := range f.servers {
		out = append(out, strings.Join(f.tables(i), "\n")+fmt.Sprint("\ngroups ", s.Groups()))
	}
	return out
}

// allReady waits until all chains and switches are ready, and nothing has changed for a second.
func (f *fakes) allReady(c *controller.Controller) {
	f.t.Helper()
	ready(f.t, c)
	last, since := f.contents(), time.Now()
	until(f.t, c, "the switches are ready, and nothing changes", func() bool {
		all, err := c.Switches(f.t.Context())
		if now := f.contents(); err != nil || !slices.Equal(now, last) ||
			slices.ContainsFunc(all, func(s admin.Switch) bool { return !s.Ready }) {
			last, since = now, time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond && c.Ready(f.t.Context()) == nil
	})
}

// checkComplete stops a controller, and checks that a new one has nothing to write.
func (f *fakes) checkComplete(what string, c *controller.Controller, stop func()) (*controller.Controller, func()) {
	f.t.Helper()
	f.allReady(c)
	stop()
	had := f.contents()
	next, stop := f.start()
	f.allReady(next)
	for i, now := range f.contents() {
		if now != had[i] {
			f.t.Fatalf("%s: s%d had\n%s\nand a new controller gave it\n%s\n%s", what, i+1, had[i], now, eventText(c))
		}
	}
	return next, stop
}

// TestReplacedProgram: a switch whose program is replaced gets everything that it had.
func TestReplacedProgram(t *testing.T) {
	for _, other := range [][]string{{"s1", "s2"}, {"s1", "s2", "s3"}} {
		f := newFakes(t, twoChains([]string{"s1", "s2"}, other))
		for i := range f.servers {
			f.loadKin(i)
			f.answerLeases(i, records)
		}
		c, stop := f.start()
		for _, s := range []string{"s1", "s2", "s3"} {
			until(t, c, s+" runs the new program", func() bool {
				return strings.Contains(eventText(c), "switch.program-replaced "+s)
			})
		}
		f.checkComplete(fmt.Sprint(other), c, stop)
	}
}

// TestEmptiedAtRandom: switches are emptied, restarted and disconnected while chains, routes and
// leases of sessions change.
func TestEmptiedAtRandom(t *testing.T) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 0))
		f := newFakesAround(t)
		c, stop := f.start()
		ready(t, c)
		var done []string
		for round := range 3 {
			for range 1 + r.IntN(6) {
				i := r.IntN(len(f.servers))
				name := fmt.Sprint("s", i+1)
				switch r.IntN(5) {
				case 0:
					done = append(done, "break "+name)
					f.servers[i].BreakStreams()
				case 1:
					done = append(done, "restart "+name)
					f.servers[i].Forget()
					f.servers[i].BreakStreams()
				case 2:
					done = append(done, "stop "+name)
					f.servers[i].Stop()
					time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
					if err := f.servers[i].Start(); err != nil {
						t.Fatal(err)
					}
				case 3:
					_, err := c.Recover(t.Context(), "main", name)
					done = append(done, fmt.Sprintf("recover %s (%v)", name, err))
				case 4:
					_, err := c.OpenSessions(t.Context(), admin.SessionsRequest{Count: 1, Address: "10.0.0.1"})
					done = append(done, fmt.Sprintf("session (%v)", err))
				}
				time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			}
			c, stop = f.checkComplete(fmt.Sprintf("seed %d, round %d: %q", seed, round, done), c, stop)
		}
	}
}

package chain

import (
	"fmt"
	"testing"
	"time"
)

// ready returns a chain of three members that is ready, in a network of n switches.
func ready(t *testing.T, n int) (m *Machine, now Time) {
	t.Helper()
	o := Options{Name: "main", Lease: 200 * time.Millisecond, FailureTimeout: 100 * time.Millisecond,
		ProbeEvery: time.Hour} // probes are as many as switches, and not what is measured
	for i := range n {
		o.Switches = append(o.Switches, fmt.Sprint("s", i))
	}
	o.Members = o.Switches[:3]
	m = New(o)
	for _, s := range o.Switches {
		m.SwitchUp(now, s, Report{Fresh: true})
		answer(m, now, m.Actions())
	}
	m.KnowsKeys()
	for m.Phase(now) != Ready {
		actions := m.Actions()
		if len(actions) == 0 {
			t.Fatalf("it waits, %v: %s", m.Phase(now), m.Status(now).Reason)
		}
		answer(m, now, actions)
	}
	for actions := m.Actions(); len(actions) > 0; actions = m.Actions() {
		answer(m, now, actions)
	}
	return m, now
}

// answer gives the machine the answers to its actions.
func answer(m *Machine, now Time, actions []Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case Persist:
			m.Persisted(now, a.Seq, nil)
		case Install:
			m.Installed(now, a.Switch, a.Seq, nil)
		case Lease:
			m.LeaseReply(now, a.Switch, LeaseAnswer{Number: a.Number, Clock: uint64(now.Microseconds()) + 1,
				Left: a.Duration, Epoch: a.Epoch, Granted: true})
		}
	}
}

// renewalsOf returns how long a ready machine takes for some seconds of its leases, at best.
func renewalsOf(t *testing.T, n int) time.Duration {
	t.Helper()
	m, now := ready(t, n)
	best := time.Hour
	for range 5 {
		began, leases := time.Now(), 0
		for end := now + 5*time.Second; now < end; {
			next, ok := m.Next(now)
			if !ok {
				t.Fatal("it waits for nothing")
			}
			now = max(next, now)
			m.Tick(now)
			for actions := m.Actions(); len(actions) > 0; actions = m.Actions() {
				leases += len(actions)
				now += 100 * time.Microsecond
				answer(m, now, actions)
			}
		}
		best = min(best, time.Since(began))
		if leases < 3*5*15 || m.Phase(now) != Ready || !m.Status(now).Ready {
			t.Fatalf("%d leases in 5 s, %v: %s", leases, m.Phase(now), m.Status(now).Reason)
		}
	}
	return best
}

// TestRenewalsInLargeNetworks: what a machine does to renew its members' leases does not depend on
// how many other switches the network has. A machine that looked at all of them would take some
// hundred times as long here.
func TestRenewalsInLargeNetworks(t *testing.T) {
	small, large := renewalsOf(t, 5), renewalsOf(t, 1000)
	if large > 8*small {
		t.Errorf("renewing leases for 5 s takes %v among 5 switches, and %v among 1,000", small, large)
	}
}

// TestProbes: each switch that gets no lease is probed as often as the options say, however many
// there are, and a member is not.
func TestProbes(t *testing.T) {
	m, now := ready(t, 50)
	m.Want(Options{Members: m.o.Members, ProbeEvery: 2 * time.Second})
	counts := map[string]int{}
	for s := range m.view { // they connect again, at different times
		now += 10 * time.Millisecond
		m.SwitchDown(now, s)
		m.SwitchUp(now, s, Report{Assignment: m.view[s].acks})
		answer(m, now, m.Actions())
	}
	for end := now + 20*time.Second; now < end; {
		next, _ := m.Next(now)
		now = max(next, now)
		m.Tick(now)
		for actions := m.Actions(); len(actions) > 0; actions = m.Actions() {
			for _, a := range actions {
				if l, ok := a.(Lease); ok && l.Duration == 0 {
					counts[l.Switch]++
				}
			}
			now += 100 * time.Microsecond
			answer(m, now, actions)
		}
	}
	for s := range m.view {
		if n := counts[s]; m.cfg.IsMember(s) && n > 0 || !m.cfg.IsMember(s) && (n < 9 || n > 11) {
			t.Errorf("%s was probed %d times in 20 s; a member: %v", s, n, m.cfg.IsMember(s))
		}
	}
}

// Package rejoin says when a switch that a chain has given up may be brought in again. It is pure:
// events come in with the time, on any clock that never goes back.
//
// A switch must have been steady for a while, because bringing it in takes three of the 65,535
// epochs that a chain has (two, if it fails), and losing it again one. A switch that comes and goes
// would use them up in two weeks if it were brought in each time after three seconds. So it takes
// twice as long the second time, and four times as long from the third on. That is enough for a
// machine that is overloaded for a minute, whose chains should be whole soon after. From the eighth
// time on the time doubles each time, up to an hour.
//
// A chain's machine (package chain) brings in those that it has lost; an operator of a cluster
// (cni-plugin/kube), which decides itself which nodes are members, asks the same Tracker.
package rejoin

import "time"

// Policy is how long a switch must have been steady.
type Policy struct {
	Settle   time.Duration // the first time; 0: switches are brought in only by hand
	Longest  time.Duration // at most
	Forgiven time.Duration // after so long without being tried, it is as the first time
}

// Default is the default policy.
func Default() Policy { return For(3 * time.Second) }

// For is the policy with a time for the first time; 0: switches are brought in only by hand.
func For(settle time.Duration) Policy {
	return Policy{Settle: settle, Longest: max(settle, time.Hour), Forgiven: 6 * max(settle, time.Hour)}
}

// On says whether anybody is brought in.
func (p Policy) On() bool { return p.Settle > 0 }

// Candidate is a switch in the eyes of a chain.
type Candidate struct{ Chain, Switch string }

// Tracker knows since when switches have been steady, and how often they were tried. It is not safe
// for concurrent use.
type Tracker struct {
	p      Policy
	steady map[Candidate]time.Duration
	later  map[Candidate]time.Duration // not before
	trials map[Candidate]trial
}

// trial is how often a switch was brought in, or was tried, and the last time.
type trial struct {
	times int
	at    time.Duration
}

// The first quick times it takes at most 1<<steep times as long as the first time.
const quick, steep = 8, 2

// New makes a tracker that knows nothing yet.
func New(p Policy) *Tracker {
	return &Tracker{p: p, steady: map[Candidate]time.Duration{}, later: map[Candidate]time.Duration{},
		trials: map[Candidate]trial{}}
}

// SetPolicy changes the policy. The state of switches stays.
func (t *Tracker) SetPolicy(p Policy) { t.p = p }

// There: a switch is there from now on, if it was not before.
func (t *Tracker) There(now time.Duration, c Candidate) {
	if _, ok := t.steady[c]; !ok {
		t.steady[c] = now
	}
}

// Again: a switch that is there has only been steady from now on, because it was silent, or could
// not be brought in.
func (t *Tracker) Again(now time.Duration, c Candidate) {
	if _, ok := t.steady[c]; ok {
		t.steady[c] = now
	}
}

// Later: a switch cannot be brought in now, for no fault of its own. It keeps its time of being
// steady, and is tried again after Policy.Settle.
func (t *Tracker) Later(now time.Duration, c Candidate) {
	if _, ok := t.steady[c]; ok {
		t.later[c] = now + t.p.Settle
	}
}

// Away: a switch is not there.
func (t *Tracker) Away(c Candidate) {
	delete(t.steady, c)
	delete(t.later, c)
}

// Forget: a switch has left the network, or the chain has.
func (t *Tracker) Forget(c Candidate) {
	t.Away(c)
	delete(t.trials, c)
}

// Wait is how long a switch must have been steady.
func (t *Tracker) Wait(now time.Duration, c Candidate) time.Duration {
	last, ok := t.trials[c]
	if !ok || now-last.at >= t.p.Forgiven {
		return t.p.Settle
	}
	doubled := min(last.times, steep) + max(0, last.times-quick+1)
	if doubled > 20 {
		return t.p.Longest
	}
	return min(t.p.Settle<<doubled, t.p.Longest)
}

// Due is when a switch may be brought in, if it stays; false: it is not there, or none may.
func (t *Tracker) Due(now time.Duration, c Candidate) (time.Duration, bool) {
	since, ok := t.steady[c]
	if !ok || !t.p.On() {
		return 0, false
	}
	return max(since+t.Wait(now, c), t.later[c]), true
}

// Tried: a switch was brought in, or that has cost epochs. The next time takes longer.
func (t *Tracker) Tried(now time.Duration, c Candidate) {
	last := t.trials[c]
	if now-last.at >= t.p.Forgiven {
		last.times = 0
	}
	t.trials[c] = trial{last.times + 1, now}
	for other, last := range t.trials {
		if now-last.at >= t.p.Forgiven {
			delete(t.trials, other)
		}
	}
}

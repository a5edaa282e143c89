// Package rejoin decides when a switch that a chain has given up may be brought in again. It does
// no input or output. The caller passes each event with its time, on any clock that never goes
// back.
//
// A switch must have been steady for a while, because a chain has only 65,535 epochs. Bringing a
// switch in takes three epochs (two, if it fails), and losing it again takes one. A switch that
// comes and goes would use them up in two weeks if it were brought in each time after three
// seconds. So the required time is twice as long the second time, and four times as long from the
// third time on. This suits a machine that is overloaded for a minute, because its chains are
// complete soon after. From the eighth time on the required time doubles each time, up to an hour.
//
// A chain's machine (package chain) brings in the switches that it has lost. The operator of a
// cluster (cni-plugin/kube), which itself decides which nodes are members, uses the same Tracker.
package rejoin

import "time"

// Policy says how long a switch must have been steady before it is brought in again.
type Policy struct {
	Settle  time.Duration // required time before the first attempt; 0: only operators bring switches in
	Longest time.Duration // maximum of the required time
	// after this time without an attempt, the next attempt counts as the first
	Forgiven time.Duration
}

// Default is the default policy.
func Default() Policy { return For(3 * time.Second) }

// For returns the policy with a given time before the first attempt. If the time is 0, only
// operators bring switches in.
func For(settle time.Duration) Policy {
	return Policy{Settle: settle, Longest: max(settle, time.Hour), Forgiven: 6 * max(settle, time.Hour)}
}

// On reports whether switches are brought in automatically.
func (p Policy) On() bool { return p.Settle > 0 }

// Candidate is a switch that one chain may bring in again.
type Candidate struct{ Chain, Switch string }

// Tracker knows since when switches have been steady, and how many attempts were made to bring
// them in. It is not safe for concurrent use.
type Tracker struct {
	p      Policy
	steady map[Candidate]time.Duration
	later  map[Candidate]time.Duration // earliest time of the next attempt
	trials map[Candidate]trial
}

// trial counts the attempts to bring a switch in, and holds the time of the last one.
type trial struct {
	times int
	at    time.Duration
}

// For the first quick attempts, the required time is at most 1<<steep times that of the first
// attempt.
const quick, steep = 8, 2

// New returns a tracker that knows no switch yet.
func New(p Policy) *Tracker {
	return &Tracker{p: p, steady: map[Candidate]time.Duration{}, later: map[Candidate]time.Duration{},
		trials: map[Candidate]trial{}}
}

// SetPolicy changes the policy. The state of the switches stays.
func (t *Tracker) SetPolicy(p Policy) { t.p = p }

// There notes that a switch is connected. If it was not connected before, its steady time begins
// now.
func (t *Tracker) There(now time.Duration, c Candidate) {
	if _, ok := t.steady[c]; !ok {
		t.steady[c] = now
	}
}

// Again restarts the steady time of a connected switch, because it was silent, or could not be
// brought in.
func (t *Tracker) Again(now time.Duration, c Candidate) {
	if _, ok := t.steady[c]; ok {
		t.steady[c] = now
	}
}

// Later notes that a switch cannot be brought in now, for no fault of its own. The switch keeps
// its steady time, and is tried again after Policy.Settle.
func (t *Tracker) Later(now time.Duration, c Candidate) {
	if _, ok := t.steady[c]; ok {
		t.later[c] = now + t.p.Settle
	}
}

// Away notes that a switch is not connected.
func (t *Tracker) Away(c Candidate) {
	delete(t.steady, c)
	delete(t.later, c)
}

// Forget removes a switch that has left the network, or whose chain was removed.
func (t *Tracker) Forget(c Candidate) {
	t.Away(c)
	delete(t.trials, c)
}

// Wait returns how long a switch must have been steady.
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

// Due returns the time at which a switch may be brought in if it stays connected. It returns false
// if the switch is not connected, or if only operators bring switches in.
func (t *Tracker) Due(now time.Duration, c Candidate) (time.Duration, bool) {
	since, ok := t.steady[c]
	if !ok || !t.p.On() {
		return 0, false
	}
	return max(since+t.Wait(now, c), t.later[c]), true
}

// Tried notes an attempt that brought a switch in or used epochs. The next attempt takes longer.
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

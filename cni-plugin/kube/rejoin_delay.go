package kube

import "time"

// Bringing a switch into a chain takes three of the 65,535 epochs that the chain has (two, where it
// fails), and losing it one. A switch that comes and goes would use them up in two weeks, if it
// were brought in each time it has been there for settle. So each time it takes longer.
const (
	longestProbation = time.Hour
	// forgiven is for how long a switch must not have been brought in for what was before to count
	// no more.
	forgiven = 6 * time.Hour
)

// candidacy is a switch in a chain.
type candidacy struct{ chain, node string }

// rejoinDelays is for how long switches must have been ready before they are brought into chains.
// It is not safe for concurrent use.
type rejoinDelays map[candidacy]trial

type trial struct {
	wait time.Duration
	last time.Time // when it was last brought in, or that was tried
}

// wait is for how long a switch must have been ready.
func (p rejoinDelays) wait(at candidacy, now time.Time) time.Duration {
	if t, ok := p[at]; ok && now.Sub(t.last) < forgiven {
		return t.wait
	}
	return settle
}

// tried notes that a switch is brought in.
func (p rejoinDelays) tried(at candidacy, now time.Time) {
	p[at] = trial{min(2*p.wait(at, now), longestProbation), now}
	for other, t := range p {
		if now.Sub(t.last) >= forgiven {
			delete(p, other)
		}
	}
}

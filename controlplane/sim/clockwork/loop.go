package clockwork

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// Loop is the simulation's clock and its queue of events, in order. Two events at the same moment
// run in the order in which they were scheduled.
type Loop struct {
	Now   time.Duration
	seq   uint64
	queue eventQueue
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// At schedules an event for a moment. If the moment is in the past, the event runs now.
func (l *Loop) At(t time.Duration, do func()) {
	l.seq++
	heap.Push(&l.queue, event{max(t, l.Now), l.seq, do})
}

// After schedules an event that runs after d.
func (l *Loop) After(d time.Duration, do func()) { l.At(l.Now+d, do) }

// Run executes the events up to a moment, which then becomes the present. If stop is not nil, Run
// ends earlier when stop returns true.
func (l *Loop) Run(until time.Duration, stop func() bool) {
	for len(l.queue) > 0 && l.queue[0].at <= until {
		if stop != nil && stop() {
			return
		}
		e := heap.Pop(&l.queue).(event)
		l.Now = e.at
		e.do()
	}
	l.Now = max(l.Now, until)
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// Dice is a stream of random numbers. Each part of a run has its own Dice, so drawing more often in
// one part does not change what another part draws.
type Dice struct{ *rand.Rand }

// These are the streams of random numbers of a seed, for NewDice.
const (
	DiceRun = iota
	DiceNetwork
	DiceControl
	DiceClients
	DiceFaults
	DiceLeave
	DiceHostile
	DiceTaken
	DiceSuspend
	DiceTargets
	DiceDisk
	DiceWatch
	DiceRejoin
	DiceStarve
	DiceChannels
	DiceWipe
	DiceKeyless
	DiceGarbage
	DicePeek
	DiceClocks
	DiceWorker
)

// NewDice begins one of the streams of random numbers that follow from a seed.
func NewDice(seed, stream uint64) Dice { return Dice{rand.New(rand.NewPCG(seed, stream))} }

// Chance returns true with probability p.
func (d Dice) Chance(p float64) bool { return p > 0 && d.Float64() < p }

// Between returns a duration from low (included) to high, uniformly distributed.
func (d Dice) Between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(d.Int64N(int64(high-low)))
}

// About returns a duration with the given mean, exponentially distributed and at most ten times the
// mean.
func (d Dice) About(mean time.Duration) time.Duration {
	return min(time.Duration(d.ExpFloat64()*float64(mean)), 10*mean)
}

// Pick returns one of its arguments.
func Pick[T any](d Dice, of ...T) T { return of[d.IntN(len(of))] }

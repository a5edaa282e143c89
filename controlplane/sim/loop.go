package sim

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// loop is the simulation's time: what is to happen, in order. Of two things at the same moment the
// one that was arranged first is first.
type loop struct {
	now   time.Duration
	seq   uint64
	queue eventQueue
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// at arranges something for a moment; a moment that is over means now.
func (l *loop) at(t time.Duration, do func()) {
	l.seq++
	heap.Push(&l.queue, event{max(t, l.now), l.seq, do})
}

// after arranges something for later.
func (l *loop) after(d time.Duration, do func()) { l.at(l.now+d, do) }

// run lets everything happen up to a moment, which is then the present, or until stop (if not nil)
// says so.
func (l *loop) run(until time.Duration, stop func() bool) {
	for len(l.queue) > 0 && l.queue[0].at <= until {
		if stop != nil && stop() {
			return
		}
		e := heap.Pop(&l.queue).(event)
		l.now = e.at
		e.do()
	}
	l.now = max(l.now, until)
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

// dice is a stream of chance. Each part of a run has its own, so that one that asks more often does
// not change what another gets.
type dice struct{ *rand.Rand }

// The streams of a seed.
const (
	diceRun = iota
	diceNetwork
	diceControl
	diceClients
	diceFaults
	diceLeave
	diceHostile
	diceTaken
	diceSuspend
	diceTargets
	diceDisk
	diceWatch
	diceRejoin
	diceStarve
	diceChannels
	diceWipe
	diceKeyless
	diceGarbage
	dicePeek
	diceClocks
	diceWorker
)

func newDice(seed, stream uint64) dice { return dice{rand.New(rand.NewPCG(seed, stream))} }

// chance is true with probability p.
func (d dice) chance(p float64) bool { return p > 0 && d.Float64() < p }

// between is a duration from low (included) to high, all equally likely.
func (d dice) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(d.Int64N(int64(high-low)))
}

// about is a duration whose mean is d, exponentially distributed and at most ten times as long.
func (d dice) about(mean time.Duration) time.Duration {
	return min(time.Duration(d.ExpFloat64()*float64(mean)), 10*mean)
}

// pick is one of some things.
func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// Package hotkeys counts the gateway's traffic: requests by kind, where reads were answered from
// and why not from the network, how long network and etcd take, and how often each of the hottest
// keys is read and written, in memory that does not grow with the number of keys.
//
// # Which keys are counted
//
// [Keys] is Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and
// Top-k Elements in Data Streams", ICDT 2005) with forward decay (Cormode, Shkapenyuk, Srivastava
// and Xu, "Forward Decay", ICDE 2009). There is a fixed number of counters. A key without one takes
// over the counter of the coldest key, with its score, so a key whose share of recent reads is
// larger than one in that number always has a counter. A read counts half after a half-life, so
// yesterday's hot keys leave.
//
// # Why rate() over a key's counter is right
//
// The score only decides which keys are counted. Another number is exposed: the reads of the key
// since it has had its counter, each counted once, from zero. So the number that Prometheus sees of
// a key never goes down and never jumps by another key's reads, as a sketch's own estimates do. It
// follows that
//
//   - a key's first sample may already say some reads. rate() leaves them out, as it does for every
//     new series;
//   - a key that leaves the exposed top and comes back while it still has its counter (there are
//     many more counters than exposed keys) goes on where it was: rate() over the gap is right;
//   - a key that lost its counter begins again at zero, which rate() takes for the restart of a
//     program. If it passes its former count before Prometheus looks again, rate() says too little,
//     once, never too much.
//
// Which keys are exposed changes slowly: a key that was exposed stays until it is below twice the
// number's place.
package hotkeys

import (
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of [Keys], and the defaults of [Bounds].
const (
	DefaultTop      = 1024
	DefaultCounters = 8192
	DefaultHalfLife = 30 * time.Second
	// MaxKey is the longest key that is counted, in bytes: with the number of counters it bounds
	// the memory. No longer key is placed in the network either.
	MaxKey = 1024
)

// Bounds say how much is remembered.
type Bounds struct {
	Top      int           // keys that are exposed
	Counters int           // keys that are counted; at least four times Top is used
	HalfLife time.Duration // after which a read counts for half
	Now      func() time.Time
}

// Keys counts reads and writes of the keys that are read most. It may be used by many goroutines.
type Keys struct {
	mu        sync.Mutex
	top       int
	counters  int
	halfLife  time.Duration
	now       func() time.Time
	origin    time.Time // when a read counts 1; later ones count more
	byName    map[string]*counter
	coldest   coldest
	displaced uint64
	tooLong   uint64
}

// counter is one key's.
type counter struct {
	name          string
	score         float64 // decides who is counted; at least the key's own reads, in the weight of their time
	reads, writes uint64  // since the key has had this counter
	place         int     // in the heap
	exposed       bool
}

// Count is the count of one key.
type Count struct {
	Key           string
	Reads, Writes uint64 // since the key is counted
}

// NewKeys makes an empty set of counters.
func NewKeys(b Bounds) *Keys {
	if b.Top <= 0 {
		b.Top = DefaultTop
	}
	if b.Counters <= 0 {
		b.Counters = DefaultCounters
	}
	if b.HalfLife <= 0 {
		b.HalfLife = DefaultHalfLife
	}
	if b.Now == nil {
		b.Now = time.Now
	}
	return &Keys{top: b.Top, counters: max(b.Counters, 4*b.Top), halfLife: b.HalfLife, now: b.Now,
		origin: b.Now(), byName: map[string]*counter{}}
}

// Read counts a read of a key.
func (k *Keys) Read(key []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.byName[string(key)] // no copy of the key is made for a look-up
	if c == nil {
		if len(key) > MaxKey {
			k.tooLong++
			return
		}
		c = k.admit(string(key))
	}
	c.reads++
	c.score += k.weight()
	heap.Fix(&k.coldest, c.place)
}

// Write counts a write of a counted key. Keys that nobody reads do not matter here, however often
// they are written.
func (k *Keys) Write(key []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.byName[string(key)]; c != nil {
		c.writes++
	}
}

// admit gives a key a counter: a new one, or the coldest key's.
func (k *Keys) admit(key string) *counter {
	if len(k.coldest) < k.counters {
		c := &counter{name: key}
		heap.Push(&k.coldest, c)
		k.byName[key] = c
		return c
	}
	c := k.coldest[0]
	delete(k.byName, c.name)
	k.displaced++
	*c = counter{name: key, score: c.score, place: c.place}
	k.byName[key] = c
	return c
}

// weight is what a read counts now. It doubles with every half-life, instead of all scores being
// halved; before it gets too large for its sums everything is divided by it.
func (k *Keys) weight() float64 {
	age := float64(k.now().Sub(k.origin)) / float64(k.halfLife)
	if age > 512 {
		for _, c := range k.coldest { // the order stays, so the heap stays one
			c.score = math.Ldexp(c.score, -int(min(age, 1<<20)))
		}
		k.origin, age = k.now(), 0
	}
	return math.Exp2(age)
}

// Top gives the hottest keys, the hottest first, and remembers that they were exposed.
func (k *Keys) Top() []Count {
	k.mu.Lock()
	defer k.mu.Unlock()
	sorted := slices.Clone(k.coldest)
	slices.SortFunc(sorted, func(a, b *counter) int {
		if a.score != b.score {
			return map[bool]int{true: -1, false: 1}[a.score > b.score]
		}
		return strings.Compare(a.name, b.name)
	})
	var out []Count
	for i, c := range sorted {
		c.exposed = i < k.top || c.exposed && i < 2*k.top
		if c.exposed {
			out = append(out, Count{c.name, c.reads, c.writes})
		}
	}
	return out
}

// coldest is a heap of the counters with the smallest score on top.
type coldest []*counter

func (h coldest) Len() int           { return len(h) }
func (h coldest) Less(i, j int) bool { return h[i].score < h[j].score }
func (h coldest) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *coldest) Push(x any) {
	c := x.(*counter)
	c.place = len(*h)
	*h = append(*h, c)
}
func (h *coldest) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}

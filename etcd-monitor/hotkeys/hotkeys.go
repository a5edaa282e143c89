// Package hotkeys counts the gateway's traffic: requests by kind, reads by where they were answered
// (or why the network did not answer), and the reads and writes of each of the hottest keys. It
// also measures the latency of the network and of etcd. Its memory does not grow with the number of
// keys.
//
// # Which keys are counted
//
// [Keys] is Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and
// Top-k Elements in Data Streams", ICDT 2005) with forward decay (Cormode, Shkapenyuk, Srivastava
// and Xu, "Forward Decay", ICDE 2009). There are n counters. When a key without a counter is read,
// it takes over the counter and the score of the coldest key. So a key with more than 1/n of the
// recent reads always has a counter. After a half-life, a read counts half. So keys that are no
// longer hot lose their counters.
//
// # Why rate() of a key's counter is correct
//
// The score only decides which keys are counted. The exposed number is not the score. It is the
// number of the key's reads since it got its counter, beginning at zero. So the value that
// Prometheus sees for a key never decreases and never jumps by another key's reads, unlike a
// sketch's own estimates. Three things follow:
//
//   - A key's first sample may already be above zero. rate() ignores it, as for every new series. -
//     If a key leaves the exposed top and comes back while it still has its counter (there are many
//     more counters than exposed keys), the counter continues, and rate() over the gap is correct.
//   - If a key has lost its counter, the count starts again at zero, which rate() treats as a
//     program's restart. If the count exceeds its former value before the next scrape, rate() is
//     too low once, but never too high.
//
// The set of exposed keys changes slowly: an exposed key stays until its rank is worse than twice
// the number of exposed keys.
package hotkeys

import (
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of [Keys], and defaults of [Bounds].
const (
	DefaultTop      = 1024
	DefaultCounters = 8192
	DefaultHalfLife = 30 * time.Second
	// MaxKey is the maximum length of a counted key, in bytes. With the number of counters it
	// bounds the memory. Longer keys are not placed in the network either.
	MaxKey = 1024
)

// Bounds limit what Keys remembers.
type Bounds struct {
	Top      int           // number of exposed keys
	Counters int           // number of counted keys; at least four times Top
	HalfLife time.Duration // time after which a read counts only half
	Now      func() time.Time
}

// Keys counts reads and writes of the most-read keys. It is safe for concurrent use.
type Keys struct {
	mu        sync.Mutex
	top       int
	counters  int
	halfLife  time.Duration
	now       func() time.Time
	origin    time.Time // time at which a read has the weight 1; later reads have more weight
	byName    map[string]*counter
	coldest   coldest
	displaced uint64
	tooLong   uint64
}

// counter counts the reads and writes of one key.
type counter struct {
	name          string
	score         float64 // decides which keys are counted; at least the weighted number of the key's reads
	reads, writes uint64  // numbers of reads and writes since the key got this counter
	place         int     // index in the heap
	exposed       bool
}

// Count has the numbers of reads and writes of one key.
type Count struct {
	Key           string
	Reads, Writes uint64 // numbers since the key got its counter
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
	c := k.byName[string(key)] // looking up string(key) makes no copy of the key
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

// Write counts a write of a key that has a counter. It ignores other keys, so a key that is only
// written is never counted.
func (k *Keys) Write(key []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.byName[string(key)]; c != nil {
		c.writes++
	}
}

// admit gives a key an unused counter, or else the counter of the coldest key.
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

// weight returns the weight of a read at the current time. It doubles with every half-life, which
// is equivalent to halving all scores. Before it becomes too large for the sums, weight divides all
// scores by it and begins again at 1.
func (k *Keys) weight() float64 {
	age := float64(k.now().Sub(k.origin)) / float64(k.halfLife)
	if age > 512 {
		for _, c := range k.coldest { // dividing all scores keeps their order, so the heap stays valid
			c.score = math.Ldexp(c.score, -int(min(age, 1<<20)))
		}
		k.origin, age = k.now(), 0
	}
	return math.Exp2(age)
}

// Top returns the hottest keys, the hottest first, and records that they were exposed.
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

package arrays

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// Meters is a meter array.
type Meters struct{ cells []Meter }

// Meter is one two-rate three-colour meter that works like BMv2's. It has two token buckets, and
// tries the peak bucket first. A packet that finds too few tokens there is red, and takes none from
// the committed bucket. A packet that finds too few tokens in the committed bucket is yellow. A
// meter without configuration returns green.
type Meter struct {
	bytes  bool
	config *target.MeterConfig
	// The bucket of the peak rate, and the bucket of the committed rate.
	buckets [2]bucket
}

type bucket struct {
	rate, burst uint64 // rate in tokens per second, burst in tokens
	tokens      uint64
	// The number of tokens that the rate produced from the clock's zero to the last refill. The
	// field tokens already includes them.
	made uint64
}

// Configure sets the rates and fills both buckets. If c is nil, the meter always returns green.
func (m *Meter) Configure(c *target.MeterConfig) {
	m.config = nil
	if c == nil {
		return
	}
	copied := *c
	m.config = &copied
	m.buckets = [2]bucket{
		{rate: c.Peak.PerSecond, burst: c.Peak.Burst, tokens: c.Peak.Burst},
		{rate: c.Committed.PerSecond, burst: c.Committed.Burst, tokens: c.Committed.Burst},
	}
}

// Color returns the colour of a packet of this many bytes at the time now: 0 for green, 1 for
// yellow, 2 for red.
func (m *Meter) Color(bytes int, now time.Duration) uint64 {
	if m.config == nil {
		return 0
	}
	need := uint64(1)
	if m.bytes {
		need = uint64(bytes)
	}
	for i := range m.buckets {
		if !m.buckets[i].take(need, now) {
			return uint64(2 - i)
		}
	}
	return 0
}

func (b *bucket) take(need uint64, now time.Duration) bool {
	hi, lo := bits.Mul64(uint64(max(now, 0)/time.Microsecond), b.rate)
	made := ^uint64(0)
	if hi < 1e6 {
		made, _ = bits.Div64(hi, lo, 1e6)
	}
	if made > b.made {
		b.tokens = min(b.burst, b.tokens+min(made-b.made, b.burst))
		b.made = made
	}
	if b.tokens < need {
		return false
	}
	b.tokens -= need
	return true
}

// CheckConfig returns an error for configurations that BMv2 refuses. The peak rate must not be
// below the committed rate (RFC 2698, section 2).
func CheckConfig(c *target.MeterConfig) error {
	if c != nil && c.Peak.PerSecond < c.Committed.PerSecond {
		return fmt.Errorf("the peak rate %d is below the committed rate %d: %w", c.Peak.PerSecond,
			c.Committed.PerSecond, target.ErrInvalid)
	}
	return nil
}

// Export returns the meter's configuration, or nil if it has none.
func (m *Meter) Export() *target.MeterConfig {
	if m.config == nil {
		return nil
	}
	c := *m.config
	return &c
}

// Allocate allocates size meters. They count bytes if bytes is set, and otherwise packets.
func (a *Meters) Allocate(size int, bytes bool) {
	a.cells = make([]Meter, size)
	for i := range a.cells {
		a.cells[i].bytes = bytes
	}
}

// Meter returns the meter at i.
func (a *Meters) Meter(i int) *Meter { return &a.cells[i] }

// ColorAt returns the colour that the meter at i gives a packet, if the meter exists.
func (a *Meters) ColorAt(i uint64, bytes int, now time.Duration) (color uint64, ok bool) {
	if i >= uint64(len(a.cells)) {
		return 0, false
	}
	return a.cells[i].Color(bytes, now), true
}

// NewMeter creates a meter that counts bytes if bytes is set, and otherwise packets.
func NewMeter(bytes bool) *Meter { return &Meter{bytes: bytes} }

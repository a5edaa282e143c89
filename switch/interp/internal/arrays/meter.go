package arrays

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// Meters is a meter array.
type Meters struct{ cells []Meter }

// Meter is one two-rate three-colour meter, as BMv2 works it: two token buckets, the peak one asked
// first; a packet that finds too few tokens in one gets its colour (red, then yellow) and leaves
// the other alone. A meter without configuration says green.
type Meter struct {
	bytes  bool
	config *target.MeterConfig
	// The buckets of the peak and the committed rate.
	buckets [2]bucket
}

type bucket struct {
	rate, burst uint64 // tokens per second; tokens
	tokens      uint64
	made        uint64 // tokens made since the clock's zero, of which tokens has its share
}

// Configure sets the rates, with both buckets full. Nil makes the meter say green.
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

// Color is the colour of a packet of so many bytes at the time now: 0 green, 1 yellow, 2 red.
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

// CheckConfig refuses a configuration that BMv2 refuses: the peak rate is not below the committed
// one (RFC 2698, section 2).
func CheckConfig(c *target.MeterConfig) error {
	if c != nil && c.Peak.PerSecond < c.Committed.PerSecond {
		return fmt.Errorf("the peak rate %d is below the committed rate %d: %w", c.Peak.PerSecond,
			c.Committed.PerSecond, target.ErrInvalid)
	}
	return nil
}

// Export is the configuration, or nil.
func (m *Meter) Export() *target.MeterConfig {
	if m.config == nil {
		return nil
	}
	c := *m.config
	return &c
}

// Allocate makes room for meters of bytes, or of packets.
func (a *Meters) Allocate(size int, bytes bool) {
	a.cells = make([]Meter, size)
	for i := range a.cells {
		a.cells[i].bytes = bytes
	}
}

// Meter is the meter at i.
func (a *Meters) Meter(i int) *Meter { return &a.cells[i] }

// ColorAt is the color of a packet by the meter at i, if there is one.
func (a *Meters) ColorAt(i uint64, bytes int, now time.Duration) (color uint64, ok bool) {
	if i >= uint64(len(a.cells)) {
		return 0, false
	}
	return a.cells[i].Color(bytes, now), true
}

// NewMeter makes a meter of bytes, or of packets.
func NewMeter(bytes bool) *Meter { return &Meter{bytes: bytes} }

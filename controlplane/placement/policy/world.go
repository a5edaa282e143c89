package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// Heat is a key's rates of reads and writes, per second.
type Heat struct {
	Reads  float64 `json:"reads"`
	Writes float64 `json:"writes"`
}

// MaxRate is the highest plausible rate, in requests per second. All switches of a network together
// cannot answer as many.
const MaxRate = 1e9

// Valid reports whether both rates are plausible.
func (h Heat) Valid() bool {
	ok := func(x float64) bool { return !math.IsNaN(x) && x >= 0 && x <= MaxRate }
	return ok(h.Reads) && ok(h.Writes)
}

// Chain is a chain that can take keys.
type Chain struct {
	Name  string
	Cell  int  // size in bytes of the sealed cell that a slot holds, including the seal
	Free  int  // number of unused slots
	Ready bool // whether keys can be added and removed now
	// Leaving marks a chain that must not hold any keys. It gets no more keys, and its keys are
	// removed.
	Leaving bool
}

// Value is a key's value in etcd.
type Value struct {
	Known  bool // etcd has been asked, so the other fields are valid
	Absent bool // the key does not exist
	Bytes  int  // length of the value in etcd, in bytes
	Lease  bool // the key is attached to a lease, so etcd deletes it by itself
}

// Key is the known state of one key, placed or not.
type Key struct {
	Name  string // the etcd key, which may contain any bytes
	Heat  Heat
	Heard bool // whether Heat is known
	Value Value
	Chain string    // the chain that holds the key; "" if the key is not placed
	Since time.Time // when the key was placed
	Fault placement.Fault
}

// Placed reports whether the key is placed.
func (k *Key) Placed() bool { return k.Chain != "" }

// Input is everything that the planner knows at one moment.
type Input struct {
	Now    time.Time
	Keys   []Key // the keys, each of them only once
	Chains []Chain
	Rules  *Rules
	// Dictionary is the newest dictionary that gateways have had time to read. It is 0 if there is
	// none. A value that did not fit a cell may fit with a newer dictionary.
	Dictionary uint32
}

// Limits keep the number of moves low. The zero value is not usable, so start with DefaultLimits.
type Limits struct {
	MinScore  float64 // minimum score for a free slot, in reads per second
	WriteCost float64 // number of reads that one write costs
	// factor by which a candidate's score must exceed the score of the key that it replaces; above
	// 1
	ReplaceRatio float64

	// how long a candidate must be hot before it is placed, or a placed key too costly before it is
	// removed
	AdmitAfter   time.Duration
	MinResidency time.Duration // how long a placed key cannot be removed to make room
	Cooldown     time.Duration // how long a removed key cannot be placed again
	Gone         time.Duration // how long a placed key may be absent in etcd before it loses its slot
	// how long a placed key's reads may score less than MinScore before the key loses its slot
	Idle  time.Duration
	Retry time.Duration // how long a key with a fault cannot be placed again

	MovesPerMinute float64
	Burst          int // number of moves that may be made at once after a quiet time

	// Compression is the best compression ratio that placement counts on. Placement does not try a
	// value of more than Compression cells. If it tries a value that does not fit, the slot reports
	// that (placement.ValueTooLarge).
	Compression float64
}

// overhead is the number of bytes that a slot holds in addition to the value while revisions are
// small. They are its kind, three revisions as varints (client/etcd/slotcodec), and the seal. If
// the overhead is larger, placement finds out by trying whether a value fits.
const overhead = 8 + slotcodec.SealOverhead

// DefaultLimits returns limits that suit rates measured over 10 to 60 seconds.
func DefaultLimits() Limits {
	return Limits{
		MinScore: 1, WriteCost: 3, ReplaceRatio: 1.5,
		AdmitAfter: 5 * time.Second, Gone: time.Minute, MinResidency: time.Minute,
		Cooldown: time.Minute, Idle: 10 * time.Minute, Retry: time.Hour,
		MovesPerMinute: 600, Burst: 100, Compression: 8,
	}
}

// Check reports invalid limits.
func (l Limits) Check() error {
	switch {
	case !(l.MinScore > 0):
		return fmt.Errorf("a key that is worth a slot must be read: the least score is %v reads a second, and must be above 0", l.MinScore)
	case !(l.WriteCost >= 0):
		return fmt.Errorf("a write costs %v reads: it must not be below 0", l.WriteCost)
	case !(l.ReplaceRatio > 1):
		return fmt.Errorf("a candidate must be hotter by a factor above 1, which %v is not: two keys of equal heat would take turns", l.ReplaceRatio)
	case l.AdmitAfter < 0 || l.Gone < 0 || l.MinResidency < 0 || l.Cooldown < 0 || l.Idle <= 0 || l.Retry < 0:
		return fmt.Errorf("the limits have a time below 0, or no idle time")
	case !(l.MovesPerMinute > 0) || l.Burst < 2:
		return fmt.Errorf("%v moves a minute, %d at once: it takes more than none, and two to replace a key", l.MovesPerMinute, l.Burst)
	case !(l.Compression >= 1):
		return fmt.Errorf("compression by a factor of %v: it must be 1 or more", l.Compression)
	}
	return nil
}

// Score returns the benefit of placing a key, in reads per second.
func (l Limits) Score(h Heat) float64 { return h.Reads - l.WriteCost*h.Writes }

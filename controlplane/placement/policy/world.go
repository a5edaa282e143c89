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

// MaxRate is the highest plausible rate, in requests per second. It is higher than all switches of
// a network can answer.
const MaxRate = 1e9

// Valid reports whether both rates are plausible.
func (h Heat) Valid() bool {
	ok := func(x float64) bool { return !math.IsNaN(x) && x >= 0 && x <= MaxRate }
	return ok(h.Reads) && ok(h.Writes)
}

// Chain is a chain that can take keys.
type Chain struct {
	Name  string
	Cell  int  // bytes that a slot holds for a sealed cell, including the seal
	Free  int  // unused slots
	Ready bool // keys can be added and removed now
	// Leaving marks a chain that must hold no keys: it gets none, and its keys are removed.
	Leaving bool
}

// Value is a key's value in etcd.
type Value struct {
	Known  bool // the other fields are known: etcd has been asked
	Absent bool // there is no such key
	Bytes  int  // length of the value in etcd
	Lease  bool // the key is attached to a lease, so etcd deletes it by itself
}

// Key is the known state of one key, placed or not.
type Key struct {
	Name  string // the etcd key: any bytes
	Heat  Heat
	Heard bool // Heat is known
	Value Value
	Chain string    // its chain; "": none
	Since time.Time // when it was placed
	Fault placement.Fault
}

// Placed says whether the key is placed.
func (k *Key) Placed() bool { return k.Chain != "" }

// Input is everything that is known at one moment.
type Input struct {
	Now    time.Time
	Keys   []Key // each name only once
	Chains []Chain
	Rules  *Rules
	// Dictionary is the newest dictionary that gateways have had time to read; 0: none. A value
	// that did not fit a cell may fit with a newer one.
	Dictionary uint32
}

// Limits keep the number of moves low. The zero value is not usable: start with DefaultLimits.
type Limits struct {
	MinScore     float64 // minimum score for a free slot, in reads per second
	WriteCost    float64 // how many reads one write costs
	ReplaceRatio float64 // a candidate's score must exceed the replaced key's by this factor; above 1

	AdmitAfter   time.Duration // how long a candidate must be hot, or a placed key too costly, before it moves
	MinResidency time.Duration // how long a placed key cannot be removed to make room
	Cooldown     time.Duration // how long a removed key cannot be placed again
	Gone         time.Duration // how long a placed key may be absent in etcd before it loses its slot
	Idle         time.Duration // how long a placed key may score less than MinScore in reads before it loses its slot
	Retry        time.Duration // how long a key with a fault cannot be placed again

	MovesPerMinute float64
	Burst          int // moves that may be made at once after a quiet time

	// Compression is the best compression ratio that placement counts on: it does not try a value
	// of more than Compression cells. If it tries a value that does not fit, the slot shows that
	// (placement.ValueTooLarge).
	Compression float64
}

// overhead is what a slot holds in addition to the value, in bytes, while revisions are small: its
// kind, three revisions as varints (client/etcd/slotcodec), and the seal. Whether a value fits
// with a larger overhead is found out by trying.
const overhead = 8 + slotcodec.SealOverhead

// DefaultLimits suit rates measured over 10 to 60 seconds.
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

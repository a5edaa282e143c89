package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/netcraq/netcraq/api/slotcodec"
)

// Heat is how often a key is asked for, per second.
type Heat struct {
	Reads  float64 `json:"reads"`
	Writes float64 `json:"writes"`
}

// MaxRate is the highest rate that is believed, in requests a second: above what all switches of a network answer.
const MaxRate = 1e9

// Valid says whether both rates can be.
func (h Heat) Valid() bool {
	ok := func(x float64) bool { return !math.IsNaN(x) && x >= 0 && x <= MaxRate }
	return ok(h.Reads) && ok(h.Writes)
}

// Chain is a chain that can take keys.
type Chain struct {
	Name  string
	Cell  int  // bytes that a slot holds for a sealed cell, seal and all
	Free  int  // slots that nobody has
	Ready bool // keys can be added and removed now
	// Leaving is a chain that is to hold no keys: it gets none, and those that it has are removed.
	Leaving bool
}

// Value is what etcd holds for a key.
type Value struct {
	Known  bool // etcd was asked
	Absent bool // there is no such key
	Bytes  int  // of the value as etcd has it
	Lease  bool // the key is attached to a lease: etcd deletes it by itself
}

// Fault is why a key cannot stay placed, found by looking at its slot.
type Fault string

// The faults.
const (
	NoFault  Fault = ""
	Unfit    Fault = "unfit"    // a gateway could not put the value into the slot
	Bypassed Fault = "bypassed" // etcd has a newer value than the slot: somebody writes past the gateways
	Broken   Fault = "broken"   // the slot is gone, or belongs to another placement
	Mute     Fault = "mute"     // a gateway cannot write the key, because its slot does not answer
	Forged   Fault = "forged"   // the slot has what no gateway has written
)

// Key is what is known about one key, placed or not.
type Key struct {
	Name  string // the etcd key: any bytes
	Heat  Heat
	Heard bool // Heat is known
	Value Value
	Chain string    // where it is placed; "": nowhere
	Since time.Time // when it was placed
	Fault Fault
}

// Placed says whether the key is placed.
func (k *Key) Placed() bool { return k.Chain != "" }

// Input is all that is known at one moment.
type Input struct {
	Now    time.Time
	Keys   []Key // each name once
	Chains []Chain
	Rules  *Rules
	// Dictionary is the newest version of a dictionary that gateways have had time to read; 0: there is none. What did not fit a cell may fit with a newer one.
	Dictionary uint32
}

// Limits keep moves few. The zero value is not usable: begin with DefaultLimits.
type Limits struct {
	Worth     float64 // score from which a key is worth a free slot, in reads a second
	WriteCost float64 // reads that one write costs
	Factor    float64 // by which a newcomer must be hotter than the key that goes for it; above 1

	Dwell time.Duration // how long a newcomer must be hot, and a placed key not worth its slot because of its writes
	Stay  time.Duration // how long a key that was placed is not removed to make room
	Rest  time.Duration // how long a key that was removed is not placed again
	Gone  time.Duration // how long a placed key may not exist before its slot is given back
	Idle  time.Duration // how long a placed key may be read less than Worth before its slot is given back
	Retry time.Duration // how long a key with a fault is not placed again

	MovesPerMinute float64
	Burst          int // moves that may be made at once after a quiet time

	// Compression is how much smaller a value can be hoped to become: a value of more than Compression cells is not tried. One that is tried and does not
	// fit is known by its slot (Unfit).
	Compression float64
}

// overhead is what a slot holds beside the value, in bytes, while revisions are small: its kind and three revisions as varints (api/slotcodec), and the seal. A value that does not fit with more is
// found out by trying.
const overhead = 8 + slotcodec.SealOverhead

// DefaultLimits suit rates measured over 10 to 60 seconds.
func DefaultLimits() Limits {
	return Limits{
		Worth: 1, WriteCost: 3, Factor: 1.5,
		Dwell: 5 * time.Second, Gone: time.Minute, Stay: time.Minute, Rest: time.Minute, Idle: 10 * time.Minute, Retry: time.Hour,
		MovesPerMinute: 600, Burst: 100, Compression: 8,
	}
}

// Check says what is wrong with limits.
func (l Limits) Check() error {
	switch {
	case !(l.Worth > 0):
		return fmt.Errorf("a key that is worth a slot must be read: worth is %v reads a second, and must be above 0", l.Worth)
	case !(l.WriteCost >= 0):
		return fmt.Errorf("a write costs %v reads: it must not be below 0", l.WriteCost)
	case !(l.Factor > 1):
		return fmt.Errorf("a newcomer must be hotter by a factor above 1, which %v is not: two keys of equal heat would take turns", l.Factor)
	case l.Dwell < 0 || l.Gone < 0 || l.Stay < 0 || l.Rest < 0 || l.Idle <= 0 || l.Retry < 0:
		return fmt.Errorf("the limits have a time below 0, or no idle time")
	case !(l.MovesPerMinute > 0) || l.Burst < 2:
		return fmt.Errorf("%v moves a minute, %d at once: it takes more than none, and two to replace a key", l.MovesPerMinute, l.Burst)
	case !(l.Compression >= 1):
		return fmt.Errorf("compression by a factor of %v: it must be 1 or more", l.Compression)
	}
	return nil
}

// Score is what placing a key saves, in reads a second.
func (l Limits) Score(h Heat) float64 { return h.Reads - l.WriteCost*h.Writes }

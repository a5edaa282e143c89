package policy

import "fmt"

// Op is the operation of a move.
type Op string

// The moves.
const (
	Place  Op = "place"
	Remove Op = "remove"
)

// Move adds a key to the network, or removes one.
type Move struct {
	Op     Op     `json:"op"`
	Key    []byte `json:"key"` // any bytes
	Chain  string `json:"chain"`
	Code   Code   `json:"code"`
	Reason string `json:"reason"`
}

// Code is the kind of a verdict, for programs.
type Code string

// The kinds of verdicts about keys that are placed and stay placed:
const (
	Pinned Code = "pinned"  // by an operator
	Serves Code = "serves"  // it is worth its slot
	Quiet  Code = "quiet"   // it is read less than is worth a slot, and stays for a while
	Costly Code = "costly"  // its writes cost more than its reads save, and it stays for a moment
	NoRate Code = "no-rate" // its heat is not known
)

// Verdicts about keys that are not placed and stay so:
const (
	Own             Code = "own"              // the gateways' own
	Excluded        Code = "excluded"         // by a rule
	Leased          Code = "leased"           // attached to a lease
	TooLarge        Code = "too-large"        // too large for every chain's cells
	ValueTooLarge   Code = "value-too-large"  // placing it failed: the value does not fit
	Bypassed        Code = "bypassed"         // a writer bypasses the gateways
	SlotLost        Code = "slot-lost"        // its slot was lost
	SlotUnreachable Code = "slot-unreachable" // its slot did not answer a gateway
	Forged          Code = "forged"           // its slot had a cell that no gateway has written
	Narrow          Code = "narrow"           // no chain's slots hold a sealed cell
	KeyAbsent       Code = "key-absent"       // it does not exist
	Unknown         Code = "unknown"          // etcd has not been asked yet, or its heat is not known
	Cold            Code = "cold"             // it is not read enough
	Written         Code = "written"          // its writes would cost more than its reads save
	Warming         Code = "warming"          // hot enough, but not for long enough
	Full            Code = "full"             // all slots are in use by keys that are hotter, or not much colder
	Resting         Code = "resting"          // it was removed a short while ago
	Limited         Code = "limited"          // it waits for the budget of moves
	NoChain         Code = "no-chain"         // no chain is ready
	NotSampled      Code = "not-sampled"      // the source of heat has not named it
)

// Verdicts with a move:
const (
	Hot      Code = "hot"      // placed for its heat
	MakeRoom Code = "room"     // removed to make room
	TooCold  Code = "too-cold" // removed because it is hardly read
	Leaving  Code = "leaving"  // removed because its chain is to hold no keys
)

// formerly maps the codes of earlier versions, which plans in etcd may contain.
var formerly = map[string]Code{"silent": NoRate, "unfit": ValueTooLarge, "broken": SlotLost, "mute": SlotUnreachable, "absent": KeyAbsent,
	"unheard": NotSampled}

// UnmarshalText implements encoding.TextUnmarshaler. It accepts former codes, because an upgraded
// controller reads its earlier records.
func (c *Code) UnmarshalText(text []byte) error {
	if now, ok := formerly[string(text)]; ok {
		*c = now
		return nil
	}
	*c = Code(text)
	return nil
}

// Verdict says why a key is placed or not.
type Verdict struct {
	Key    string
	Chain  string // the key's chain before Move
	Heat   Heat
	Heard  bool
	Score  float64 // valid if Heard
	Code   Code
	Reason string
	Move   Op // the resulting move; "": none
}

func rate(x float64) string {
	switch {
	case x >= 100 || x <= -100:
		return fmt.Sprintf("%.0f/s", x)
	case x >= 10 || x <= -10:
		return fmt.Sprintf("%.1f/s", x)
	}
	return fmt.Sprintf("%.2f/s", x)
}

func bytesOf(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

package policy

import "fmt"

// Op is the operation of a move.
type Op string

// These are the operations of moves.
const (
	Place  Op = "place"
	Remove Op = "remove"
)

// Move adds a key to the network, or removes one.
type Move struct {
	Op     Op     `json:"op"`
	Key    []byte `json:"key"` // the key, which may contain any bytes
	Chain  string `json:"chain"`
	Code   Code   `json:"code"`
	Reason string `json:"reason"`
}

// Code is the kind of a verdict, for programs.
type Code string

// These verdicts are for keys that are placed and stay placed.
const (
	Pinned Code = "pinned"  // an operator has pinned the key
	Serves Code = "serves"  // the key is worth its slot
	Quiet  Code = "quiet"   // the key is read too little to be worth a slot, but stays for a while
	Costly Code = "costly"  // the key's writes cost more than its reads save, but it stays for a moment
	NoRate Code = "no-rate" // the key's heat is not known
)

// These verdicts are for keys that are not placed and stay so.
const (
	Own             Code = "own"              // the key belongs to the gateways
	Excluded        Code = "excluded"         // a rule excludes the key
	Leased          Code = "leased"           // the key is attached to a lease
	TooLarge        Code = "too-large"        // the value is too large for every chain's cells
	ValueTooLarge   Code = "value-too-large"  // placing the key failed because the value does not fit
	Bypassed        Code = "bypassed"         // a writer bypasses the gateways
	SlotLost        Code = "slot-lost"        // the key's slot was lost
	SlotUnreachable Code = "slot-unreachable" // the key's slot did not answer a gateway
	Forged          Code = "forged"           // the key's slot had a cell that no gateway has written
	Narrow          Code = "narrow"           // no chain's slots hold a sealed cell
	KeyAbsent       Code = "key-absent"       // the key does not exist
	Unknown         Code = "unknown"          // etcd has not been asked yet, or the key's heat is not known
	Cold            Code = "cold"             // the key is not read enough
	Written         Code = "written"          // the key's writes would cost more than its reads save
	Warming         Code = "warming"          // the key is hot enough now, but has not been for long enough
	Full            Code = "full"             // keys that are hotter, or not much colder, use all slots
	Resting         Code = "resting"          // the key was removed a short while ago
	Limited         Code = "limited"          // the key waits for the budget of moves
	NoChain         Code = "no-chain"         // no chain is ready
	NotSampled      Code = "not-sampled"      // the source of heat has not reported the key
)

// These verdicts come with a move.
const (
	Hot      Code = "hot"      // the key is placed because of its heat
	MakeRoom Code = "room"     // the key is removed to make room
	TooCold  Code = "too-cold" // the key is removed because it is hardly read
	Leaving  Code = "leaving"  // the key is removed because its chain must not hold any keys
)

// formerly maps codes of earlier versions to present codes. Plans in etcd may contain former codes.
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
	Score  float64 // valid if Heard is true
	Code   Code
	Reason string
	Move   Op // the resulting move; "" if there is none
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

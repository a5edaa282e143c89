package reference

import (
	"math/rand/v2"
	"sync"

	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
)

// Config is the target's part of how a program's statements are run.
type Config struct {
	// PSA says that the program is written for the Portable Switch Architecture.
	PSA bool
	// mark_to_drop sets EgressSpec to DropPort, and MulticastGroup to 0.
	EgressSpec, MulticastGroup packet.Field
	DropPort                   uint32
	// Log gets the program's log_msg messages; nil discards them.
	Log func(string)
	// Observer hears of each statement.
	Observer *packetevents.Observer
	// Random is the source of the program's random numbers.
	Random *rand.PCG
	// PacketLock is held while a packet is in the program.
	PacketLock *sync.Mutex
}

func (c *Config) say(what string) {
	if c.Log != nil {
		c.Log(what)
	}
}

// Program is a compiled program and its data between packets. Everything is indexed as in the
// program's JSON; the lists of fields are by their ids.
type Program struct {
	Actions        []*Action
	Calculations   []*calculation.Calculation
	FieldLists     map[int][]packet.Run
	LearnLists     map[int][]expression.WideNumber // the values of each learn list
	Tables         []*matchtables.Table
	ActionProfiles []*matchtables.ActionProfile
	Registers      []*arrays.Register
	Counters       []*arrays.Counter
	Meters         []*arrays.Meters
	ValueSets      []*matchtables.ValueSet
}

// Compiler compiles the statements of a program into its Program.
type Compiler struct {
	*expression.Compiler
	*Program
	Config
	// KeyLanes is how many lanes the longest parser key has.
	KeyLanes int

	errs map[string]uint64 // value of each error
	// by ExternInstance.Index: the lane of scratch of an InternetChecksum
	checksums []int
}

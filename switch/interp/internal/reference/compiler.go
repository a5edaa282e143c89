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

// Config is what the engine provides for executing a program's statements.
type Config struct {
	// PSA is set if the program is written for the Portable Switch Architecture.
	PSA bool
	// mark_to_drop sets EgressSpec to DropPort, and MulticastGroup to 0.
	EgressSpec, MulticastGroup packet.Field
	DropPort                   uint32
	// Log receives the program's log_msg messages. If it is nil, messages are discarded.
	Log func(string)
	// Observer receives a report of each statement.
	Observer *packetevents.Observer
	// Random is the source of the program's random numbers.
	Random *rand.PCG
	// PacketLock is the mutex that is held while a packet is in the program.
	PacketLock *sync.Mutex
}

func (c *Config) say(what string) {
	if c.Log != nil {
		c.Log(what)
	}
}

// Program is a compiled program with the data that it keeps between packets. Slices are indexed as
// in the program's JSON, and lists of fields by their ids.
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
	// KeyLanes is the number of lanes of the longest parser key.
	KeyLanes int

	errs map[string]uint64 // value of each error by its name
	// The scratch lane of each InternetChecksum, by ExternInstance.Index.
	checksums []int
}

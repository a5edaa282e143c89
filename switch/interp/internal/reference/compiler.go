package reference

import (
	"math/rand/v2"
	"sync"

	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/observe"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/tables"
)

// Config is what the target decides of how a program's statements are run.
type Config struct {
	PSA      bool // it is written for the Portable Switch Architecture
	DropPort uint32
	// what mark_to_drop sets of v1model's metadata: to dropPort, and to 0
	EgressSpec, MulticastGroup packet.Field
	Log                        func(string) // nil: nobody reads what the program says
	Observer                   *observe.Observer
	Random                     *rand.PCG
	PacketLock                 *sync.Mutex // held while a packet is in the program
}

func (c *Config) say(what string) {
	if c.Log != nil {
		c.Log(what)
	}
}

// Program is a program, compiled, and what it keeps.
type Program struct {
	Actions      []*Action
	Calculations []*calculation.Calculation
	FieldLists   map[int][]packet.Run
	LearnLists   map[int][]expression.WideNumber // the values of each learn list
	Tables       []*tables.Table
	Profiles     []*tables.Profile
	Registers    []*arrays.Register
	Counters     []*arrays.Counter
	Meters       []*arrays.Meters
	ValueSets    []*tables.ValueSet
}

// Compiler compiles the statements of a program.
type Compiler struct {
	*expression.Compiler
	*Program
	Config
	errs map[string]uint64 // value of each error
	// by ExternInstance.Index: the lane of scratch of an InternetChecksum
	checksums []int
	KeyLanes  int // lanes of the longest parser key
}

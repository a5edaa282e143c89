package interp

import (
	"math/rand/v2"
	"sync"
)

// config is what the target decides of how a program's statements are run.
type config struct {
	psa      bool // it is written for the Portable Switch Architecture
	dropPort uint32
	// what mark_to_drop sets of v1model's metadata: to dropPort, and to 0
	egressSpec, mcastGrp stdField
	log                  func(string) // nil: nobody reads what the program says
	obs                  *observer
	rand                 *rand.PCG
	packets              *sync.Mutex // held while a packet is in the program
}

func (c *config) say(what string) {
	if c.log != nil {
		c.log(what)
	}
}

// program is a program, compiled, and what it keeps.
type program struct {
	actions   []*action
	calcs     []*calculation
	fieldList map[int][]laneRun
	learn     map[int][]wideFn // the values of each learn list
	tables    []*table
	profiles  []*profile
	registers []*registerArray
	counters  []*counterArray
	meters    []*meterArray
	valueSets []*valueSet
}

// compiler compiles the statements of a program.
type compiler struct {
	*exprCompiler
	*program
	config
	errs map[string]uint64 // value of each error
	// by ExternInstance.Index: the lane of scratch of an InternetChecksum
	checksums []int
	keyLanes  int // lanes of the longest parser key
}

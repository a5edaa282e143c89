package memory

import (
	"runtime"
)

// Offsets from Plan.Epoch in the state.
const (
	EpochDropped = 8  // number of packets that Barrier caused to be dropped
	OldestEpoch  = 16 // packets that began before this epoch may not use the registers
)

// Values at Plan.Mode in the state. They say how packets lock the registers (locking/stripes.go).
const (
	ModeOne     = 0 // packets take the global lock
	ModeStripes = 1 // packets take stripes
	ModeBoth    = 2 // packets take the global lock and then all stripes
)

// HasVersions reports whether writers increment a version of the registers.
func (p *Plan) HasVersions() bool { return len(p.Prog.Registers) > 0 && runtime.GOARCH == "amd64" }

package memory

import (
	"runtime"
)

// Offsets from Plan.Epoch in the state.
const (
	EpochDropped = 8  // number of packets that were dropped because of Barrier
	OldestEpoch  = 16 // packets that began in an earlier epoch may not use the registers
)

// In the state, at Plan.Mode: how packets lock the registers (locking/stripes.go).
const (
	ModeOne     = 0 // the one lock
	ModeStripes = 1 // stripes
	ModeBoth    = 2 // the one lock, and then all stripes
)

// HasVersions reports whether registers have versions, which writers increment.
func (p *Plan) HasVersions() bool { return len(p.Prog.Registers) > 0 && runtime.GOARCH == "amd64" }

package locking

import "github.com/netcraq/netcraq/switch/ebpf/compile/emit"

// Locks emits the code that takes and releases locks.
type Locks struct {
	*emit.Emitter
	ByPaths bool // ingress is compiled path by path, so packets may lock stripes
}

// New returns the Locks that emits the locks of a program.
func New(e *emit.Emitter) *Locks { return &Locks{Emitter: e} }

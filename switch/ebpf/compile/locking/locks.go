package locking

import "github.com/netcraq/netcraq/switch/ebpf/compile/emit"

// Locks writes the instructions that take and release locks.
type Locks struct {
	*emit.Emitter
	ByPaths bool // ingress was compiled by its paths, so packets may take stripes
}

// New makes the writer of a program's locks.
func New(e *emit.Emitter) *Locks { return &Locks{Emitter: e} }

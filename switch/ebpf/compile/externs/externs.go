package externs

import (
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/headers"
	"github.com/netcraq/netcraq/switch/ebpf/compile/locking"
)

// Externs emits calls of externs.
type Externs struct {
	*emit.Emitter
	locks   *locking.Locks
	headers *headers.Headers
}

// New returns the Externs that emits a program's calls of externs.
func New(e *emit.Emitter, l *locking.Locks, h *headers.Headers) *Externs {
	return &Externs{e, l, h}
}

package tables

import (
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/externs"
	"github.com/netcraq/netcraq/switch/ebpf/compile/hashing"
)

// Tables emits the code of table lookups.
type Tables struct {
	*emit.Emitter
	hashes  *hashing.Hashes
	externs *externs.Externs
}

// New returns the Tables that emits a program's lookups.
func New(e *emit.Emitter, h *hashing.Hashes, x *externs.Externs) *Tables { return &Tables{e, h, x} }

package hashing

import "github.com/netcraq/netcraq/switch/ebpf/compile/emit"

// Hashes writes hashes and checksums.
type Hashes struct{ *emit.Emitter }

// New makes the writer of a program's hashes.
func New(e *emit.Emitter) *Hashes { return &Hashes{e} }

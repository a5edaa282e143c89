package hashing

import "github.com/netcraq/netcraq/switch/ebpf/compile/emit"

// Hashes emits the code of hashes and checksums.
type Hashes struct{ *emit.Emitter }

// New returns the Hashes that emits a program's hashes and checksums.
func New(e *emit.Emitter) *Hashes { return &Hashes{e} }

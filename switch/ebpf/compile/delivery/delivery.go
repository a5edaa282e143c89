package delivery

import "github.com/netcraq/netcraq/switch/ebpf/compile/emit"

// Delivery emits the code that delivers frames.
type Delivery struct{ *emit.Emitter }

// New returns the Delivery that emits a program's delivery code.
func New(e *emit.Emitter) *Delivery { return &Delivery{e} }

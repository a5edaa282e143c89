package delivery

import "github.com/netcraq/netcraq/switch/ebpf/compile/emit"

// Delivery writes the code that delivers frames.
type Delivery struct{ *emit.Emitter }

// New makes the writer of a program's delivery.
func New(e *emit.Emitter) *Delivery { return &Delivery{e} }

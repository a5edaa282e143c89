package headers

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/delivery"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
)

// Headers writes the instructions that move headers.
type Headers struct {
	*emit.Emitter
	delivery *delivery.Delivery
	// ParserPrimitive writes a primitive that the parser calls; package control provides it.
	ParserPrimitive func(*bmv2json.Primitive)
}

// New makes the writer of a program's headers.
func New(e *emit.Emitter, d *delivery.Delivery) *Headers {
	return &Headers{Emitter: e, delivery: d}
}

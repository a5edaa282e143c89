package headers

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/delivery"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
)

// Headers emits the code that moves headers.
type Headers struct {
	*emit.Emitter
	delivery *delivery.Delivery
	// ParserPrimitive emits a primitive that the parser calls. Package control provides it.
	ParserPrimitive func(*bmv2json.Primitive)
}

// New returns the Headers that emits a program's parser, deparser and header operations.
func New(e *emit.Emitter, d *delivery.Delivery) *Headers {
	return &Headers{Emitter: e, delivery: d}
}

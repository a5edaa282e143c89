package control

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/delivery"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/externs"
	"github.com/netcraq/netcraq/switch/ebpf/compile/hashing"
	"github.com/netcraq/netcraq/switch/ebpf/compile/headers"
	"github.com/netcraq/netcraq/switch/ebpf/compile/locking"
	"github.com/netcraq/netcraq/switch/ebpf/compile/paths"
	"github.com/netcraq/netcraq/switch/ebpf/compile/tables"
)

// Control emits the code of pipelines.
type Control struct {
	*emit.Emitter
	locks    *locking.Locks
	hashes   *hashing.Hashes
	delivery *delivery.Delivery
	headers  *headers.Headers
	externs  *externs.Externs
	tables   *tables.Tables
	pipeline *pipelineState
	Steps    []*paths.Step // the steps of ingress, if ingress is compiled path by path
}

// New returns the Control that emits a program's pipelines. It also emits the primitives that the
// parser calls.
func New(e *emit.Emitter, l *locking.Locks, hs *hashing.Hashes, d *delivery.Delivery,
	h *headers.Headers) *Control {
	x := externs.New(e, l, h)
	t := &Control{Emitter: e, locks: l, hashes: hs, delivery: d, headers: h, externs: x,
		tables: tables.New(e, hs, x)}
	h.ParserPrimitive = func(q *bmv2json.Primitive) { t.primitive(q, "") }
	return t
}

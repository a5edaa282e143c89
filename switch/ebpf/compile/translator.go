package compile

import (
	"github.com/netcraq/netcraq/switch/ebpf/compile/control"
	"github.com/netcraq/netcraq/switch/ebpf/compile/delivery"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/hashing"
	"github.com/netcraq/netcraq/switch/ebpf/compile/headers"
	"github.com/netcraq/netcraq/switch/ebpf/compile/locking"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/compile/paths"
)

// translator translates a planned program to instructions for one hook.
type translator struct {
	*emit.Emitter
	locks    *locking.Locks
	hashes   *hashing.Hashes
	delivery *delivery.Delivery
	headers  *headers.Headers
	control  *control.Control
	// fields that ingress reads before setting them; nil stands for all fields
	live *paths.FieldSet
}

func newTranslator(p *memory.Plan, h emit.Hook, f emit.Maps, s emit.Settings) *translator {
	e := emit.New(p, h, f, s)
	t := &translator{Emitter: e, locks: locking.New(e), hashes: hashing.New(e), delivery: delivery.New(e)}
	t.headers = headers.New(e, t.delivery)
	t.control = control.New(e, t.locks, t.hashes, t.delivery, t.headers)
	return t
}

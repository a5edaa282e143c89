package interp

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
	"github.com/netcraq/netcraq/switch/interp/internal/vm"
)

// controlFlow is ingress or egress. It runs as byte code or, if somebody may watch, statement by
// statement.
type controlFlow struct {
	id   int // the pipeline's id in events
	code *vm.Code
	flow *reference.Flow
}

// run processes a packet.
func (f *controlFlow) run(p *Pipeline, st *packet.State) {
	if f.code != nil {
		f.code.Run(st)
		return
	}
	p.obs.Event(st, packetevents.PipelineStart, f.id, 0)
	f.flow.Run(st)
	p.obs.Event(st, packetevents.PipelineDone, f.id, 0)
}

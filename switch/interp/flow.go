package interp

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
	"github.com/netcraq/netcraq/switch/interp/internal/vm"
)

// controlFlow is the ingress or egress pipeline. It runs as byte code or, if somebody may watch it,
// statement by statement.
type controlFlow struct {
	id   int // the pipeline's id in events
	code *vm.Code
	flow *reference.Flow
}

// run runs a packet through the control flow.
func (f *controlFlow) run(p *Pipeline, st *packet.State) {
	if f.code != nil {
		f.code.Run(st)
		return
	}
	p.obs.Event(st, packetevents.PipelineStart, f.id, 0)
	f.flow.Run(st)
	p.obs.Event(st, packetevents.PipelineDone, f.id, 0)
}

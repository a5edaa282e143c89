package world

import (
	"fmt"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// overheard is a client's latest request.
type overheard struct {
	Client *Client
	Packet *wire.Packet
}

// overhear notes a client's request, so that hostile hosts can use it.
func (w *World) overhear(c *Client, payload []byte) {
	p := new(wire.Packet)
	if w.Attacked && p.Unmarshal(payload, compiled.Profile) == nil {
		w.Overheard = &overheard{c, p}
	}
}

// intrusion checks a frame that reaches a hostile host. Certain answers must not reach it.
func (w *World) intrusion(h *topology.Host, frame []byte) {
	_, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, compiled.Profile) != nil || len(w.Intrusions) > 0 {
		return
	}
	w.Cover.Count("hostile.answered", 1)
	// A refusal tells the host nothing, because it only repeats the contents of the request.
	told := p.Op.IsReply() && p.Key != shapes.SharedKey && (p.Status == wire.OK || p.Status == wire.CASFailed ||
		p.Status == wire.Superseded)
	if h.Principal == "" || told {
		w.Intrusions = append(w.Intrusions, judge.Violation{Kind: judge.Intrusion, Key: p.Key,
			What: fmt.Sprintf("%s, which may not use it, was told %v", h.Name, &p)})
	}
}

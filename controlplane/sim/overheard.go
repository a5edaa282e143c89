package sim

import (
	"fmt"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// overheard is the last request that a client has sent.
type overheard struct {
	client *client
	packet *wire.Packet
}

// overhear notes what a client sends.
func (w *world) overhear(c *client, payload []byte) {
	p := new(wire.Packet)
	if w.attacked && p.Unmarshal(payload, profile) == nil {
		w.overheard = &overheard{c, p}
	}
}

// intrusion notes what must not have come to a hostile host.
func (w *world) intrusion(h *topology.Host, frame []byte) {
	_, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, profile) != nil || len(w.intrusions) > 0 {
		return
	}
	w.cover.add("hostile.answered", 1)
	// A refusal has what was sent in it.
	told := p.Op.IsReply() && p.Key != sharedKey && (p.Status == wire.OK || p.Status == wire.CASFailed ||
		p.Status == wire.Superseded)
	if h.Principal == "" || told {
		w.intrusions = append(w.intrusions, Violation{Kind: Intrusion, Key: p.Key, What: fmt.Sprintf("%s, which may not use it, was told %v", h.Name, &p)})
	}
}

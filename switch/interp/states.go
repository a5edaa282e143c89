package interp

import (
	"time"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
)

// get takes a packet state from the free list.
func (p *Pipeline) get(now time.Duration) *packet.State {
	var st *packet.State
	if n := len(p.free); n > 0 {
		st, p.free = p.free[n-1], p.free[:n-1]
	} else {
		st = packet.NewState(p.lay)
	}
	st.Now = now
	return st
}

// put returns a packet state to the free list.
func (p *Pipeline) put(st *packet.State) {
	st.Frame, st.Payload, st.Parameters = nil, nil, nil
	p.free = append(p.free, st)
}

// leave adds a frame to the buffer of outgoing frames.
func (p *Pipeline) leave(b *Buffer, st *packet.State, frame []byte) {
	frame = frame[:min(len(frame), st.TruncateTo)]
	if p.obs.HasTrace() {
		p.obs.Tracef("Transmitting packet of %d bytes out of port %d", len(frame), st.EgressPort)
	}
	p.obs.Event(st, packetevents.PacketOut, int(st.EgressPort), 0)
	b.Outs = append(b.Outs, Out{Port: st.EgressPort, Frame: frame})
}

// newPacket returns a packet with the given bytes. It takes the port and the other arrival data
// from st.
func (p *Pipeline) newPacket(st *packet.State, frame []byte) *packet.State {
	c := p.get(st.Now)
	c.Clear()
	c.IngressPort, c.ReceivedLength, c.Frame, c.Length = st.IngressPort, st.ReceivedLength, frame, len(frame)
	p.obs.NameCopy(c, st, frame)
	return c
}

package interp

import (
	"time"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/target"
)

// psaRecirculate is the port that sends a packet back to ingress (PSA_PORT_RECIRCULATE).
const psaRecirculate = 0xfffffffa

// The values of PSA_PacketPath_t.
const (
	psaNormal = iota
	psaUnicast
	psaMulticast
	psaCloneI2E
	psaCloneE2E
	psaResubmit
	psaRecirculated
)

// arrive sets a packet's ingress metadata.
func (a *psa) arrive(st *packet.State, port uint32, path uint64) {
	a.inPort.Set(st, uint64(port))
	a.inPath.Set(st, path)
}

// receivePSA runs a packet through ingress, and passes it on to the packet replication engine.
func (p *Pipeline) receivePSA(b *Buffer, st *packet.State) {
	a := p.psa
	a.ingressTime.Set(st, uint64(st.Now/time.Microsecond))
	a.ingressErr.Set(st, p.parser.Run(st))
	a.ingressPort.Set(st, a.inPort.Get(st))
	a.ingressPath.Set(st, a.inPath.Get(st))
	a.class.Set(st, 0)
	a.clone.Set(st, 0)
	a.drop.Set(st, 1)
	a.resubmit.Set(st, 0)
	a.group.Set(st, 0)
	p.obs.TraceStep("Pipeline 'ingress'")
	p.ingress.run(p, st)
	if st.Dropped {
		p.put(st)
		return
	}
	if a.clone.Get(st) != 0 { // a dropped packet is cloned, too
		p.clonePSA(st, uint32(a.session.Get(st)), st.Frame, psaCloneI2E)
	}
	switch {
	case a.drop.Get(st) != 0:
		p.obs.TraceStep("Dropping packet at the end of ingress")
	case a.resubmit.Get(st) != 0:
		c := p.newPacket(st, st.Frame)
		a.arrive(c, uint32(a.inPort.Get(st)), psaResubmit)
		p.input = append(p.input, c)
	default:
		class := a.class.Get(st)
		frame := b.deparse(&p.psa.ingressDeparser, st)
		if g := a.group.Get(st); g != 0 {
			p.replicatePSA(st, p.groups[uint32(g)], frame, psaMulticast, class)
		} else {
			p.enqueuePSA(st, target.Replica{Port: uint32(a.port.Get(st))}, frame, psaUnicast, class)
		}
	}
	p.put(st)
}

// clonePSA makes the copies of a clone session.
func (p *Pipeline) clonePSA(st *packet.State, session uint32, frame []byte, path uint64) {
	s, ok := p.sessions[session]
	if !ok {
		return
	}
	if s.TruncateTo > 0 {
		frame = frame[:min(len(frame), s.TruncateTo)]
	}
	p.replicatePSA(st, s.Replicas, frame, path, uint64(s.ClassOfQueue))
}

func (p *Pipeline) replicatePSA(st *packet.State, replicas []target.Replica, frame []byte, path,
	class uint64) {
	for _, r := range replicas {
		if len(p.queue) > p.opts.MaxPasses {
			return // MaxPasses copies already exist, so further copies would be dropped.
		}
		p.enqueuePSA(st, r, frame, path, class)
	}
}

// enqueuePSA passes a copy of st's packet to egress.
func (p *Pipeline) enqueuePSA(st *packet.State, r target.Replica, frame []byte, path, class uint64) {
	c := p.newPacket(st, frame)
	c.EgressPort = r.Port
	p.psa.outPort.Set(c, uint64(r.Port))
	p.psa.outPath.Set(c, path)
	p.psa.instance.Set(c, uint64(r.Instance))
	p.psa.egressClass.Set(c, class)
	if p.opts.Queues.set.Load() {
		c.Priority = 0
		p.enqueueAtRate(c)
		return
	}
	p.queue = append(p.queue, c)
}

// sendPSA runs a packet through egress, and sends it.
func (p *Pipeline) sendPSA(b *Buffer, st *packet.State) {
	a := p.psa
	a.egressTime.Set(st, uint64(st.Now/time.Microsecond))
	a.egressErr.Set(st, a.egressParser.Run(st))
	a.egressPort.Set(st, uint64(st.EgressPort))
	a.egressPath.Set(st, a.outPath.Get(st))
	a.cloneAgain.Set(st, 0)
	a.dropAgain.Set(st, 0)
	if p.obs.HasTrace() {
		p.obs.Tracef("Pipeline 'egress', port %d", st.EgressPort)
	}
	p.egress.run(p, st)
	if st.Dropped {
		p.put(st)
		return
	}
	a.deparserPort.Set(st, uint64(st.EgressPort))
	frame := b.deparse(&p.deparser, st)
	if a.cloneAgain.Get(st) != 0 {
		p.clonePSA(st, uint32(a.sessionAgain.Get(st)), frame, psaCloneE2E)
	}
	switch {
	case a.dropAgain.Get(st) != 0:
		p.obs.TraceStep("Dropping packet at the end of egress")
	case st.EgressPort == psaRecirculate:
		c := p.newPacket(st, frame)
		a.arrive(c, psaRecirculate, psaRecirculated)
		p.input = append(p.input, c)
	default:
		p.leave(b, st, frame)
	}
	p.put(st)
}

package interp

import (
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// psaRecirculate is the port that takes a packet back to ingress (PSA_PORT_RECIRCULATE).
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

// arrive says how a packet came to ingress.
func (a *psa) arrive(st *state, port uint32, path uint64) {
	a.inPort.set(st, uint64(port))
	a.inPath.set(st, path)
}

// receivePSA takes a packet through ingress and to where it goes next.
func (p *Pipeline) receivePSA(b *Buffer, st *state) {
	a := p.psa
	a.ingressTime.set(st, uint64(st.now/time.Microsecond))
	a.ingressErr.set(st, p.parser.run(st))
	a.ingressPort.set(st, a.inPort.get(st))
	a.ingressPath.set(st, a.inPath.get(st))
	a.class.set(st, 0)
	a.clone.set(st, 0)
	a.drop.set(st, 1)
	a.resubmit.set(st, 0)
	a.group.set(st, 0)
	p.obs.traceStep("Pipeline 'ingress'")
	p.ingress.run(p, st)
	if st.dropped {
		p.put(st)
		return
	}
	if a.clone.get(st) != 0 { // of what is dropped, too
		p.clonePSA(st, uint32(a.session.get(st)), st.frame, psaCloneI2E)
	}
	switch {
	case a.drop.get(st) != 0:
		p.obs.traceStep("Dropping packet at the end of ingress")
	case a.resubmit.get(st) != 0:
		c := p.newPacket(st, st.frame)
		a.arrive(c, uint32(a.inPort.get(st)), psaResubmit)
		p.input = append(p.input, c)
	default:
		class := a.class.get(st)
		frame := b.deparse(&p.psa.ingressDeparser, st)
		if g := a.group.get(st); g != 0 {
			p.replicatePSA(st, p.groups[uint32(g)], frame, psaMulticast, class)
		} else {
			p.enqueuePSA(st, target.Replica{Port: uint32(a.port.get(st))}, frame, psaUnicast, class)
		}
	}
	p.put(st)
}

// newPacket is a packet of which only its bytes are known, and what st was received as.
func (p *Pipeline) newPacket(st *state, frame []byte) *state {
	c := p.get(st.now)
	c.clear()
	c.inPort, c.inLen, c.frame, c.length = st.inPort, st.inLen, frame, len(frame)
	p.obs.nameCopy(c, st, frame)
	return c
}

// clonePSA makes the copies of a clone session.
func (p *Pipeline) clonePSA(st *state, session uint32, frame []byte, path uint64) {
	s, ok := p.sessions[session]
	if !ok {
		return
	}
	if s.TruncateTo > 0 {
		frame = frame[:min(len(frame), s.TruncateTo)]
	}
	p.replicatePSA(st, s.Replicas, frame, path, uint64(s.ClassOfQueue))
}

func (p *Pipeline) replicatePSA(st *state, replicas []target.Replica, frame []byte, path,
	class uint64) {
	for _, r := range replicas {
		if len(p.queue) > p.opts.MaxPasses {
			return // it would be dropped: that many have been made of one packet
		}
		p.enqueuePSA(st, r, frame, path, class)
	}
}

// enqueuePSA hands a copy of st's packet to egress.
func (p *Pipeline) enqueuePSA(st *state, r target.Replica, frame []byte, path, class uint64) {
	c := p.newPacket(st, frame)
	c.outPort = r.Port
	p.psa.outPort.set(c, uint64(r.Port))
	p.psa.outPath.set(c, path)
	p.psa.instance.set(c, uint64(r.Instance))
	p.psa.egressClass.set(c, class)
	if p.opts.Queues.set.Load() {
		c.priority = 0
		p.enqueueAtRate(c)
		return
	}
	p.queue = append(p.queue, c)
}

// sendPSA takes a packet through egress and out.
func (p *Pipeline) sendPSA(b *Buffer, st *state) {
	a := p.psa
	a.egressTime.set(st, uint64(st.now/time.Microsecond))
	a.egressErr.set(st, a.egressParser.run(st))
	a.egressPort.set(st, uint64(st.outPort))
	a.egressPath.set(st, a.outPath.get(st))
	a.cloneAgain.set(st, 0)
	a.dropAgain.set(st, 0)
	if p.obs.traces() {
		p.obs.trace("Pipeline 'egress', port %d", st.outPort)
	}
	p.egress.run(p, st)
	if st.dropped {
		p.put(st)
		return
	}
	a.deparserPort.set(st, uint64(st.outPort))
	frame := b.deparse(&p.deparser, st)
	if a.cloneAgain.get(st) != 0 {
		p.clonePSA(st, uint32(a.sessionAgain.get(st)), frame, psaCloneE2E)
	}
	switch {
	case a.dropAgain.get(st) != 0:
		p.obs.traceStep("Dropping packet at the end of egress")
	case st.outPort == psaRecirculate:
		c := p.newPacket(st, frame)
		a.arrive(c, psaRecirculate, psaRecirculated)
		p.input = append(p.input, c)
	default:
		p.leave(b, st, frame)
	}
	p.put(st)
}

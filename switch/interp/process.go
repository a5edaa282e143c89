package interp

import (
	"time"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/target"
)

// Process processes a frame that arrives at a port and returns the outgoing frames. The caller owns
// the memory of these frames. now is the time since the device was created, from which the
// program's timestamps follow. Process only reads the frame, and does not retain it.
//
// Packets are processed in the order in which they are made. All packets for egress come first (a
// clone before its original, replicas in the order of their group). Resubmitted or recirculated
// packets follow.
func (p *Pipeline) Process(now time.Duration, port uint32, frame []byte) []Out {
	var b Buffer
	p.ProcessInto(&b, now, port, frame)
	return b.Outs
}

// ProcessInto does what Process does, without allocating memory. The outgoing frames are in b until
// b is used again. Goroutines must not share b.
func (p *Pipeline) ProcessInto(b *Buffer, now time.Duration, port uint32, frame []byte) {
	b.reset()
	digests := p.process(b, now, port, frame)
	for _, d := range digests {
		p.opts.OnDigest(d)
	}
}

func (p *Pipeline) process(b *Buffer, now time.Duration, port uint32,
	frame []byte) []target.Digest {
	p.dp.Lock()
	defer p.dp.Unlock()
	p.passes, p.digests = 0, nil
	p.obs.Listen()
	if p.obs.HasTrace() {
		p.obs.TraceNext()
		p.obs.Tracef("Packet of %d bytes received on port %d", len(frame), port)
	}
	st := p.get(now)
	st.Clear()
	st.IngressPort, st.ReceivedLength, st.Frame, st.Length = port, len(frame), frame, len(frame)
	p.obs.NamePacket(st, port, frame)
	if p.psa != nil {
		p.psa.arrive(st, port, psaNormal)
	}
	p.std.ingressPort.Set(st, uint64(port))
	p.std.packetLength.Set(st, uint64(len(frame)))
	p.std.ingressTime.Set(st, uint64(now/time.Microsecond))
	p.receive(b, st)
	return p.work(b, now)
}

// work processes the waiting packets, and the packets that leave their queues at now.
func (p *Pipeline) work(b *Buffer, now time.Duration) []target.Digest {
	sent, received := 0, 0
	for {
		switch {
		case sent < len(p.queue):
			sent++
			p.send(b, p.queue[sent-1])
		case received < len(p.input):
			received++
			p.receive(b, p.input[received-1])
		default:
			p.queue, p.input, sent, received = p.queue[:0], p.input[:0], 0, 0
			if p.waiting.count > 0 {
				if st := p.depart(now); st != nil {
					p.queue = append(p.queue, st)
					continue
				}
			}
			if p.waiting.count > 0 || p.waiting.next.Load() != nobodyWaits {
				p.noteDeparture()
			}
			return p.digests
		}
	}
}

// allowed counts a pass and reports whether the number of passes is within MaxPasses.
func (p *Pipeline) allowed() bool {
	p.passes++
	if p.passes == p.opts.MaxPasses+1 {
		p.log("a packet was dropped: it, or copies of it, went round too often")
	}
	return p.passes <= p.opts.MaxPasses
}

// parse runs the parser on st.Frame. st must have no valid header.
func (p *Pipeline) parse(st *packet.State) {
	err := p.parser.Run(st)
	wrong := uint64(0)
	if !p.parser.ChecksumsRight(st) {
		wrong = 1
	}
	p.std.parserError.Set(st, err)
	p.std.checksumError.Set(st, wrong)
}

// receive runs a packet through parser and ingress, and passes it on to the packet replication
// engine.
func (p *Pipeline) receive(b *Buffer, st *packet.State) {
	if !p.allowed() {
		p.put(st)
		return
	}
	if p.psa != nil {
		p.receivePSA(b, st)
		return
	}
	length := st.Length
	p.parse(st)
	p.obs.TraceStep("Pipeline 'ingress'")
	p.ingress.run(p, st)
	if st.Dropped {
		p.put(st)
		return
	}
	if st.Cloning {
		st.Cloning = false
		p.cloneIngress(st, length)
	}
	if st.DigestList != 0 {
		p.sample(st)
	}
	if st.ResubmitList != 0 {
		p.obs.TraceStep("Resubmitting packet")
		p.resubmit(st, length)
		return
	}
	if grp := p.std.mcastGrp.Get(st); grp != 0 {
		if p.obs.HasTrace() {
			p.obs.Tracef("Multicast group %d, of %d copies", grp, len(p.groups[uint32(grp)]))
		}
		p.std.instanceType.Set(st, instanceReplication)
		p.multicast(st, p.groups[uint32(grp)], packet.NoTruncation)
		p.put(st)
		return
	}
	port := uint32(p.std.egressSpec.Get(st))
	if port == p.opts.DropPort {
		p.obs.TraceStep("Dropping packet at the end of ingress")
		p.put(st)
		return
	}
	p.std.instanceType.Set(st, instanceNormal)
	p.enqueue(st, port)
}

// multicast makes a copy of st for each replica. A copy has the headers, the metadata and the
// length of st, but none of its requests. In particular, a copy does not have the truncate request,
// because in BMv2 this request applies only to the outgoing packet. The copies are truncated to cut
// bytes.
func (p *Pipeline) multicast(st *packet.State, replicas []target.Replica, cut int) {
	for _, r := range replicas {
		if len(p.queue) > p.opts.MaxPasses {
			return // MaxPasses copies already exist, so further copies would be dropped.
		}
		c := p.get(st.Now)
		c.CopyHeaders(st)
		c.IngressPort, c.ReceivedLength, c.Frame, c.Length = st.IngressPort, st.ReceivedLength, st.Frame, st.Length
		c.Payload, c.TruncateTo = st.Payload, cut
		p.obs.NameCopy(c, st, st.Payload)
		c.ClearRequests()
		c.RecirculateList, c.Exited, c.Dropped = 0, false, false
		p.std.rid.Set(c, uint64(r.Instance))
		p.enqueue(c, r.Port)
	}
}

// keep copies the fields of a field list from src to dst.
func (p *Pipeline) keep(dst, src *packet.State, list int) {
	for _, r := range p.ref.FieldLists[list] {
		copy(dst.Lanes[r.From:r.To], src.Lanes[r.From:r.To])
	}
}

// cloneIngress makes the copies of a clone session from the received packet. It parses the packet
// again, and copies only the metadata of the field list.
func (p *Pipeline) cloneIngress(st *packet.State, length int) {
	s, ok := p.sessions[st.CloneSession]
	if p.obs.HasTrace() {
		p.obs.Tracef("Cloning packet at ingress, session %d, of %d copies", st.CloneSession,
			len(s.Replicas))
	}
	if !ok {
		return
	}
	c := p.get(st.Now)
	c.Clear()
	c.IngressPort, c.ReceivedLength, c.Frame, c.Length = st.IngressPort, st.ReceivedLength, st.Frame, length
	p.std.ingressPort.Set(c, uint64(st.IngressPort))
	p.obs.NameCopy(c, st, st.Frame)
	p.parser.Run(c) // a parser error would be in the metadata, which cloneIngress clears
	c.ClearMetadata()
	p.keep(c, st, st.CloneList)
	p.std.instanceType.Set(c, instanceIngressClone)
	p.replicate(c, s)
}

// cloneEgress makes the copies of a clone session from the packet after egress.
func (p *Pipeline) cloneEgress(st *packet.State) {
	s, ok := p.sessions[st.CloneSession]
	if !ok {
		return
	}
	c := p.get(st.Now)
	c.Clear()
	c.CopyHeaders(st)
	c.IngressPort, c.ReceivedLength, c.Frame = st.IngressPort, st.ReceivedLength, st.Frame
	c.Length, c.Payload = st.Length, st.Payload
	p.obs.NameCopy(c, st, st.Payload)
	c.ClearMetadata()
	p.keep(c, st, st.CloneList)
	p.std.instanceType.Set(c, instanceEgressClone)
	p.replicate(c, s)
}

// replicate sends a clone to the ports of its session.
func (p *Pipeline) replicate(c *packet.State, s target.CloneSession) {
	cut := packet.NoTruncation
	if s.TruncateTo > 0 {
		cut = s.TruncateTo
	}
	p.multicast(c, s.Replicas, cut)
	p.put(c)
}

// resubmit sends the received packet to ingress again, with the metadata of a field list.
func (p *Pipeline) resubmit(st *packet.State, length int) {
	c := p.get(st.Now)
	c.Clear()
	c.IngressPort, c.ReceivedLength, c.Frame, c.Length = st.IngressPort, st.ReceivedLength, st.Frame, length
	p.obs.NameCopy(c, st, st.Frame)
	p.keep(c, st, st.ResubmitList)
	p.std.instanceType.Set(c, instanceResubmitted)
	p.std.packetLength.Set(c, uint64(length))
	p.input = append(p.input, c)
	p.put(st)
}

// sample reads the values of a digest from a packet.
func (p *Pipeline) sample(st *packet.State) {
	list := p.src.LearnList(st.DigestList)
	st.DigestList = 0
	if list == nil || p.opts.OnDigest == nil {
		return
	}
	d := target.Digest{Name: list.Name}
	for i, get := range p.ref.LearnLists[list.ID] {
		lanes := make([]uint64, wideint.Lanes(list.Widths[i]))
		get(st, lanes)
		lanes[len(lanes)-1] &= wideint.TopMask(list.Widths[i])
		d.Fields = append(d.Fields, wideint.Bytes(lanes, list.Widths[i]))
	}
	p.digests = append(p.digests, d)
}

// send runs a packet through egress and the deparser, and sends it.
func (p *Pipeline) send(b *Buffer, st *packet.State) {
	if !p.allowed() {
		p.put(st)
		return
	}
	if p.psa != nil {
		p.sendPSA(b, st)
		return
	}
	micros := uint64(st.Now / time.Microsecond)
	p.std.egressTime.Set(st, micros)
	p.std.deqDelta.Set(st, micros-uint64(st.EnqueuedAt/time.Microsecond))
	p.std.deqDepth.Set(st, st.QueueDepth)
	p.std.qid.Set(st, uint64(st.Priority))
	p.std.egressPort.Set(st, uint64(st.EgressPort))
	p.std.egressSpec.Set(st, uint64(p.opts.DropPort)+1) // any port other than the drop port
	p.std.packetLength.Set(st, uint64(st.Length))
	if p.obs.HasTrace() {
		p.obs.Tracef("Pipeline 'egress', port %d", st.EgressPort)
	}
	p.egress.run(p, st)
	if st.Dropped {
		p.put(st)
		return
	}
	if st.Cloning {
		st.Cloning = false
		p.cloneEgress(st)
	}
	if uint32(p.std.egressSpec.Get(st)) == p.opts.DropPort {
		p.obs.TraceStep("Dropping packet at the end of egress")
		p.put(st)
		return
	}
	frame := b.deparse(&p.deparser, st)
	if st.RecirculateList != 0 {
		p.obs.TraceStep("Recirculating packet")
		p.recirculate(st, frame)
		return
	}
	p.leave(b, st, frame)
	p.put(st)
}

// recirculate sends the deparsed packet to ingress again, with the metadata of a field list.
func (p *Pipeline) recirculate(st *packet.State, frame []byte) {
	c := p.get(st.Now)
	c.Clear()
	c.IngressPort, c.ReceivedLength, c.Frame, c.Length = st.IngressPort, len(frame), frame, len(frame)
	p.obs.NameCopy(c, st, frame)
	p.keep(c, st, st.RecirculateList)
	p.std.instanceType.Set(c, instanceRecirculated)
	p.std.packetLength.Set(c, uint64(len(frame)))
	p.input = append(p.input, c)
	p.put(st)
}

// DepartInto removes the packets that are due at now from their queues, and runs them through
// egress. It uses b as [Pipeline.ProcessInto] does.
func (p *Pipeline) DepartInto(b *Buffer, now time.Duration) {
	b.reset()
	p.dp.Lock()
	p.passes, p.digests = 0, nil
	p.obs.Listen()
	digests := p.work(b, now)
	p.dp.Unlock()
	for _, d := range digests {
		p.opts.OnDigest(d)
	}
}

package interp

import (
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// Out is a frame that leaves by a port.
type Out struct {
	Port  uint32
	Frame []byte
}

// Buffer is memory for the frames that leave, to be used again for the next packet.
type Buffer struct {
	// Outs are the frames of the last packet, in the order in which they left. Their memory is the
	// buffer's: it is good until the next ProcessInto.
	Outs  []Out
	arena []byte
}

func (b *Buffer) reset() {
	b.Outs, b.arena = b.Outs[:0], b.arena[:0]
}

// alloc returns n bytes whose content is not defined.
func (b *Buffer) alloc(n int) []byte {
	at := len(b.arena)
	if at+n > cap(b.arena) {
		// What has been given out keeps the old memory.
		b.arena, at = make([]byte, 0, max(2*cap(b.arena), n, 4096)), 0
	}
	b.arena = b.arena[:at+n]
	return b.arena[at : at+n : at+n]
}

// deparse writes a packet with its headers.
func (b *Buffer) deparse(d *deparser, st *state) []byte {
	out := b.alloc(d.prepare(st))
	d.write(out, st)
	return out
}

// Process takes a frame that came in by port at the time now (since the device was made: what the
// program sees as its timestamps) through the program and returns the frames that leave, whose
// memory is the caller's. The frame is only read, and not after Process has returned.
//
// Packets are worked off in the order in which they are made: first all for egress (a clone before
// the packet it was made from, replicas in the order of their group), then what was resubmitted or
// recirculated.
func (p *Pipeline) Process(now time.Duration, port uint32, frame []byte) []Out {
	var b Buffer
	p.ProcessInto(&b, now, port, frame)
	return b.Outs
}

// ProcessInto is Process without allocation: the frames are in b, until it is used again. b must
// not be shared between goroutines.
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
	p.obs.listen()
	if p.obs.traces() {
		p.obs.traceNext()
		p.obs.trace("Packet of %d bytes received on port %d", len(frame), port)
	}
	st := p.get(now)
	st.clear()
	st.inPort, st.inLen, st.frame, st.length = port, len(frame), frame, len(frame)
	p.obs.arrives(st, port, frame)
	if p.psa != nil {
		p.psa.arrive(st, port, psaNormal)
	}
	p.std.ingressPort.set(st, uint64(port))
	p.std.packetLength.set(st, uint64(len(frame)))
	p.std.ingressTime.set(st, uint64(now/time.Microsecond))
	p.receive(b, st)
	return p.work(b, now)
}

// work takes the packets under way, and those that leave their queues at now, to where they go.
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

// get takes a state from the free list.
func (p *Pipeline) get(now time.Duration) *state {
	var st *state
	if n := len(p.free); n > 0 {
		st, p.free = p.free[n-1], p.free[:n-1]
	} else {
		st = newState(p.lay)
	}
	st.now = now
	return st
}

// put gives a state back.
func (p *Pipeline) put(st *state) {
	st.frame, st.payload, st.params = nil, nil, nil
	p.free = append(p.free, st)
}

// allowed counts a pass and says whether there may be one more.
func (p *Pipeline) allowed() bool {
	p.passes++
	if p.passes == p.opts.MaxPasses+1 {
		p.log("a packet was dropped: it, or copies of it, went round too often")
	}
	return p.passes <= p.opts.MaxPasses
}

// parse runs the parser on st.frame, from a state whose headers are all invalid.
func (p *Pipeline) parse(st *state) {
	err := p.parser.run(st)
	wrong := uint64(0)
	if !p.parser.checksumsRight(st) {
		wrong = 1
	}
	p.std.parserError.set(st, err)
	p.std.checksumError.set(st, wrong)
}

// receive takes a packet through parser and ingress and to where it goes next.
func (p *Pipeline) receive(b *Buffer, st *state) {
	if !p.allowed() {
		p.put(st)
		return
	}
	if p.psa != nil {
		p.receivePSA(b, st)
		return
	}
	length := st.length
	p.parse(st)
	p.obs.traceStep("Pipeline 'ingress'")
	p.ingress.run(p, st)
	if st.dropped {
		p.put(st)
		return
	}
	if st.cloning {
		st.cloning = false
		p.cloneIngress(st, length)
	}
	if st.digest != 0 {
		p.sample(st)
	}
	if st.resubmit != 0 {
		p.obs.traceStep("Resubmitting packet")
		p.resubmit(st, length)
		return
	}
	if grp := p.std.mcastGrp.get(st); grp != 0 {
		if p.obs.traces() {
			p.obs.trace("Multicast group %d, of %d copies", grp, len(p.groups[uint32(grp)]))
		}
		p.std.instanceType.set(st, instanceReplication)
		p.multicast(st, p.groups[uint32(grp)], noTruncation)
		p.put(st)
		return
	}
	port := uint32(p.std.egressSpec.get(st))
	if port == p.opts.DropPort {
		p.obs.traceStep("Dropping packet at the end of ingress")
		p.put(st)
		return
	}
	p.std.instanceType.set(st, instanceNormal)
	p.enqueue(st, port)
}

// ReadsQueueDepth reports whether the program asks how many packets wait at a port.
func (p *Pipeline) ReadsQueueDepth() bool { return p.readsDepth }

func (p *Pipeline) queueDepth(port uint32) uint64 {
	if !p.readsDepth || p.opts.QueueDepth == nil {
		return 0
	}
	return uint64(p.opts.QueueDepth(port))
}

// multicast makes a copy of st for each replica. A copy has the headers, the metadata and the
// length of st, but none of its requests: not even truncate, which in BMv2 is for the packet that
// goes out and for nothing that is made of it. It is cut to so many bytes.
func (p *Pipeline) multicast(st *state, replicas []target.Replica, cut int) {
	for _, r := range replicas {
		if len(p.queue) > p.opts.MaxPasses {
			return // it would be dropped: that many have been made of one packet
		}
		c := p.get(st.now)
		c.copyPHV(st)
		c.inPort, c.inLen, c.frame, c.length = st.inPort, st.inLen, st.frame, st.length
		c.payload, c.truncate = st.payload, cut
		p.obs.nameCopy(c, st, st.payload)
		c.clearRequests()
		c.recirc, c.exit, c.dropped = 0, false, false
		p.std.rid.set(c, uint64(r.Instance))
		p.enqueue(c, r.Port)
	}
}

// keep copies the fields of a field list.
func (p *Pipeline) keep(dst, src *state, list int) {
	for _, r := range p.fieldList[list] {
		copy(dst.w[r.from:r.to], src.w[r.from:r.to])
	}
}

// cloneIngress makes the copies of a clone session from the packet as it was received: it is parsed
// once more, and keeps of the metadata only the field list.
func (p *Pipeline) cloneIngress(st *state, length int) {
	s, ok := p.sessions[st.session]
	if p.obs.traces() {
		p.obs.trace("Cloning packet at ingress, session %d, of %d copies", st.session,
			len(s.Replicas))
	}
	if !ok {
		return
	}
	c := p.get(st.now)
	c.clear()
	c.inPort, c.inLen, c.frame, c.length = st.inPort, st.inLen, st.frame, length
	p.std.ingressPort.set(c, uint64(st.inPort))
	p.obs.nameCopy(c, st, st.frame)
	p.parser.run(c) // what stopped it, if anything, would be in the metadata, which is cleared
	c.clearMetadata()
	p.keep(c, st, st.cloneFL)
	p.std.instanceType.set(c, instanceIngressClone)
	p.replicate(c, s)
}

// cloneEgress makes the copies of a clone session from the packet as egress has left it.
func (p *Pipeline) cloneEgress(st *state) {
	s, ok := p.sessions[st.session]
	if !ok {
		return
	}
	c := p.get(st.now)
	c.clear()
	c.copyPHV(st)
	c.inPort, c.inLen, c.frame, c.length, c.payload = st.inPort, st.inLen, st.frame, st.length,
		st.payload
	p.obs.nameCopy(c, st, st.payload)
	c.clearMetadata()
	p.keep(c, st, st.cloneFL)
	p.std.instanceType.set(c, instanceEgressClone)
	p.replicate(c, s)
}

// replicate sends a clone to the ports of its session.
func (p *Pipeline) replicate(c *state, s target.CloneSession) {
	cut := noTruncation
	if s.TruncateTo > 0 {
		cut = s.TruncateTo
	}
	p.multicast(c, s.Replicas, cut)
	p.put(c)
}

// resubmit puts the packet, as it was received, back to ingress with the metadata of the field
// list.
func (p *Pipeline) resubmit(st *state, length int) {
	c := p.get(st.now)
	c.clear()
	c.inPort, c.inLen, c.frame, c.length = st.inPort, st.inLen, st.frame, length
	p.obs.nameCopy(c, st, st.frame)
	p.keep(c, st, st.resubmit)
	p.std.instanceType.set(c, instanceResubmitted)
	p.std.packetLength.set(c, uint64(length))
	p.input = append(p.input, c)
	p.put(st)
}

// sample takes the values of a digest.
func (p *Pipeline) sample(st *state) {
	list := p.src.LearnList(st.digest)
	st.digest = 0
	if list == nil || p.opts.OnDigest == nil {
		return
	}
	d := target.Digest{Name: list.Name}
	for i, get := range p.learn[list.ID] {
		lanes := make([]uint64, lanesOf(list.Widths[i]))
		get(st, lanes)
		lanes[len(lanes)-1] &= topMask(list.Widths[i])
		d.Fields = append(d.Fields, bytesFromLanes(lanes, list.Widths[i]))
	}
	p.digests = append(p.digests, d)
}

// send takes a packet through egress and deparser and out.
func (p *Pipeline) send(b *Buffer, st *state) {
	if !p.allowed() {
		p.put(st)
		return
	}
	if p.psa != nil {
		p.sendPSA(b, st)
		return
	}
	micros := uint64(st.now / time.Microsecond)
	p.std.egressTime.set(st, micros)
	p.std.deqDelta.set(st, micros-uint64(st.queuedAt/time.Microsecond))
	p.std.deqDepth.set(st, st.depth)
	p.std.qid.set(st, uint64(st.priority))
	p.std.egressPort.set(st, uint64(st.outPort))
	p.std.egressSpec.set(st, uint64(p.opts.DropPort)+1) // anything but the drop port
	p.std.packetLength.set(st, uint64(st.length))
	if p.obs.traces() {
		p.obs.trace("Pipeline 'egress', port %d", st.outPort)
	}
	p.egress.run(p, st)
	if st.dropped {
		p.put(st)
		return
	}
	if st.cloning {
		st.cloning = false
		p.cloneEgress(st)
	}
	if uint32(p.std.egressSpec.get(st)) == p.opts.DropPort {
		p.obs.traceStep("Dropping packet at the end of egress")
		p.put(st)
		return
	}
	frame := b.deparse(&p.deparser, st)
	if st.recirc != 0 {
		p.obs.traceStep("Recirculating packet")
		p.recirculate(st, frame)
		return
	}
	p.leave(b, st, frame)
	p.put(st)
}

// leave sends a frame out.
func (p *Pipeline) leave(b *Buffer, st *state, frame []byte) {
	frame = frame[:min(len(frame), st.truncate)]
	if p.obs.traces() {
		p.obs.trace("Transmitting packet of %d bytes out of port %d", len(frame), st.outPort)
	}
	p.obs.event(st, EventPacketOut, int(st.outPort), 0)
	b.Outs = append(b.Outs, Out{Port: st.outPort, Frame: frame})
}

// recirculate puts the packet, as the deparser wrote it, back to ingress with the metadata of the
// field list.
func (p *Pipeline) recirculate(st *state, frame []byte) {
	c := p.get(st.now)
	c.clear()
	c.inPort, c.inLen, c.frame, c.length = st.inPort, len(frame), frame, len(frame)
	p.obs.nameCopy(c, st, frame)
	p.keep(c, st, st.recirc)
	p.std.instanceType.set(c, instanceRecirculated)
	p.std.packetLength.set(c, uint64(len(frame)))
	p.input = append(p.input, c)
	p.put(st)
}

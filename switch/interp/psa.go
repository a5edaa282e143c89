package interp

import (
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
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

// psa is what a program for the Portable Switch Architecture has otherwise than one for v1model: a
// parser and a deparser on both sides of the packet replication engine, and metadata of its own.
// Nothing but the bytes of a packet, and what the engine says of it, goes from ingress to egress.
type psa struct {
	egressParser    *parser
	ingressDeparser deparser

	inPort, inPath                                     stdField // of the ingress parser
	ingressPort, ingressPath, ingressTime, ingressErr  stdField
	class, clone, session, drop, resubmit, group, port stdField // what ingress decides
	outPort, outPath                                   stdField // of the egress parser
	egressClass, egressPort, egressPath, instance      stdField
	egressTime, egressErr                              stdField
	cloneAgain, sessionAgain, dropAgain                stdField // what egress decides
	deparserPort                                       stdField
}

// psaFields finds the metadata that the architecture has. p4c writes all of it into every program.
func (c *compiler) psaFields() {
	field := func(header, name string) stdField {
		r := c.prog.FieldNamed(header, name)
		if r.IsZero() || r.IsValidity() || r.Field.VL || r.Width() > 64 || !r.Header.Metadata {
			refuse("headers", "a PSA program without %s.%s as a field of at most 64 bits", header,
				name)
		}
		return stdField{lane: c.lay.lane(r), mask: topMask(r.Width())}
	}
	p := &psa{}
	for header, fields := range map[string]map[string]*stdField{
		"psa_ingress_parser_input_metadata": {"ingress_port": &p.inPort, "packet_path": &p.inPath},
		"psa_ingress_input_metadata": {"ingress_port": &p.ingressPort,
			"packet_path": &p.ingressPath, "ingress_timestamp": &p.ingressTime,
			"parser_error": &p.ingressErr},
		"psa_ingress_output_metadata": {"class_of_service": &p.class, "clone": &p.clone,
			"clone_session_id": &p.session, "drop": &p.drop, "resubmit": &p.resubmit,
			"multicast_group": &p.group, "egress_port": &p.port},
		"psa_egress_parser_input_metadata": {"egress_port": &p.outPort, "packet_path": &p.outPath},
		"psa_egress_input_metadata": {"class_of_service": &p.egressClass,
			"egress_port": &p.egressPort, "packet_path": &p.egressPath, "instance": &p.instance,
			"egress_timestamp": &p.egressTime, "parser_error": &p.egressErr},
		"psa_egress_output_metadata": {"clone": &p.cloneAgain,
			"clone_session_id": &p.sessionAgain, "drop": &p.dropAgain},
		"psa_egress_deparser_input_metadata": {"egress_port": &p.deparserPort},
	} {
		for name, f := range fields {
			*f = field(header, name)
		}
	}
	c.p.psa = p
}

func (c *compiler) psaParsersAndDeparsers() {
	parser := func(name string) *parser {
		q := c.prog.Parser(name)
		if q == nil {
			refuse("parsers", "a PSA program without a parser named %q", name)
		}
		return c.parser(q)
	}
	deparser := func(name string) deparser {
		d := c.prog.Deparser(name)
		if d == nil {
			refuse("deparsers", "a PSA program without a deparser named %q", name)
		}
		return c.deparser(d)
	}
	if len(c.prog.Checksums) > 0 {
		refuse(c.prog.Checksums[0].Path, "a checksum of v1model in a PSA program")
	}
	p := c.p
	p.parser, p.psa.egressParser = parser("ingress_parser"), parser("egress_parser")
	p.psa.ingressDeparser, p.deparser = deparser("ingress_deparser"), deparser("egress_deparser")
}

// arrive says how a packet came to ingress.
func (a *psa) arrive(st *state, port uint32, path uint64) {
	a.inPort.set(st, uint64(port))
	a.inPath.set(st, path)
}

// run1 runs a parser and returns the error that stopped it as the program numbers it.
func (p *Pipeline) run1(q *parser, st *state) uint64 {
	if err := p.runParser(q, st); err != noError {
		return err
	}
	return p.errNone
}

// receivePSA takes a packet through ingress and to where it goes next.
func (p *Pipeline) receivePSA(b *Buffer, st *state) {
	a := p.psa
	a.ingressTime.set(st, uint64(st.now/time.Microsecond))
	a.ingressErr.set(st, p.run1(p.parser, st))
	a.ingressPort.set(st, a.inPort.get(st))
	a.ingressPath.set(st, a.inPath.get(st))
	a.class.set(st, 0)
	a.clone.set(st, 0)
	a.drop.set(st, 1)
	a.resubmit.set(st, 0)
	a.group.set(st, 0)
	p.traceStep("Pipeline 'ingress'")
	p.runPipeline(p.ingress, p.ids.ingress, st)
	if st.dropped {
		p.put(st)
		return
	}
	if a.clone.get(st) != 0 { // of what is dropped, too
		p.clonePSA(st, uint32(a.session.get(st)), st.frame, psaCloneI2E)
	}
	switch {
	case a.drop.get(st) != 0:
		p.traceStep("Dropping packet at the end of ingress")
	case a.resubmit.get(st) != 0:
		c := p.newPacket(st, st.frame)
		a.arrive(c, uint32(a.inPort.get(st)), psaResubmit)
		p.input = append(p.input, c)
	default:
		class := a.class.get(st)
		frame := p.psa.ingressDeparser.run(b, st)
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
	p.nameCopy(c, st, frame)
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
	a.egressErr.set(st, p.run1(a.egressParser, st))
	a.egressPort.set(st, uint64(st.outPort))
	a.egressPath.set(st, a.outPath.get(st))
	a.cloneAgain.set(st, 0)
	a.dropAgain.set(st, 0)
	if p.opts.Trace != nil {
		p.trace("Pipeline 'egress', port %d", st.outPort)
	}
	p.runPipeline(p.egress, p.ids.egress, st)
	if st.dropped {
		p.put(st)
		return
	}
	a.deparserPort.set(st, uint64(st.outPort))
	frame := p.deparser.run(b, st)
	if a.cloneAgain.get(st) != 0 {
		p.clonePSA(st, uint32(a.sessionAgain.get(st)), frame, psaCloneE2E)
	}
	switch {
	case a.dropAgain.get(st) != 0:
		p.traceStep("Dropping packet at the end of egress")
	case st.outPort == psaRecirculate:
		c := p.newPacket(st, frame)
		a.arrive(c, psaRecirculate, psaRecirculated)
		p.input = append(p.input, c)
	default:
		p.leave(b, st, frame)
	}
	p.put(st)
}

// onlyV1model refuses a primitive that asks v1model's engine for something.
func (c *compiler) onlyV1model(p *bmv2json.Primitive) {
	if c.p.psa != nil {
		refuse(p.Path, "%s, which is v1model's, in a PSA program", p.Op)
	}
}

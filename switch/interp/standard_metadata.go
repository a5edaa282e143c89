package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// stdFields has the fields of standard_metadata that the engine reads and writes. It finds them by
// the names that simple_switch uses.
type stdFields struct {
	ingressPort, egressPort, instanceType, packetLength packet.Field
	parserError, checksumError                          packet.Field
	ingressTime, egressTime                             packet.Field
	enqTime, enqDepth, deqDelta, deqDepth, qid          packet.Field
	priority                                            packet.Field
	rid, egressSpec, mcastGrp                           packet.Field
}

func newStdFields(prog *bmv2json.Program, lay *packet.Layout) (s stdFields) {
	field := func(header, name string, required bool) packet.Field {
		r := prog.FieldNamed(header, name)
		switch {
		case r.IsZero() && required:
			refusal.Panic("headers", "a program without %s.%s (v1model and PSA programs are run)", header,
				name)
		case r.IsZero():
			return packet.Field{}
		case r.IsValidity() || r.Field.VL || r.Width() > 64 || !r.Header.Metadata:
			refusal.Panic(r.Header.Path, "%s kept in %s", header+"."+name, r)
		}
		return packet.Field{Lane: lay.LaneForTarget(r), Mask: wideint.TopMask(r.Width())}
	}
	s.ingressPort = field("standard_metadata", "ingress_port", true)
	s.packetLength = field("standard_metadata", "packet_length", true)
	s.instanceType = field("standard_metadata", "instance_type", true)
	s.egressSpec = field("standard_metadata", "egress_spec", true)
	s.egressPort = field("standard_metadata", "egress_port", true)
	s.parserError = field("standard_metadata", "parser_error", false)
	s.checksumError = field("standard_metadata", "checksum_error", false)
	s.ingressTime = field("intrinsic_metadata", "ingress_global_timestamp", false)
	s.egressTime = field("intrinsic_metadata", "egress_global_timestamp", false)
	s.mcastGrp = field("intrinsic_metadata", "mcast_grp", false)
	s.rid = field("intrinsic_metadata", "egress_rid", false)
	s.enqTime = field("queueing_metadata", "enq_timestamp", false)
	s.enqDepth = field("queueing_metadata", "enq_qdepth", false)
	s.deqDelta = field("queueing_metadata", "deq_timedelta", false)
	s.deqDepth = field("queueing_metadata", "deq_qdepth", false)
	s.qid = field("queueing_metadata", "qid", false)
	s.priority = field("intrinsic_metadata", "priority", false)
	return s
}

package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// psa has what a program for the Portable Switch Architecture needs in addition to a v1model
// program. It has a parser and a deparser on both sides of the packet replication engine, and its
// own metadata. Only the packet's bytes, and the engine's metadata, pass from ingress to egress.
type psa struct {
	egressParser    *reference.Parser
	ingressDeparser reference.Deparser

	// the engine sets these fields for the ingress parser
	inPort, inPath                                    packet.Field
	ingressPort, ingressPath, ingressTime, ingressErr packet.Field
	// Fields that ingress sets.
	class, clone, session, drop, resubmit, group, port packet.Field
	// the engine sets these fields for the egress parser
	outPort, outPath                              packet.Field
	egressClass, egressPort, egressPath, instance packet.Field
	egressTime, egressErr                         packet.Field
	// Fields that egress sets.
	cloneAgain, sessionAgain, dropAgain packet.Field
	deparserPort                        packet.Field
}

// newPSA finds the metadata of the architecture. p4c writes all of it into every program.
func newPSA(prog *bmv2json.Program, lay *packet.Layout) *psa {
	field := func(header, name string) packet.Field {
		r := prog.FieldNamed(header, name)
		if r.IsZero() || r.IsValidity() || r.Field.VL || r.Width() > 64 || !r.Header.Metadata {
			refusal.Panic("headers", "a PSA program without %s.%s as a field of at most 64 bits", header,
				name)
		}
		return packet.Field{Lane: lay.LaneOf(r), Mask: wideint.TopMask(r.Width())}
	}
	p := &psa{}
	for header, fields := range map[string]map[string]*packet.Field{
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
	return p
}

package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

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
func newPSA(prog *bmv2json.Program, lay *layout) *psa {
	field := func(header, name string) stdField {
		r := prog.FieldNamed(header, name)
		if r.IsZero() || r.IsValidity() || r.Field.VL || r.Width() > 64 || !r.Header.Metadata {
			refuse("headers", "a PSA program without %s.%s as a field of at most 64 bits", header,
				name)
		}
		return stdField{lane: lay.lane(r), mask: topMask(r.Width())}
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
	return p
}

package analysis

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// RefusePriorities refuses a program that assigns priorities to packets, because this engine has no
// priority queues.
func RefusePriorities(prog *bmv2json.Program) {
	priority := prog.FieldNamed("intrinsic_metadata", "priority")
	if priority.IsZero() {
		return
	}
	written := func(q *bmv2json.Primitive) {
		if q == nil {
			return
		}
		for _, a := range q.Args[:min(1, len(q.Args))] {
			if a.Op == bmv2json.OpField && a.Field == priority {
				ir.Refuse(q.Path, "a packet's priority (%s), as there are no queues between ingress "+
					"and egress", priority)
			}
		}
	}
	for _, a := range prog.Actions {
		for _, q := range a.Primitives {
			written(q)
		}
	}
	for _, q := range prog.Parsers {
		for _, s := range q.States {
			for _, o := range s.Ops {
				written(o.Primitive)
				if o.Dest == priority {
					ir.Refuse(o.Path, "a packet's priority (%s), as there are no queues between "+
						"ingress and egress", priority)
				}
			}
		}
	}
}

// StandardFields are the fields of v1model's standard metadata. Fields that the program does not
// have are zero.
type StandardFields struct {
	IngressPort, EgressSpec, EgressPort, InstanceType, PacketLength, IngressTime, EgressTime,
	McastGroup, EgressRid, ChecksumError, ParserError,
	EnqTimestamp, EnqDepth, DeqTimedelta, DeqDepth, Queue bmv2json.FieldRef
}

// StandardHeaders are the metadata that the engine fills or reads.
var StandardHeaders = []string{"standard_metadata", "intrinsic_metadata", "queueing_metadata"}

// FindStandardFields finds a program's fields of standard metadata. In older programs, some of
// these fields are in other headers.
func FindStandardFields(p *bmv2json.Program) StandardFields {
	find := func(name string, also ...string) bmv2json.FieldRef {
		for _, h := range append([]string{"standard_metadata"}, also...) {
			if r := p.FieldNamed(h, name); !r.IsZero() {
				return r
			}
		}
		return bmv2json.FieldRef{}
	}
	return StandardFields{
		IngressPort: find("ingress_port"), EgressSpec: find("egress_spec"),
		EgressPort: find("egress_port"), InstanceType: find("instance_type"),
		PacketLength:  find("packet_length"),
		IngressTime:   find("ingress_global_timestamp", "intrinsic_metadata"),
		EgressTime:    find("egress_global_timestamp", "intrinsic_metadata"),
		McastGroup:    find("mcast_grp", "intrinsic_metadata"),
		EgressRid:     find("egress_rid", "intrinsic_metadata"),
		ChecksumError: find("checksum_error"),
		ParserError:   find("parser_error"),
		EnqTimestamp:  find("enq_timestamp", "queueing_metadata"),
		EnqDepth:      find("enq_qdepth", "queueing_metadata"),
		DeqTimedelta:  find("deq_timedelta", "queueing_metadata"),
		DeqDepth:      find("deq_qdepth", "queueing_metadata"),
		Queue:         find("qid", "queueing_metadata"),
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * NetCRAQ for v1model (BMv2's simple_switch, netcraq-switch): a chain-replicated key-value store in
 * switch registers.
 *
 *   parser ─▶ Admission ─▶ Chain ─▶ Routing ─▶ traffic manager ─▶ EgressReplication ─▶ deparser
 *             may this    CRAQ in   IPv4       multicasts the     turns copies into
 *             port send   registers            tail's reply       ACKs, or leaves
 *             the packet?                                         them as replies
 *
 * Read it in that order: include/headers.p4, pipeline.p4, admission.p4, chain.p4 (which lists its
 * stages), routing.p4, egress.p4. docs/protocol.md explains the rules in prose. netcraq_psa.p4 is
 * the same program for the Portable Switch Architecture.
 */
#include "include/arch_v1model.p4"
#include "include/headers.p4"
#include "include/pipeline.p4"
#include "include/egress.p4"

parser PacketParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
#include "include/parser_states.p4"
}

control NetcraqVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control NetcraqIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Pipeline() pipeline;
    apply {
        meta.ingress_port = standard_metadata.ingress_port;
        meta.now = (bit<64>)standard_metadata.ingress_global_timestamp;
        meta.checksum_error = standard_metadata.checksum_error == 1;
        pipeline.apply(hdr, meta);
        if (meta.forwarding.drop) {
            mark_to_drop(standard_metadata);
        } else if (meta.forwarding.multicast_group != 0) {
            standard_metadata.mcast_grp = meta.forwarding.multicast_group;
        } else {
            standard_metadata.egress_spec = meta.forwarding.egress_port;
        }
    }
}

control NetcraqEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    EgressReplication() egress_replication;
    apply {
        bool drop = false;
        egress_replication.apply(hdr, standard_metadata.egress_rid, standard_metadata.egress_port,
                                 standard_metadata.ingress_port, drop);
        if (drop) {
            mark_to_drop(standard_metadata);
        }
    }
}

control NetcraqComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control PacketDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

@pkginfo(name = "netcraq", version = "1", organization = "NetCRAQ", url = "https://github.com/netcraq/netcraq")
V1Switch(PacketParser(), NetcraqVerifyChecksum(), NetcraqIngress(), NetcraqEgress(), NetcraqComputeChecksum(),
         PacketDeparser()) main;

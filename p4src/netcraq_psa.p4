/* SPDX-License-Identifier: Apache-2.0
 *
 * NetCRAQ for the Portable Switch Architecture: the controls of netcraq.p4 between PSA's blocks.
 * Read netcraq.p4 first. The comments here explain only what differs for PSA.
 *
 * PSA parses a packet again at egress and keeps no metadata across the traffic manager. The bridge
 * header carries the ingress port, which the packet-in header needs. The shared controls'
 * metadata_t is a header, because p4c omits other user metadata (arch_psa.p4). Only ingress uses
 * it.
 */
#include "include/arch_psa.p4"
#include "include/headers.p4"
#include "include/pipeline.p4"
#include "include/egress.p4"

struct empty_t {}
header options_t { bit<16> sum; }
struct user_metadata_t {
    metadata_t shared;
    options_t  options;
}

parser PacketIngressParser(packet_in packet, out headers_t hdr, inout user_metadata_t user_meta,
                           in psa_ingress_parser_input_metadata_t istd,
                           in empty_t resubmit_meta, in empty_t recirculate_meta) {
    InternetChecksum() ipv4_checksum;
    state start {
        transition select((PortIdUint_t)istd.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
#include "include/parser_states.p4"
}

/* Ingress changes the header, and the egress deparser recomputes its checksum, so the egress parser
 * does not verify it. */
#undef PARSER_VERIFY_IPV4
#define PARSER_VERIFY_IPV4(IPV4)

/* The part of the IPv4 checksum that the options contribute, taken from the packet's checksum,
 * which ingress keeps right for a header with options. The deparser adds this part to the sum of
 * the fields, because p4c allows no condition there. */
#undef PARSER_SUM_IPV4
#define PARSER_SUM_IPV4(IPV4) \
        ipv4_checksum.clear(); \
        ipv4_checksum.add({ IPV4.version, IPV4.ihl, IPV4.tos, IPV4.total_length, IPV4.identification, IPV4.flags, \
                            IPV4.fragment_offset, IPV4.ttl, IPV4.protocol, IPV4.checksum, IPV4.src, IPV4.dst }); \
        user_meta.options.sum = ipv4_checksum.get();

control NetcraqIngress(inout headers_t hdr, inout user_metadata_t user_meta, in psa_ingress_input_metadata_t istd,
                       inout psa_ingress_output_metadata_t ostd) {
    Pipeline() pipeline;
    apply {
        user_meta.shared.setValid();
        user_meta.shared = { 0, 0, false, trust_t.HOST, 0, false, 0, 0, false, false, false, 0, 0, 0, false, false,
                             false, false, 0,
                             { false, role_t.NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
                             false, false, false, 0, kv_op_t.READ_REPLY, chain_op_t.NONE, false, false,
                             { false, false, false, false, false, false, false, 0 },
                             { 0, 0, false, false, false, false, false, false },
                             { false, false, 0 },
                             { verdict_t.PASS, 0, 0 },
                             { false, false, 0, 0 }, 0 };
        user_meta.shared.ingress_port = (bit<9>)(PortIdUint_t)istd.ingress_port;
        user_meta.shared.now = (TimestampUint_t)istd.ingress_timestamp;
        user_meta.shared.checksum_error = istd.parser_error == error.BadIPv4Checksum;
        pipeline.apply(hdr, user_meta.shared);
        hdr.bridge.setValid();
        hdr.bridge.ingress_port = user_meta.shared.ingress_port;
        hdr.bridge.padding = 0;
        if (user_meta.shared.forwarding.drop) {
            ingress_drop(ostd);
        } else if (user_meta.shared.forwarding.multicast_group != 0) {
            multicast(ostd, (MulticastGroup_t)(MulticastGroupUint_t)user_meta.shared.forwarding.multicast_group);
        } else {
            send_to_port(ostd, (PortId_t)(PortIdUint_t)user_meta.shared.forwarding.egress_port);
        }
    }
}

control PacketIngressDeparser(packet_out packet, out empty_t clone_i2e_meta, out empty_t resubmit_meta,
                              out empty_t normal_meta, inout headers_t hdr, in user_metadata_t user_meta,
                              in psa_ingress_output_metadata_t istd) {
    apply {
        packet.emit(hdr);
    }
}

parser PacketEgressParser(packet_in packet, out headers_t hdr, inout user_metadata_t user_meta,
                          in psa_egress_parser_input_metadata_t istd,
                          in empty_t normal_meta, in empty_t clone_i2e_meta, in empty_t clone_e2e_meta) {
    InternetChecksum() ipv4_checksum;
    state start {
        user_meta.options.setValid();
        user_meta.options.sum = 0;
        packet.extract(hdr.bridge);
        transition parse_ethernet;
    }
#include "include/parser_states.p4"
}

control NetcraqEgress(inout headers_t hdr, inout user_metadata_t user_meta, in psa_egress_input_metadata_t istd,
                      inout psa_egress_output_metadata_t ostd) {
    EgressReplication() egress_replication;
    apply {
        bool drop = false;
        egress_replication.apply(hdr, (bit<16>)(EgressInstanceUint_t)istd.instance,
                                 (bit<9>)(PortIdUint_t)istd.egress_port, hdr.bridge.ingress_port, drop);
        hdr.bridge.setInvalid();
        if (hdr.ipv4.ihl == 5) {
            user_meta.options.sum = 0;
        }
        if (drop) {
            egress_drop(ostd);
        }
    }
}

control PacketEgressDeparser(packet_out packet, out empty_t clone_e2e_meta, out empty_t recirculate_meta,
                             inout headers_t hdr, in user_metadata_t user_meta, in psa_egress_output_metadata_t istd,
                             in psa_egress_deparser_input_metadata_t edstd) {
    InternetChecksum() checksum;
    apply {
        checksum.clear();
        checksum.add({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
                       hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src,
                       hdr.ipv4.dst, user_meta.options.sum });
        hdr.ipv4.checksum = checksum.get();
        packet.emit(hdr);
    }
}

IngressPipeline(PacketIngressParser(), NetcraqIngress(), PacketIngressDeparser()) ingress;
EgressPipeline(PacketEgressParser(), NetcraqEgress(), PacketEgressDeparser()) egress;
@pkginfo(name = "netcraq", version = "1", organization = "NetCRAQ", url = "https://github.com/netcraq/netcraq")
PSA_Switch(ingress, PacketReplicationEngine(), egress, BufferingQueueingEngine()) main;

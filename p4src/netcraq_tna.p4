/* SPDX-License-Identifier: Apache-2.0
 *
 * NetCRAQ for the Tofino Native Architecture (Tofino 1, and T2NA for Tofino 2). Its ingress is
 * include/chip/pipeline.p4: the rules of netcraq.p4 in the form in which a chip's stages execute
 * them. Read netcraq.p4 first; only what the architecture does otherwise is said here.
 *
 * As in PSA, a packet is parsed again at egress, and the bridge header carries its ingress port,
 * which packet-in tells. The value is not parsed there: it passes as payload.
 *
 * docs/reference/hardware.md has the chip's limits and what a control plane writes differently.
 */
#include "include/arch_tna.p4"
#include "include/headers.p4"
#include "include/chip/pipeline.p4"
#include "include/egress.p4"

/* What a resubmitted packet brings along: nothing, but the chip leaves room for it. */
header resubmit_t {
    bit<64> unused;
}

parser PacketIngressParser(packet_in packet, out headers_t hdr, out chip_metadata_t meta,
                           out ingress_intrinsic_metadata_t intrinsic) {
    Checksum() ipv4_checksum;
    resubmit_t resubmitted;

    state start {
        packet.extract(intrinsic);
        meta.ingress_port = intrinsic.ingress_port;
        hdr.bridge.setValid();
        hdr.bridge.ingress_port = intrinsic.ingress_port;
        hdr.bridge.padding = 0;
        transition select(intrinsic.resubmit_flag) {
            1: parse_resubmit;
            default: parse_port_metadata;
        }
    }
    state parse_resubmit {
        packet.extract(resubmitted);
        meta.again = 1;
        transition parse_port;
    }
    state parse_port_metadata {
        packet.advance(PORT_METADATA_SIZE);
        transition parse_port;
    }
    state parse_port {
        transition select(intrinsic.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
#include "include/chip/parser_states.p4"
}

control NetcraqIngress(inout headers_t hdr, inout chip_metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
                       in ingress_intrinsic_metadata_from_parser_t parsed,
                       inout ingress_intrinsic_metadata_for_deparser_t dprsr,
                       inout ingress_intrinsic_metadata_for_tm_t tm) {
    ChipPipeline() pipeline;
    apply {
        meta.now = parsed.global_tstamp[47:16];
        pipeline.apply(hdr, meta, tm, dprsr);
    }
}

control PacketIngressDeparser(packet_out packet, inout headers_t hdr, in chip_metadata_t meta,
                              in ingress_intrinsic_metadata_for_deparser_t dprsr) {
    Resubmit() resubmit;
    apply {
        if (dprsr.resubmit_type == TM_RESUBMITTED) {
            resubmit.emit<resubmit_t>({ 0 });
        }
        packet.emit(hdr);
    }
}

struct egress_metadata_t {
    bit<1> plain;    // the IPv4 header has no options
}

parser PacketEgressParser(packet_in packet, out headers_t hdr, out egress_metadata_t meta,
                          out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.extract(hdr.bridge);
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl) {
            (4, 5): parse_plain_ipv4;
            default: accept;
        }
    }
    state parse_plain_ipv4 {
        meta.plain = 1;
        transition select(hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0 &&& 1, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.src_port) {
            (NETCRAQ_PORT, _): parse_netcraq;
            (_, NETCRAQ_PORT): parse_netcraq;
            default: accept;
        }
    }
    state parse_netcraq {
        packet.extract(hdr.netcraq);
        transition accept;
    }
}

control NetcraqEgress(inout headers_t hdr, inout egress_metadata_t meta, in egress_intrinsic_metadata_t intrinsic,
                      in egress_intrinsic_metadata_from_parser_t parsed,
                      inout egress_intrinsic_metadata_for_deparser_t dprsr,
                      inout egress_intrinsic_metadata_for_output_port_t port) {
    EgressReplication() egress_replication;
    apply {
        bool drop = false;
        egress_replication.apply(hdr, intrinsic.egress_rid, intrinsic.egress_port, hdr.bridge.ingress_port, drop);
        hdr.bridge.setInvalid();
        if (drop) {
            dprsr.drop_ctl = TM_DROPPED;
        }
    }
}

control PacketEgressDeparser(packet_out packet, inout headers_t hdr, in egress_metadata_t meta,
                             in egress_intrinsic_metadata_for_deparser_t dprsr) {
    Checksum() checksum;
    apply {
        if (meta.plain == 1) {
            hdr.ipv4.checksum = checksum.update({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
                hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol,
                hdr.ipv4.src, hdr.ipv4.dst });
        }
        packet.emit(hdr);
    }
}

Pipeline(PacketIngressParser(), NetcraqIngress(), PacketIngressDeparser(), PacketEgressParser(), NetcraqEgress(),
         PacketEgressDeparser()) pipe;
@pkginfo(name = "netcraq", version = "1", organization = "NetCRAQ", url = "https://github.com/netcraq/netcraq")
Switch(pipe) main;

/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's controls (../include/chip/) between v1model's blocks. This program is for tests: our
 * engines and BMv2 run the tables, entries and register accesses that netcraq_tna.p4 gives a chip.
 */
#include "../include/arch_chip_v1model.p4"
#include "../include/headers.p4"
#include "../include/chip/pipeline.p4"
#include "../include/egress.p4"

parser PacketParser(packet_in packet, out headers_t hdr, inout chip_metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
#include "../include/chip/parser_states.p4"
}

control NetcraqVerifyChecksum(inout headers_t hdr, inout chip_metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control NetcraqIngress(inout headers_t hdr, inout chip_metadata_t meta, inout standard_metadata_t standard_metadata) {
    ChipPipeline() pipeline;
    apply {
        traffic_t traffic = { 0, 0, 0, 0 };
        if (meta.again == 0) {
            meta.ingress_port = standard_metadata.ingress_port;
        }
        meta.now = (bit<32>)(standard_metadata.ingress_global_timestamp >> 6);
        meta.checksum_error = (bit<1>)standard_metadata.checksum_error;
        pipeline.apply(hdr, meta, traffic);
        if (traffic.resubmit == 1) {
            resubmit_preserving_field_list(0);
        } else if (traffic.drop == 1) {
            mark_to_drop(standard_metadata);
        } else if (traffic.multicast_group != 0) {
            standard_metadata.mcast_grp = traffic.multicast_group;
        } else {
            standard_metadata.egress_spec = traffic.egress_port;
        }
    }
}

control NetcraqEgress(inout headers_t hdr, inout chip_metadata_t meta, inout standard_metadata_t standard_metadata) {
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

control NetcraqComputeChecksum(inout headers_t hdr, inout chip_metadata_t meta) {
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

@pkginfo(name = "netcraq_chip", version = "1", organization = "NetCRAQ", url = "https://github.com/netcraq/netcraq")
V1Switch(PacketParser(), NetcraqVerifyChecksum(), NetcraqIngress(), NetcraqEgress(), NetcraqComputeChecksum(),
         PacketDeparser()) main;

/* SPDX-License-Identifier: Apache-2.0
 * Two cells of one register in each packet, by two numbers.
 */
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}
struct headers_t {
    ethernet_t ethernet;
}
struct metadata_t {
}

parser TransferParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control TransferIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(16) balance;
    bit<32> from;
    bit<32> to;

    apply {
        std.egress_spec = 1;
        balance.read(from, (bit<32>)hdr.ethernet.src[3:0]);
        balance.write((bit<32>)hdr.ethernet.src[3:0], from - 1);
        balance.read(to, (bit<32>)hdr.ethernet.dst[3:0]);
        balance.write((bit<32>)hdr.ethernet.dst[3:0], to + 1);
    }
}

control TransferEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
    }
}
control TransferVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control TransferCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control TransferDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(TransferParser(), TransferVerify(), TransferIngress(), TransferEgress(), TransferCompute(), TransferDeparser()) main;

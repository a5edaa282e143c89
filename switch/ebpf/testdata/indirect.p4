/* SPDX-License-Identifier: Apache-2.0
 * A register whose cells say which cell of another one is meant: nobody can tell before it is read.
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

parser IndirectParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control IndirectIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(16) place;
    register<bit<32>>(16) count;
    bit<32> at;
    bit<32> n;

    apply {
        std.egress_spec = 1;
        place.read(at, (bit<32>)hdr.ethernet.src[3:0]);
        count.read(n, at);
        count.write(at, n + 1);
    }
}

control IndirectEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
    }
}
control IndirectVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control IndirectCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control IndirectDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(IndirectParser(), IndirectVerify(), IndirectIngress(), IndirectEgress(), IndirectCompute(), IndirectDeparser()) main;

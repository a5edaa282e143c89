/* SPDX-License-Identifier: Apache-2.0
 * Counts packets by source in a register, the slow way: read, look something up, add, write. What two packets do must not mix, or counts are lost.
 * The example of docs/switch.md, and the program of the tests for atomicity.
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

parser TallyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control TallyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(16) tally;
    bit<32> seen;
    bit<32> step = 1;

    action forward(bit<9> port, bit<32> by) {
        std.egress_spec = port;
        step = by;
    }
    action drop() {
        mark_to_drop(std);
    }
    table where {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 64;
    }
    apply {
        tally.read(seen, (bit<32>)hdr.ethernet.src[3:0]);
        where.apply();
        seen = seen + step;
        tally.write((bit<32>)hdr.ethernet.src[3:0], seen);
    }
}

control TallyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
    }
}
control TallyVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control TallyCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control TallyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
    }
}

V1Switch(TallyParser(), TallyVerify(), TallyIngress(), TallyEgress(), TallyCompute(), TallyDeparser()) main;

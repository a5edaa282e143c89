/* SPDX-License-Identifier: Apache-2.0
 * Does to a frame what its destination address says, and counts it in a register: sends it by a port as it is, with a short header more, with one that is longer than what
 * a driver leaves free in front of a frame, or with one less; or by all ports of a group, each copy with its number in the source address.
 * For tests of what happens to frames at the two hooks.
 */
#include <core.p4>
#include <v1model.p4>

const bit<16> SHORT = 0x88B5; // two types for experiments (IEEE 802)
const bit<16> LONG = 0x88B6;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}
header short_t {
    bit<32> count;
    bit<16> ether_type;
}
header long_t {
    bit<2048> a;
    bit<2032> b;
    bit<16>   ether_type;
}
struct headers_t {
    ethernet_t ethernet;
    short_t    short;
    long_t     long;
}
struct metadata_t {
}

parser HooksParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            SHORT: parse_short;
            LONG: parse_long;
            default: accept;
        }
    }
    state parse_short {
        packet.extract(hdr.short);
        transition accept;
    }
    state parse_long {
        packet.extract(hdr.long);
        transition accept;
    }
}

control HooksIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(1) seen;
    bit<32> n;

    action forward(bit<9> port) {
        std.egress_spec = port;
    }
    action flood(bit<16> group) {
        std.mcast_grp = group;
    }
    action shorten(bit<9> port) {
        std.egress_spec = port;
        hdr.ethernet.ether_type = hdr.short.ether_type;
        hdr.short.setInvalid();
    }
    action lengthen(bit<9> port) {
        std.egress_spec = port;
        hdr.short.setValid();
        hdr.short.count = n;
        hdr.short.ether_type = hdr.ethernet.ether_type;
        hdr.ethernet.ether_type = SHORT;
    }
    action lengthen_much(bit<9> port) {
        std.egress_spec = port;
        hdr.long.setValid();
        hdr.long.a = 1;
        hdr.long.b = 2;
        hdr.long.ether_type = hdr.ethernet.ether_type;
        hdr.ethernet.ether_type = LONG;
    }
    action drop() {
        mark_to_drop(std);
    }
    table what {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; flood; shorten; lengthen; lengthen_much; drop; }
        default_action = drop();
        size = 64;
    }
    apply {
        seen.read(n, 0);
        n = n + 1;
        seen.write(0, n);
        what.apply();
    }
}

control HooksEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.instance_type == 5) { // a copy of a group
            hdr.ethernet.src[15:0] = std.egress_rid;
        }
    }
}
control HooksVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control HooksCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control HooksDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.short);
        packet.emit(hdr.long);
    }
}

V1Switch(HooksParser(), HooksVerify(), HooksIngress(), HooksEgress(), HooksCompute(), HooksDeparser()) main;

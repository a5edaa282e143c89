// SPDX-License-Identifier: Apache-2.0
// A header stack that is indexed by what the packet says, in expressions, assignments and conditions.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header label_t { bit<20> label; bit<3> tc; bit<1> bottom; bit<8> ttl; bit<96> wide; }
struct headers_t { ethernet_t ethernet; label_t[3] labels; }
struct metadata_t { bit<8> i; }

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.ethernet);
        transition select(h.ethernet.src[0:0]) { 1: labels; default: accept; }
    }
    state labels {
        pkt.extract(h.labels.next);
        transition select(h.labels.last.bottom) { 0: labels; default: accept; }
    }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        m.i = h.ethernet.dst[7:0] & 3;
        h.ethernet.type = (bit<16>)h.labels[m.i].ttl;
        if (h.labels[m.i].ttl == 1) { h.ethernet.dst[15:8] = 0x77; }
        h.labels[m.i].ttl = h.labels[m.i].ttl - 1;
        h.labels[m.i].wide = h.labels[m.i].wide ^ 96w0xff00000000000000000000ee;
        h.labels[m.i + 1].label = h.labels[m.i].label;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { h.labels[(bit<2>)m.i].tc = 5; }
}
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out pkt, in headers_t h) { apply { pkt.emit(h.ethernet); pkt.emit(h.labels); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;

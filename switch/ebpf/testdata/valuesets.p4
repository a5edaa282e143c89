// SPDX-License-Identifier: Apache-2.0
// Parser value sets: of one field, of several, and of a wide one.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header wide_t { bit<96> a; bit<8> b; bit<8> found; }
struct headers_t { ethernet_t ethernet; wide_t wide; }
struct metadata_t { bit<8> found; }
struct pair_t { bit<8> x; bit<5> y; }

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) bytes;
    value_set<pair_t>(3) pairs;
    value_set<bit<96>>(2) wides;
    state start {
        pkt.extract(h.ethernet);
        transition select(h.ethernet.dst[7:0]) {
            bytes: in_bytes;
            default: not_in_bytes;
        }
    }
    state in_bytes { m.found = 1; transition second; }
    state not_in_bytes { transition second; }
    state second {
        transition select(h.ethernet.src[7:0], h.ethernet.src[12:8]) {
            pairs: in_pairs;
            default: third;
        }
    }
    state in_pairs { m.found = m.found | 2; transition third; }
    state third {
        pkt.extract(h.wide);
        transition select(h.wide.a) {
            wides: in_wides;
            default: accept;
        }
    }
    state in_wides { m.found = m.found | 4; transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        h.ethernet.type = 0x8800 | (bit<16>)m.found;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out pkt, in headers_t h) { apply { pkt.emit(h.ethernet); pkt.emit(h.wide); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// Selects with cases that match whatever comes before others: p4c writes them as several defaults. In P4 the first case that matches counts; in BMv2 a default counts after all others, and
// of several the last one.
#include <core.p4>
#include <v1model.p4>

header way_t {
    bit<8> a;
    bit<8> b;
    bit<8> took;
    bit<88> rest;
}

struct headers_t {
    way_t way;
}

struct metadata_t {
    bit<8> took;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.way);
        transition select(h.way.a, h.way.b) {
            (1, 1) : one;
            (_, _) : two;
            (2, 2) : three;
            default : four;
        }
    }
    state one {
        m.took = 1;
        transition range;
    }
    state two {
        m.took = 2;
        transition range;
    }
    state three {
        m.took = 3;
        transition range;
    }
    state four {
        m.took = 4;
        transition range;
    }
    state range {
        transition select(h.way.a) {
            0 .. 255 : full;
            7 : seven;
            default : rest;
        }
    }
    state full {
        m.took = m.took | 0x10;
        transition accept;
    }
    state seven {
        m.took = m.took | 0x20;
        transition accept;
    }
    state rest {
        m.took = m.took | 0x40;
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        h.way.took = m.took;
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { }
}

control C(inout headers_t h, inout metadata_t m) {
    apply { }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.way);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

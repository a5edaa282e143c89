// SPDX-License-Identifier: Apache-2.0
// Recirculates, and makes no copies: each pass adds a header with what it saw of the metadata.
#include <core.p4>
#include <v1model.p4>

header count_t {
    bit<8> left;
    bit<8> passes;
}

header saw_t {
    bit<8> instance;
    bit<8> kept;
    bit<8> lost;
    bit<8> length;
}

struct headers_t {
    count_t count;
    saw_t saw;
}

struct metadata_t {
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.count);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        m.kept = m.kept + 1;
        m.lost = m.lost + 1;
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        h.saw.setValid();
        h.saw.instance = (bit<8>)sm.instance_type;
        h.saw.kept = m.kept;
        h.saw.lost = m.lost;
        h.saw.length = (bit<8>)sm.packet_length;
        h.count.passes = h.count.passes + 1;
        if (h.count.left > 0) {
            h.count.left = h.count.left - 1;
            recirculate_preserving_field_list(1);
        }
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply { }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.count);
        pkt.emit(h.saw);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// Resubmits, and makes no copies: the frame says how often, and what each pass sees of the metadata goes into it.
#include <core.p4>
#include <v1model.p4>

header count_t {
    bit<8> left;
    bit<8> instance;
    bit<8> kept;
    bit<8> lost;
}

struct headers_t {
    count_t count;
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
        h.count.instance = (bit<8>)sm.instance_type;
        h.count.kept = m.kept;
        h.count.lost = m.lost;
        if (m.kept <= h.count.left) {
            resubmit_preserving_field_list(1);
        }
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
        pkt.emit(h.count);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// One member of a header union assigned to another: the one that is written becomes valid and the
// other invalid, both to isValid and to the deparser. BMv2 sends the member, and says that it is
// not valid.
#include <core.p4>
#include <v1model.p4>

header way_t {
    bit<8> way;
    bit<8> first;
    bit<8> second;
    bit<88> rest;
}

header member_t {
    bit<16> value;
}

header_union either_t {
    member_t first;
    member_t second;
}

struct headers_t {
    way_t way;
    either_t either;
}

struct metadata_t {
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.way);
        transition select(h.way.way) {
            1 : first;
            2 : second;
            3 : first;
            4 : second;
            default : accept;
        }
    }
    state first {
        pkt.extract(h.either.first);
        transition accept;
    }
    state second {
        pkt.extract(h.either.second);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (h.way.way < 3) {
            h.either.second = h.either.first;
        }
        h.way.first = h.either.first.isValid() ? 8w1 : 0;
        h.way.second = h.either.second.isValid() ? 8w1 : 0;
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
        pkt.emit(h.either);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

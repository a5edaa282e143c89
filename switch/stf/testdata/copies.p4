// SPDX-License-Identifier: Apache-2.0
// What makes a packet several, or go round again: multicast, clones of both kinds, resubmit, recirculate; with truncation and drops. Every copy says in a
// header what it saw of its metadata.
#include <core.p4>
#include <v1model.p4>

header do_t {
    bit<8> ingress_op;
    bit<8> egress_op;
    bit<16> arg;
    bit<8> round;
}

header saw_t {
    bit<8> instance;
    bit<16> egress_port;
    bit<16> ingress_port;
    bit<16> rid;
    bit<32> length;
    bit<8> kept;
    bit<8> lost;
}

struct headers_t {
    saw_t saw;
    do_t doit;
}

struct metadata_t {
    @field_list(1, 2)
    bit<8> kept;
    bit<8> lost;
    @field_list(2)
    bit<8> round;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        transition select(sm.instance_type) {
            4 : recirculated;
            default : plain;
        }
    }
    state recirculated {
        pkt.extract(h.saw);
        transition plain;
    }
    state plain {
        pkt.extract(h.doit);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        m.kept = m.kept + 0x11;
        m.lost = m.lost + 0x21;
        if (h.doit.ingress_op == 1) {
            sm.mcast_grp = h.doit.arg;
        } else if (h.doit.ingress_op == 2) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)h.doit.arg, 1);
            h.doit.round = 0xcc;
        } else if (h.doit.ingress_op == 3) {
            if (m.round < 2) {
                m.round = m.round + 1;
                h.doit.round = h.doit.round + 1;
                resubmit_preserving_field_list(2);
            }
        } else if (h.doit.ingress_op == 4) {
            mark_to_drop(sm);
        } else if (h.doit.ingress_op == 5) {
            truncate((bit<32>)h.doit.arg);
        } else if (h.doit.ingress_op == 6) {
            clone(CloneType.I2E, (bit<32>)h.doit.arg);
            mark_to_drop(sm);
        } else if (h.doit.ingress_op == 7) {
            h.saw.setValid();
            sm.egress_spec = (bit<9>)h.doit.arg;
        } else if (h.doit.ingress_op == 8) {
            truncate(9);
            sm.mcast_grp = h.doit.arg;
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        if (h.saw.isValid()) {
            h.doit.ingress_op = h.doit.ingress_op | 0x80;
        }
        h.saw.setValid();
        h.saw.instance = (bit<8>)sm.instance_type;
        h.saw.egress_port = (bit<16>)sm.egress_port;
        h.saw.ingress_port = (bit<16>)sm.ingress_port;
        h.saw.rid = sm.egress_rid;
        h.saw.length = sm.packet_length;
        h.saw.kept = m.kept;
        h.saw.lost = m.lost;
        if (sm.instance_type == 0 || sm.instance_type == 5) {
            if (h.doit.egress_op == 1) {
                clone_preserving_field_list(CloneType.E2E, (bit<32>)h.doit.arg, 2);
                h.doit.round = 0xee;
            } else if (h.doit.egress_op == 2) {
                if (h.doit.round < 3) {
                    h.doit.round = h.doit.round + 1;
                    recirculate_preserving_field_list(1);
                }
            } else if (h.doit.egress_op == 3) {
                mark_to_drop(sm);
            } else if (h.doit.egress_op == 4) {
                truncate(40);
            }
        }
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply { }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.saw);
        pkt.emit(h.doit);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

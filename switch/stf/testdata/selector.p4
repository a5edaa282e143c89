// SPDX-License-Identifier: Apache-2.0
// Tables whose actions are in an action profile or an action selector.
#include <core.p4>
#include <v1model.p4>

header flow_t {
    bit<8> table_index;
    bit<8> key;
    bit<32> flow;
}

struct headers_t {
    flow_t flow;
}

struct metadata_t { }

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.flow);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    action_profile(8) members;
    action_selector(HashAlgorithm.crc16, 16, 16) chooser;

    action out_by(bit<9> port) {
        sm.egress_spec = port;
    }
    action toss() {
        mark_to_drop(sm);
    }
    table profiled {
        key = {
            h.flow.key : exact;
        }
        actions = {
            out_by;
            toss;
        }
        implementation = members;
    }
    table profiled_too {
        key = {
            h.flow.key : ternary;
        }
        actions = {
            out_by;
            toss;
        }
        implementation = members;
    }
    table selected {
        key = {
            h.flow.key : exact;
            h.flow.flow : selector;
        }
        actions = {
            out_by;
            toss;
            NoAction;
        }
        implementation = chooser;
    }

    apply {
        sm.egress_spec = 9;
        if (h.flow.table_index == 0) {
            profiled.apply();
        } else if (h.flow.table_index == 1) {
            profiled_too.apply();
        } else {
            if (selected.apply().hit) {
                h.flow.key = 0xff;
            }
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
        pkt.emit(h.flow);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// A box of cables: what comes in at port 1 leaves by port 2 and back, the same for 3 and 4, and so on. On netcraq-switch with --faults, cables that lose, double and
// reorder frames, for tests of switches that cannot do that to themselves.
#include <core.p4>
#include <v1model.p4>

struct headers_t { }

struct metadata_t { }

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition accept; }
}

control V(inout headers_t h, inout metadata_t m) { apply { } }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { sm.egress_spec = ((sm.ingress_port - 1) ^ 1) + 1; }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) { apply { } }

control C(inout headers_t h, inout metadata_t m) { apply { } }

control D(packet_out pkt, in headers_t h) { apply { } }

V1Switch(P(), V(), I(), E(), C(), D()) main;

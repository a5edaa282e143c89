/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables whose entries have idle timeouts, and one whose entries have none.
 */
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}
struct headers_t { ethernet_t ethernet; }
struct metadata_t {}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    action forward(bit<9> port) { standard_metadata.egress_spec = port; }
    table learned {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 16;
    }
    table filtered {
        key = { hdr.ethernet.src: ternary; }
        actions = { NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 16;
    }
    table kept {
        key = { hdr.ethernet.src: exact; }
        actions = { NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        learned.apply();
        filtered.apply();
        kept.apply();
    }
}

control MyVerify(inout headers_t hdr, inout metadata_t meta) { apply {} }
control MyEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) { apply {} }
control MyCompute(inout headers_t hdr, inout metadata_t meta) { apply {} }
control MyDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;

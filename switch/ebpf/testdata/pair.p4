/* SPDX-License-Identifier: Apache-2.0
 * Two registers that packets write together and read together: whoever reads them must find the same in both. The program of the tests for reading without the lock.
 */
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}
/* 64 bytes: moved between frame and register on its own. */
header value_t {
    bit<512> value;
}
struct headers_t {
    ethernet_t ethernet;
    value_t    value;
}
struct metadata_t {
}

const bit<16> READ  = 0x1111;
const bit<16> WRITE = 0x2222;

parser PairParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.value);
        transition accept;
    }
}

control PairIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<64>>(16) left;
    register<bit<64>>(16) right;
    register<bit<512>>(16) values;
    counter(2, CounterType.packets) found;      // 0: the same in both, 1: not
    bit<64> l;
    bit<64> r;
    bit<32> index = (bit<32>)hdr.ethernet.src[3:0];

    apply {
        std.egress_spec = 1;
        if (hdr.ethernet.ether_type == WRITE) {
            left.read(l, index);
            l = l + 1;
            left.write(index, l);
            right.write(index, l);
            values.write(index, hdr.value.value);
        } else if (hdr.ethernet.ether_type == READ) {
            left.read(l, index);
            right.read(r, index);
            if (l == r) {
                hdr.ethernet.dst = (bit<48>)l;
                found.count(0);
                values.read(hdr.value.value, index);
            } else {
                found.count(1);
            }
        }
    }
}

control PairEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
    }
}
control PairVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control PairCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control PairDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(PairParser(), PairVerify(), PairIngress(), PairEgress(), PairCompute(), PairDeparser()) main;

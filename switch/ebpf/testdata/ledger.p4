/* SPDX-License-Identifier: Apache-2.0
 * Registers of two families: those of an account, and those of an item, which has four cells beside
 * its sum, one of which is chosen by the sum. A packet writes registers of both, or reads them: the program of the tests for stripes.
 */
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}
header entry_t {
    bit<16> account;
    bit<32> item;
}
struct headers_t {
    ethernet_t ethernet;
    entry_t    entry;
}
struct metadata_t {
}

const bit<16> READ  = 0x1111;
const bit<16> WRITE = 0x2222;
const bit<16> LIMIT = 0x3333;

parser LedgerParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.entry);
        transition accept;
    }
}

control LedgerIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<64>>(1) limit;         // up to which account packets may write
    register<bit<64>>(1024) account;
    register<bit<64>>(256) item;
    register<bit<64>>(1024) cells;      // four of each item
    counter(2, CounterType.packets) found;      // 0: the same in both, 1: not
    bit<64> most;
    bit<64> a;
    bit<64> i;
    bit<64> c;
    bit<32> index;

    apply {
        std.egress_spec = 1;
        if (hdr.ethernet.ether_type == LIMIT) {
            limit.read(most, 0);
            limit.write(0, most ^ 1);
        } else if (hdr.ethernet.ether_type == WRITE) {
            limit.read(most, 0);
            if ((bit<64>)hdr.entry.account < most) {
                account.read(a, (bit<32>)hdr.entry.account);
                a = a + 1;
                account.write((bit<32>)hdr.entry.account, a);
                item.read(i, hdr.entry.item);
                i = i + 1;
                item.write(hdr.entry.item, i);
                index = (hdr.entry.item << 2) + (bit<32>)i[1:0];
                cells.read(c, index);
                cells.write(index, c + 1);
                hdr.ethernet.dst = (bit<48>)a;
            }
        } else if (hdr.ethernet.ether_type == READ) {
            account.read(a, (bit<32>)hdr.entry.account);
            item.read(i, hdr.entry.item);
            if (a == i) {
                found.count(0);
            } else {
                found.count(1);
            }
            index = (hdr.entry.item << 2) + (bit<32>)i[1:0];
            cells.read(c, index);
            hdr.ethernet.dst = (bit<48>)c;
        }
    }
}

control LedgerEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
    }
}
control LedgerVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control LedgerCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control LedgerDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(LedgerParser(), LedgerVerify(), LedgerIngress(), LedgerEgress(), LedgerCompute(), LedgerDeparser()) main;

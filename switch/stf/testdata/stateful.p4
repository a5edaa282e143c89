// SPDX-License-Identifier: Apache-2.0
// What outlives a packet, and what is computed over one: registers narrow and wide, counters, meters, hashes, checksums, digests, log messages.
#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> op;
    bit<16> index;
    bit<64> value;
    bit<128> wide;
}

header sum_t {
    bit<4> a;
    bit<12> b;
    bit<32> c;
    bit<16> sum;
}

header answer_t {
    bit<32> narrow;
    bit<128> wide;
    bit<16> extra;
    bit<8> verdict;
}

struct headers_t {
    answer_t answer;
    request_t request;
    sum_t sum;
}

struct seen_t {
    bit<16> index;
    bit<5> low;
    bit<64> value;
}

struct metadata_t {
    bit<2> color;
    bit<2> direct_color;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.request);
        transition select(h.request.op[7:7]) {
            1 : sum;
            default : accept;
        }
    }
    state sum {
        pkt.extract(h.sum);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.sum.isValid() && h.request.index != 0, { h.sum.a, h.sum.b, h.sum.c }, h.sum.sum, HashAlgorithm.csum16);
        verify_checksum_with_payload(h.sum.isValid() && h.request.index == 0, { h.sum.a, h.sum.b, h.sum.c, 16w0xbeef }, h.sum.sum, HashAlgorithm.csum16);
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    register<bit<13>>(10) narrow;
    register<bit<128>>(4) wide;
    register<int<8>>(2) signed;
    counter(8, CounterType.packets_and_bytes) packets;
    meter(4, MeterType.packets) limit;
    direct_meter<bit<2>>(MeterType.bytes) direct_limit;

    action measured(bit<16> v) {
        direct_limit.read(m.direct_color);
        h.answer.extra = v;
    }
    table metered {
        key = {
            h.request.index : exact;
        }
        actions = {
            measured;
            NoAction;
        }
        default_action = NoAction;
        meters = direct_limit;
    }

    apply {
        sm.egress_spec = 1;
        h.answer.setValid();
        bit<13> n;
        if (h.request.op == 0) {
            narrow.read(n, (bit<32>)h.request.index);
            h.answer.narrow = (bit<32>)n;
            narrow.write((bit<32>)h.request.index, (bit<13>)h.request.value);
        } else if (h.request.op == 1) {
            wide.read(h.answer.wide, (bit<32>)h.request.index);
            wide.write((bit<32>)h.request.index, h.request.wide + 1);
        } else if (h.request.op == 2) {
            int<8> x;
            signed.read(x, 1);
            x = x - 100;
            signed.write(1, x);
            h.answer.narrow = (bit<32>)(int<32>)x;
        } else if (h.request.op == 3) {
            packets.count((bit<32>)h.request.index);
        } else if (h.request.op == 4) {
            limit.execute_meter((bit<32>)h.request.index, m.color);
            h.answer.verdict = (bit<8>)m.color;
        } else if (h.request.op == 5) {
            metered.apply();
            h.answer.verdict = (bit<8>)m.direct_color;
        } else if (h.request.op == 6) {
            hash(h.answer.narrow, HashAlgorithm.crc32, 32w0, { h.request.index, h.request.value, h.request.wide[10:0] }, 64w0x100000000);
            hash(h.answer.extra, HashAlgorithm.crc16, 16w5, { h.request.index, h.request.value }, 32w1000);
            hash(h.answer.wide, HashAlgorithm.identity, 128w1, { h.request.value }, 64w0xffffffffffffffff);
        } else if (h.request.op == 7) {
            hash(h.answer.narrow, HashAlgorithm.xor16, 32w0, { h.request.index, h.request.value, h.request.op }, 32w0x10000);
            hash(h.answer.extra, HashAlgorithm.csum16, 16w0, { h.request.value, h.request.op }, 32w0x10000);
            hash(h.answer.wide, HashAlgorithm.crc32_custom, 128w0, { h.request.value }, 64w0x100000000);
        } else if (h.request.op == 8) {
            digest<seen_t>(1, { h.request.index, (bit<5>)h.request.value, h.request.value });
        } else if (h.request.op == 9) {
            log_msg("index {} value {}", { h.request.index, h.request.value });
            log_msg("done");
        } else if (h.request.op == 10) {
            bit<16> dice;
            random(dice, 16w7, 16w7);
            h.answer.extra = dice;
        } else if (h.request.op == 11) {
            assert(h.request.index != 0xdead);
            h.answer.verdict = 1;
        } else {
            h.answer.verdict = (bit<8>)sm.checksum_error;
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.sum.isValid() && h.request.index != 0, { h.sum.a, h.sum.b, h.sum.c }, h.sum.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(h.sum.isValid() && h.request.index == 0, { h.sum.a, h.sum.b, h.sum.c, 16w0xbeef }, h.sum.sum, HashAlgorithm.csum16);
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.answer);
        pkt.emit(h.sum);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 120: Wide Signed Saturate Multiply Stack Lookahead Verify Counter Random Resubmit Truncate
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<1> f0;
    int<40> f1;
    int<16> f2;
    bit<20> f3;
    int<19> f4;
}

header t0_t {
    int<31> f0;
    bit<25> f1;
}

header t1_t {
    bit<64> f0;
    bit<9> f1;
    bit<5> f2;
    bit<10> f3;
}

header t2_t {
    bit<12> f0;
    bit<12> f1;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<48> m0;
    bit<16> m1;
    bit<96> m2;
    int<7> m3;
    bit<6> m4;
}

struct headers_t {
    t2_t h1;
    t0_t[3] s0;
    eth_t eth;
    t0_t h0;
    seen_t seen;
}

struct metadata_t {
    @field_list(2, 3) bit<48> m0;
    @field_list(3) bit<16> m1;
    @field_list(1, 2, 3) bit<96> m2;
    @field_list(1, 2) int<7> m3;
    @field_list(2) bit<6> m4;
    @field_list(1, 2, 3) bit<8> rounds;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition accept;
    }
    state take_h0 {
        pkt.extract(h.h0);
        transition accept;
    }
    state take_h1 {
        pkt.extract(h.h1);
        transition select(m.m1[2:0]) {
            default: take_s0;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        pkt.extract(h.s0.next);
        transition select(h.eth.sel[7:5], pkt.lookahead<bit<40>>()) {
            (3w5 &&& 3w3, _): accept;
            (3w6 .. 3w7, 40w1 .. 40w1): accept;
            default: accept;
        }
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<16> v1 = 16w0;
    bit<7> v2 = 7w1;
    counter(32, CounterType.packets_and_bytes) c3;
    action a4() {
        m.m3 = (((-(h.h0.isValid() ? h.h0.f0 : 31s3)) >= ((int<31>)(bit<31>)(h.h0.isValid() ? h.h0.f1 : 25w0) ^ (int<31>)31w2147483647)) ? (7s5 * ((int<7>)v2)) : (int<7>)(bit<7>)((bit<64>)(bit<31>)(h.s0[1].isValid() ? h.s0[1].f0 : 31s3)));
        m.m4 = ((bit<6>)m.m1 & (((bit<6>)h.eth.f3 ^ 6w63) |-| ((bit<6>)(h.s0[2].isValid() ? h.s0[2].f1 : 25w16777216) |+| (bit<6>)(bit<19>)h.eth.f4)));
        v1 = (((16w5 * 16w62737) * ((bit<16>)(h.s0[0].isValid() ? h.s0[0].f1 : 25w0) * v1)) * (16w3 ^ (16w0 + v1)));
    }
    action a5(bit<12> p0, bit<32> p1, int<15> p2) {
        h.h0.f0 = ((((h.h0.isValid() ? h.h0.f0 : (int<31>)31w2147483647) |-| (h.s0[2].isValid() ? h.s0[2].f0 : (int<31>)31w2147483647)) + (~(h.s0[0].isValid() ? h.s0[0].f0 : (int<31>)31w2147483647))) - (((h.s0[1].isValid() ? h.s0[1].f0 : 31s0) + (h.s0[2].isValid() ? h.s0[2].f0 : (int<31>)31w2123942850)) - ((m.m3 != 7s0) ? (int<31>)m.m3 : (int<31>)(bit<31>)(h.s0[2].isValid() ? h.s0[2].f1 : 25w16777216))));
    }
    action a6(bit<4> p0) {
        h.h0.setValid();
        h.h0.f0 = (31s3 + (int<31>)(bit<31>)(h.s0[0].isValid() ? h.s0[0].f1 : 25w33554431));
        h.h0.f1 = ((h.s0[2].isValid() ? h.s0[2].f1 : 25w4) & (h.s0[0].isValid() ? h.s0[0].f1 : 25w0));
        h.h0 = h.s0[1];
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        switch (((bit<3>)h.eth.f0 |-| 3w7)) {
            7: {
                c3.count((bit<32>)(((bit<5>)sm.checksum_error |+| (bit<5>)(h.h0.isValid() ? h.h0.f1 : 25w0))));
            }
            1: {
                h.s0[0].setValid();
                h.s0[0].f0 = (int<31>)((int<47>)(bit<47>)v1);
                h.s0[0].f1 = (25w9254855 |-| (h.s0[1].isValid() ? h.s0[1].f1 : 25w0));
            }
            4: {
            }
            default: {
            }
        }
        if (m.rounds < 1 && h.eth.way[5:4] == 0) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(2);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<100> v7 = 100w1;
    int<47> v8 = 47s5;
    bit<1> v9 = 1w0;
    counter(1, CounterType.packets_and_bytes) c10;
    action a11() {
        h.s0.push_front(1);
    }
    apply {
        h.h1.f0 = (-(-(h.h1.isValid() ? h.h1.f1 : 12w4)));
        h.h1.f0 = ((~((h.h1.isValid() ? h.h1.f0 : 12w2) | 12w4)) & (h.h1.isValid() ? h.h1.f0 : 12w2048));
        if (h.h0.isValid()) {
            h.h1.f1 = (bit<12>)((bit<24>)(bit<16>)h.eth.f2);
            m.m1 = (((~m.m1) | (m.m1 * sm.egress_rid)) - ((m.m1 |-| (bit<16>)h.h0.f1) * (16w0 | m.m1)));
        }
        truncate(32w150 + (bit<32>)(((bit<6>)(bit<31>)(h.s0[2].isValid() ? h.s0[2].f0 : 31s0) | m.m4)));
        h.s0.pop_front(2);
        h.seen.setValid();
        h.seen.instance_type = sm.instance_type;
        h.seen.packet_length = sm.packet_length;
        h.seen.ingress_port = sm.ingress_port;
        h.seen.egress_port = sm.egress_port;
        h.seen.egress_rid = sm.egress_rid;
        h.seen.checksum_error = sm.checksum_error;
        h.seen.m0 = m.m0;
        h.seen.m1 = m.m1;
        h.seen.m2 = m.m2;
        h.seen.m3 = m.m3;
        h.seen.m4 = m.m4;
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.eth);
        pkt.emit(h.h1);
        pkt.emit(h.h0);
        pkt.emit(h.s0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

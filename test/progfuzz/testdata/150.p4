// Program 150: Wide Signed Shift Multiply Stack Lookahead Verify Loop Table Random Hash OddHash Truncate Digest Call
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    int<13> f0;
    bit<55> f1;
    bit<40> f2;
    bit<4> f3;
}

header t0_t {
    bit<8> f0;
    int<24> f1;
}

header t1_t {
    bit<40> f0;
    int<24> f1;
    bit<129> f2;
    int<16> f3;
    bit<103> f4;
}

header loop_t {
    bit<3> more;
    bit<21> f0;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<32> m0;
    bit<40> m1;
    bit<13> m2;
    bit<16> m3;
}

struct headers_t {
    t0_t[1] s1;
    t1_t h0;
    loop_t[4] s0;
    eth_t eth;
    seen_t seen;
}

struct metadata_t {
    bit<32> m0;
    bit<40> m1;
    bit<13> m2;
    bit<16> m3;
}

struct digest_t {
    bit<32> a;
    bit<9> b;
}

bit<24> fn1(in bit<48> x, in int<31> y) {
    return ((bit<24>)(bit<31>)y + (((bit<24>)(bit<31>)y | (bit<24>)(bit<31>)y) >> 25));
}

bit<48> fn2(in bit<48> x, in bit<32> y) {
    if ((!((bit<48>)y >= x))) {
        return (bit<48>)y;
    }
    return (bit<48>)(bit<16>)((int<16>)16w55933);
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition select(h.eth.sel[4:2], sm.ingress_port[2:0]) {
            (3w2, 3w7): accept;
            (3w3, 3w3 .. 3w7): take_h0;
            default: accept;
        }
    }
    state take_s1 {
        pkt.extract(h.s1.next);
        m.m1 = (bit<40>)pkt.lookahead<bit<8>>();
        h.eth.f3 = 4w1;
        transition select(h.eth.sel[6:4], m.m3) {
            (3w2, 16w0 .. 16w4): accept;
            (3w5 &&& 3w5, _): take_h0;
            default: take_h0;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        h.eth.f1 = ((bit<55>)m.m1 >> 6);
        transition select(h.s0.last.more) {
            3w0: take_h0;
            3w1: take_h0;
            3w4 &&& 3w4: take_s0;
            default: take_s0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        transition select(h.eth.sel[7:5], m.m2, m.m2[2:0]) {
            (3w7, 13w2, 3w2 .. 3w6): accept;
            (_, 13w2 &&& 13w3, 3w2): accept;
            (3w2 &&& 3w4, 13w2, _): accept;
            default: reject;
        }
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<6> v3 = 6w1;
    action a4() {
        h.eth.f3 = ((!((bit<32>)sm.ingress_port > sm.packet_length)) ? (bit<4>)((~(bit<16>)v3)) : (bit<4>)(h.s1[0].isValid() ? h.s1[0].f0 : 8w0));
    }
    action a5(int<16> p0, bit<20> p1, bit<40> p2) {
        digest<digest_t>(1, { (sm.packet_length ^ (bit<32>)(h.s0[2].isValid() ? h.s0[2].f0 : 21w1754482)), sm.ingress_port });
        h.s0[1].setValid();
        h.s0[1].more = ((bit<3>)(bit<24>)(h.s1[0].isValid() ? h.s1[0].f1 : 24s3) - 3w1);
        h.s0[1].f0 = (bit<21>)(bit<16>)(p0);
    }
    action a6() {
        h.eth.way = (((bit<40>)(bit<12>)((int<12>)(bit<12>)h.eth.way) > (h.eth.f2 * h.eth.f2)) ? (~(bit<8>)m.m2) : (~(~8w0)));
        h.eth.f3 = (((h.eth.f3 * h.eth.f3) ^ ((bit<4>)m.m0 << 2)) >> ((-h.eth.sel)));
        if ((!h.eth.isValid())) {
            h.h0.f3 = (h.h0.isValid() ? h.h0.f3 : 16s4);
        }
        h.eth.way = (bit<8>)h.eth.f2;
    }
    table t7 {
        key = {
            ((m.m1 ^ (h.h0.isValid() ? h.h0.f0 : 40w1099511627775)) - (((bit<2>)v3 < (bit<2>)(h.h0.isValid() ? h.h0.f0 : 40w0)) ? (bit<40>)sm.ingress_port : h.eth.f2)) : exact @name("k0");
            h.eth.sel : optional @name("k1");
            (((bit<9>)m.m2 + sm.ingress_port) | (9w0 >> 10)) : exact @name("k2");
            h.h0.isValid() : exact @name("valid");
        }
        actions = {
            a6;
            NoAction;
        }
        const default_action = NoAction();
        size = 64;
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        truncate(32w150 + (bit<32>)((((103w4)[48:46] < 7) ? v3 : v3)));
        h.s0[1].more = (h.s0[3].isValid() ? h.s0[3].more : 3w2);
        {
            bit<16> v8;
            random(v8, 16w0, 16w11781);
            if (v8 < 0 || v8 > 11781) { m.m2 = 13w3; }
        }
        switch (t7.apply().action_run) {
            default: {
                hash(m.m2, HashAlgorithm.xor16, 13w1, { 32w4103683455 }, 13w3175);
                if (h.s0[3].isValid()) {
                    h.s0.pop_front(3);
                    truncate(32w150 + (bit<32>)(v3));
                    h.eth.f1 = ((h.eth.f1 - h.eth.f1) + (bit<55>)(h.eth.f3));
                }
            }
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<64> v9 = 64s1;
    int<64> v10 = 64s8760039557287341826;
    action a11() {
        h.s0[3].more = (((h.s0[3] != h.s0[0]) ? (~3w2) : ((h.s0[1].isValid() ? h.s0[1].more : 3w4) - (h.s0[1].isValid() ? h.s0[1].more : 3w0))) - ((~(bit<3>)m.m1) & ((bit<3>)(bit<24>)(h.h0.isValid() ? h.h0.f1 : 24s4) & (bit<3>)sm.ingress_port)));
        hash(h.h0.f0, HashAlgorithm.crc32, 40w0, { h.eth.f0, 32w2147483648 }, 40w281373111872);
        hash(h.s1[0].f0, HashAlgorithm.crc32, 8w0, { m.m2, h.eth.f0 }, 8w29);
    }
    action a12(in bit<32> in0, inout int<64> io0) {
        h.h0.f0 = h.eth.f2;
    }
    action a13() {
        if (((h.eth.way)[5:4] <= 0)) {
            h.eth.sel = (h.eth.sel - ((bit<8>)m.m3 << 1));
        }
        h.eth.f1 = h.eth.f1;
        m.m1 = h.eth.f2;
    }
    table t14 {
        key = {
            h.eth.sel : range @name("k0");
            32w2147483648 : exact @name("k1");
            (bit<13>)h.eth.f0 : exact @name("k2");
        }
        actions = {
            a11;
            a13;
            NoAction;
        }
        const default_action = a11();
        size = 128;
    }
    apply {
        switch (t14.apply().action_run) {
            a13: {
                m.m2 = (((bit<13>)h.eth.f0) | m.m2);
                hash(h.s0[0].f0, HashAlgorithm.crc32, 21w1, { sm.ingress_port, 40w208723756039 }, 21w924389);
            }
            default: {
                h.h0.f4 = (-((bit<103>)(bit<64>)v9 - ((h.h0.isValid() ? h.h0.f4 : 103w10141204801825835211973625643007) << 84)));
            }
        }
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
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.eth);
        pkt.emit(h.h0);
        pkt.emit(h.s0);
        pkt.emit(h.s1);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

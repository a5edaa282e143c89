// Program 154: Signed Saturate Shift Concat Stack Lookahead Verify ValueSet Random OddHash Digest Call
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    int<15> f0;
    bit<7> f1;
    bit<55> f2;
    int<32> f3;
    bit<3> f4;
}

header t0_t {
    int<16> f0;
    bit<47> f1;
    bit<1> f2;
}

header t1_t {
    bit<12> f0;
    bit<64> f1;
    bit<16> f2;
    bit<1> f3;
    bit<3> f4;
}

header t2_t {
    bit<16> f0;
    bit<9> f1;
    bit<16> f2;
    bit<2> f3;
    bit<53> f4;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<9> m0;
    bit<64> m1;
    int<8> m2;
    int<24> m3;
    bit<40> m4;
    bit<4> pad;
}

struct headers_t {
    eth_t eth;
    t2_t[1] s1;
    t2_t h0;
    t0_t[4] s0;
    seen_t seen;
}

struct metadata_t {
    bit<9> m0;
    bit<64> m1;
    int<8> m2;
    int<24> m3;
    bit<40> m4;
}

struct digest_t {
    bit<9> a;
    bit<9> b;
}

int<64> fn1(in int<1> x, in bit<8> y) {
    return (-((int<64>)((bit<64>)64s0)));
}

bit<15> fn2(in bit<2> x, in bit<16> y) {
    if (((y)[11:10] == 3)) {
        return (((bit<14>)y ++ 1w0) + (bit<15>)(bit<55>)((int<55>)(bit<55>)y));
    }
    return (((y < (bit<16>)x) ? ((bit<5>)y + (bit<5>)y) : (bit<5>)y) ++ (bit<10>)x);
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) vs;
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition select(pkt.lookahead<bit<3>>(), pkt.lookahead<bit<5>>()) {
            (3w6 .. 3w7, 5w0): take_h0;
            default: accept;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        m.m4 = (m.m4 | m.m4);
        transition select(h.eth.sel[7:5], h.h0.f4) {
            (3w3, 53w6): take_s1;
            (_, 53w3 .. 53w6): accept;
            default: take_s1;
        }
    }
    state take_s1 {
        pkt.extract(h.s1.next);
        transition select(h.eth.sel[6:4], h.eth.way) {
            (3w4, 8w5): accept;
            default: accept;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        verify((!((int<32>)(bit<32>)m.m0 < (int<32>)m.m2)), error.Odd);
        m.m4 = (bit<40>)pkt.lookahead<bit<12>>();
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<47> v3 = (int<47>)47w70368744177664;
    bit<64> v4 = 64w2;
    action a5() {
        h.s0[0].setInvalid();
        m.m4 = 40w0;
        h.s1.pop_front(1);
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if (((-(-(int<12>)(bit<12>)(h.s0[3].isValid() ? h.s0[3].f2 : 1w0))) != ((int<12>)(h.s0[1].isValid() ? h.s0[1].f0 : (int<16>)16w32768) | (int<12>)(bit<12>)(h.h0.isValid() ? h.h0.f2 : 16w3)))) {
            if (h.s0[2].isValid()) {
                h.s0[1].f0 = ((h.s0[2].f0 |-| (-(int<16>)16w45710)) >> 0);
                h.s0[2].f0 = ((((h.s0[1].isValid() ? h.s0[1].f0 : 16s1) >> 0) - ((int<16>)(bit<16>)h.s0[2].f2 |+| (int<16>)(bit<16>)(h.s1[0].isValid() ? h.s1[0].f3 : 2w3))) | (-(((h.s1[0].isValid() ? h.s1[0].f0 : 16w32768) == (h.s1[0].isValid() ? h.s1[0].f2 : 16w65535)) ? (int<16>)(bit<16>)m.m0 : (int<16>)v3)));
                m.m2 = ((~((((h.s1[0].isValid() ? h.s1[0].f2 : 16w3))[13:12] > 3) ? m.m2 : m.m2)) |+| (int<8>)(bit<8>)sm.packet_length);
            }
        } else {
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<17> v6 = 17w131071;
    bit<2> v7 = 2w0;
    bit<5> v8 = 5w2;
    action a9(bit<32> p0) {
        h.s0[3] = h.s0[2];
        h.eth.f1 = (((h.eth.f1 - (bit<7>)sm.ingress_port) << ((h.eth.way |-| h.eth.way))) + (((bit<4>)(int<4>)(bit<4>)(h.s0[1].isValid() ? h.s0[1].f2 : 1w0)) ++ (h.eth.f4 & 3w1)));
        h.s0[1] = h.s0[0];
    }
    action a10(bit<40> p0, bit<20> p1, bit<1> p2) {
        if (((47w140425969061112)[46:45] != 1)) {
            h.s0[3].f0 = (int<16>)m.m3;
        }
        h.s0[2].setInvalid();
    }
    action a11(in int<64> in0, inout int<8> io0) {
        h.h0.f1 = sm.ingress_port;
        h.s1[0].f2[7:1] = ((bit<7>)(bit<16>)(h.s0[0].isValid() ? h.s0[0].f0 : 16s0) | (((int<16>)16w65535 < (h.s0[3].isValid() ? h.s0[3].f0 : 16s3692)) ? (h.eth.f1 |+| h.eth.f1) : (h.eth.f1 |+| h.eth.f1)));
        h.s1[0] = h.h0;
    }
    apply {
        switch ((((h.s0[3] != h.s0[0]) ? (bit<4>)(bit<32>)h.eth.f3 : (bit<4>)(h.s0[2].isValid() ? h.s0[2].f1 : 47w4)) ^ (-(bit<4>)(h.s0[2].isValid() ? h.s0[2].f1 : 47w140737488355327)))) {
            5: {
                if ((!((int<12>)(bit<12>)(h.s0[1].isValid() ? h.s0[1].f1 : 47w70368744177664) < (int<12>)(bit<12>)h.eth.f1))) {
                    if ((((sm.packet_length << 26) >= sm.instance_type) || (!(((h.s0[0].isValid() ? h.s0[0].f1 : 47w2))[26:25] != 0)))) {
                        h.s0[1].setValid();
                        h.s0[1].f0 = (int<16>)(bit<16>)(17w4);
                        h.s0[1].f1 = ((bit<66>)(h.s1[0].isValid() ? h.s1[0].f4 : 53w0))[51:5];
                        h.s0[1].f2 = (h.s0[0].isValid() ? h.s0[0].f2 : 1w1);
                    }
                    if (h.h0.isValid()) {
                    }
                }
                if (h.s0[1].isValid()) {
                    m.m2 = (m.m2 + ((int<8>)(bit<8>)h.eth.f4 ^ (8s0 - (int<8>)(bit<8>)(h.s0[0].isValid() ? h.s0[0].f1 : 47w3))));
                }
            }
            7: {
                h.s1.pop_front(1);
            }
            default: {
                h.s0[1].setValid();
                h.s0[1].f0 = ((int<16>)h.eth.f0 |-| (int<16>)(bit<16>)sm.packet_length);
                h.s0[1].f1 = ((h.s0[0].isValid() ? h.s0[0].f1 : 47w3))[46:0];
                h.s0[1].f2 = ((h.s0[2].isValid() ? h.s0[2].f2 : 1w0) & 1w0);
                h.s0[1] = h.s0[2];
            }
        }
        if (h.h0.isValid()) {
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
        h.seen.m4 = m.m4;
        h.seen.pad = 0;
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.eth);
        pkt.emit(h.s0);
        pkt.emit(h.h0);
        pkt.emit(h.s1);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

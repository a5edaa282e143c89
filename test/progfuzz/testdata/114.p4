// Program 114: Wide Signed Saturate Shift Stack Verify Table Register Random Hash Checksum Recirc Multicast CPU Call
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<96> f0;
}

header t0_t {
    bit<128> f0;
    int<31> f1;
    bit<41> f2;
}

header t1_t {
    int<64> f0;
    bit<20> f1;
    bit<16> f2;
    int<4> f3;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> port;
    bit<7> pad;
}

@controller_header("packet_in")
header packet_in_t {
    bit<9> port;
    bit<7> pad;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<20> m0;
    bit<55> m1;
    int<4> m2;
    bit<2> m3;
    bit<32> m4;
    bit<24> m5;
    bit<4> pad;
}

struct headers_t {
    eth_t eth;
    t0_t[1] s0;
    t0_t h0;
    t0_t h1;
    seen_t seen;
    packet_out_t packet_out;
    packet_in_t packet_in;
}

struct metadata_t {
    @field_list(2) bit<20> m0;
    bit<55> m1;
    @field_list(1, 3) int<4> m2;
    @field_list(2) bit<2> m3;
    @field_list(2) bit<32> m4;
    @field_list(1, 2, 3) bit<24> m5;
    @field_list(1, 2, 3) bit<8> rounds;
}

bit<128> fn1(in bit<32> x, in bit<40> y) {
    return (bit<128>)y;
}

int<48> fn2(in int<12> x, in bit<32> y) {
    if (((y)[8:6] == 7)) {
        return (int<48>)x;
    }
    return (int<48>)((((bit<48>)(int<48>)x) & ((bit<48>)y |+| (bit<48>)y)));
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        transition select(sm.ingress_port) {
            510: packet_out;
            default: eth;
        }
    }
    state packet_out {
        pkt.extract(h.packet_out);
        transition eth;
    }
    state eth {
        pkt.extract(h.eth);
        transition select(h.eth.sel[6:4], h.eth.sel) {
            (3w7, 8w0): take_s0;
            (3w5 .. 3w7, 8w5): take_h1;
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        m.m4 = ((bit<32>)((bit<40>)h.eth.sel) | (bit<32>)h.eth.sel);
        h.eth.way = (8w128 |-| (h.eth.way |+| (bit<8>)h.eth.f0));
        transition select(h.eth.sel[3:1], h.eth.f0[2:0]) {
            (_, 3w1 &&& 3w7): accept;
            (3w6, 3w1): take_s0;
            (3w5, 3w5 &&& 3w0): take_h1;
            default: take_s0;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        verify((((bit<2>)h.eth.f0 << ((bit<3>)m.m1)) != (2w1 | (bit<2>)m.m0)), error.Odd);
        verify((m.m4 <= (32w1 + (bit<32>)h.eth.way)), error.Even);
        transition select(m.m0[2:0]) {
            3w2: reject;
            3w6 &&& 3w4: reject;
            default: reject;
        }
    }
    state take_h1 {
        pkt.extract(h.h1);
        verify((((int<100>)100w633825300114114700748351602688 ^ (int<100>)(bit<100>)sm.ingress_port) == ((int<100>)(bit<100>)m.m5 | (int<100>)(bit<100>)h.eth.f0)), error.Even);
        verify(((~m.m5) != (bit<24>)m.m0), error.Even);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<15> v3 = (int<15>)15w16384;
    bit<33> v4 = 33w0;
    action a5(bit<32> p0, bit<128> p1, bit<15> p2) {
        h.h1.f1 = (h.h1.isValid() ? h.h1.f1 : 31s2);
        h.eth.sel = h.eth.way;
    }
    action a6(in bit<80> in0, inout bit<8> io0) {
        h.s0.push_front(1);
    }
    action a7(bit<16> p0, bit<3> p1) {
        sm.egress_spec = 9w1 + (bit<9>)(m.m3 >> 3);
    }
    table t8 {
        key = {
            h.eth.sel[4:2] : exact @name("k0");
            m.m1 : exact @name("k1");
            (bit<15>)v3 : exact @name("k2");
        }
        actions = {
            a7;
            NoAction;
        }
        default_action = NoAction();
        size = 128;
    }
    table t9 {
        key = {
            sm.packet_length : exact @name("k0");
        }
        actions = {
            a5;
            NoAction;
        }
        default_action = NoAction();
        const entries = {
            (0) : NoAction();
        }
    }
    apply {
        switch (t9.apply().action_run) {
            a5: {
                if (((bit<96>)(bit<55>)(((int<55>)(bit<55>)(h.h0.isValid() ? h.h0.f2 : 41w2) ^ (int<55>)(h.h1.isValid() ? h.h1.f1 : 31s0))) >= (96w4 - (h.eth.f0 << ((bit<7>)m.m4))))) {
                    h.h1.f1 = ((((int<31>)31w1073741824 | (int<31>)31w1073741824) + ((h.s0[0].isValid() ? h.s0[0].f1 : 31s0) & (h.h0.isValid() ? h.h0.f1 : (int<31>)31w1073741824))) >> 22);
                } else {
                }
            }
        }
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if (h.eth.way[4:2] == 5) { sm.egress_spec = 510; }
        if (t8.apply().miss) {
            switch ((5w16 + ((bit<5>)sm.ingress_port | (bit<5>)sm.packet_length))) {
                6: {
                }
            }
        } else {
            h.h0 = h.h1;
        }
        if (h.packet_out.isValid()) {
            sm.egress_spec = h.packet_out.port;
            h.packet_out.setInvalid();
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<9> v10 = 9w273;
    bit<3> v11 = 3w0;
    action a12(bit<64> p0) {
        h.s0[0].f2 = ((bit<41>)(((((bit<32>)h.eth.f0)[4:3] != 0) ? (int<41>)(bit<41>)m.m4 : (int<41>)(bit<41>)sm.packet_length) |+| ((int<41>)(h.h1.isValid() ? h.h1.f1 : 31s2) - (int<41>)(bit<41>)v10)));
        h.eth.f0 = (~((~(bit<96>)(bit<31>)(h.h1.isValid() ? h.h1.f1 : 31s3)) |-| (-96w2)));
    }
    table t13 {
        key = {
            h.eth.sel[4:2] : range @name("k0");
            m.m1 : ternary @name("k1");
            h.eth.sel : optional @name("k2");
        }
        actions = {
            a12;
            NoAction;
        }
        size = 32;
    }
    table t14 {
        key = {
            h.eth.sel[4:2] : optional @name("k0");
            (bit<4>)((int<4>)(bit<4>)v11) : ternary @name("k1");
            v10 : optional @name("k2");
        }
        actions = {
            a12;
            NoAction;
        }
        size = 128;
    }
    apply {
        if (t13.apply().miss) {
            if (h.eth.isValid()) {
                h.h1.f0 = fn1(((~m.m4) + m.m4), (~(-40w5)));
            }
        }
        {
            bit<48> v15;
            random(v15, 48w1, 48w225505058368);
            if (v15 < 1 || v15 > 225505058368) { h.h0.f2 = 41w2; }
        }
        if (t14.apply().miss) {
            h.s0[0].f1 = (((sm.packet_length == sm.instance_type) ? (h.eth.isValid() ? (h.h0.isValid() ? h.h0.f1 : 31s0) : (int<31>)31w1073741824) : 31s0) |-| (~((int<31>)(bit<31>)sm.egress_port)));
        }
        if (h.s0[0].isValid()) {
        }
        if (m.rounds < 1 && h.eth.way[5:4] == 1) {
            m.rounds = m.rounds + 1;
            recirculate_preserving_field_list(2);
        }
        if (h.eth.way[3:2] == 1) { mark_to_drop(sm); }
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
        h.seen.m5 = m.m5;
        h.seen.pad = 0;
        if (sm.egress_port == 510) {
            h.packet_in.setValid();
            h.packet_in.port = sm.ingress_port;
            h.packet_in.pad = 0;
        }
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.packet_in);
        pkt.emit(h.eth);
        pkt.emit(h.h0);
        pkt.emit(h.s0);
        pkt.emit(h.h1);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 111: Wide Saturate Shift Concat Stack Union Varbit Loop TwoWays Table Register Counter Meter Hash Checksum Recirc Call Exit Loose
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<12> f0;
    bit<24> f1;
    bit<16> f2;
    bit<8> f3;
    bit<24> f4;
    bit<5> f5;
    bit<39> f6;
}

header t0_t {
    bit<16> f0;
    bit<8> f1;
}

header t1_t {
    bit<64> f0;
    bit<128> f1;
    bit<48> f2;
    bit<24> f3;
    bit<9> f4;
    bit<39> f5;
}

header t2_t {
    bit<12> f0;
    bit<28> f1;
}

header t3_t {
    bit<32> f0;
}

header loop_t {
    bit<3> more;
    bit<1> f0;
    bit<4> f1;
}

header vb_t {
    bit<3> f0;
    bit<13> f1;
    varbit<56> v;
}

header_union u_t {
    t0_t m0;
    t3_t m1;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<48> m0;
    bit<3> m1;
    bit<16> m2;
    bit<2> pad;
}

struct headers_t {
    loop_t[3] s0;
    t3_t[4] s1;
    vb_t vb;
    t3_t h1;
    eth_t eth;
    u_t u;
    t0_t h0;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 3) bit<48> m0;
    @field_list(3) bit<3> m1;
    bit<16> m2;
    @field_list(1, 2, 3) bit<8> rounds;
}

bit<6> fn1(in bit<47> x, in bit<32> y) {
    if (((47w3 >= x) || (y >= y))) {
        return ((bit<6>)y & (bit<6>)((bit<64>)x));
    }
    return (bit<6>)x;
}

bit<1> fn2(in bit<1> x, in bit<128> y) {
    if ((((bit<9>)x & (bit<9>)x) < ((bit<6>)y ++ 3w4))) {
        return ((x | x) & (x >> ((bit<3>)x)));
    }
    return ((bit<1>)(((bit<40>)y)[39:0]) - (bit<1>)((55w0 | (bit<55>)y)));
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition select(h.eth.sel[7:5]) {
            3w7 &&& 3w6: take_h1;
            _: take_h1;
            _: take_u1;
            default: take_u1;
        }
    }
    state take_u1 {
        pkt.extract(h.u.m1);
        transition select(h.eth.sel[2:0], h.u.m0.f0[2:0]) {
            (_, 3w6): take_s1;
            (_, _): take_h1;
            default: take_s0;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        m.m1 = ((h.eth.way != (bit<8>)h.vb.f1) ? m.m1 : (h.s0[0].f1)[2:0]);
        transition select(h.s0.last.more) {
            3w0: take_h0;
            3w1: take_h0;
            2 .. 5: take_s0;
            default: take_h1;
        }
    }
    state take_s1 {
        pkt.extract(h.s1.next);
        pkt.extract(h.s1.next);
        transition select(h.u.m0.f0[2:0]) {
            _: take_u0;
            3w3: take_vb;
            3w2 .. 3w6: take_h0;
            3w6 &&& 3w2: take_u0;
            default: take_h1;
        }
    }
    state take_h1 {
        pkt.extract(h.h1);
        h.eth.f3 = ((h.h0.f1 >> (h.eth.f5)) + (h.u.m0.f1 | (bit<8>)h.s0[1].f0));
        transition select(h.eth.sel[4:2], h.u.m0.f0[2:0]) {
            (_, 3w7): take_u0;
            (3w5, 3w0): take_u0;
            (3w4 &&& 3w5, 3w0): take_vb;
            (3w7, _): take_u0;
            (_, 0 .. 7): take_u0;
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        h.eth.f0 = (~h.eth.f0);
        h.h0.f0 = h.h0.f0;
        transition select(h.eth.sel[3:1]) {
            3w0: accept;
            3w1: take_vb;
            3w1: accept;
            3w7 .. 3w7: accept;
            default: accept;
        }
    }
    state take_vb {
        pkt.extract(h.vb, (bit<32>)h.eth.way);
        h.eth.f1 = h.eth.f1;
        h.eth.way = h.eth.way;
        transition select(h.eth.sel[3:1], h.eth.f1[2:0], h.vb.f0) {
            (3w3, 3w6 .. 3w7, 3w2 .. 3w4): take_u0;
            (3w7, 3w7, _): take_u0;
            (3w3, 3w1 .. 3w1, 3w2): take_u0;
            default: accept;
        }
    }
    state take_u0 {
        pkt.extract(h.u.m0);
        h.eth.f4 = (((bit<24>)m.m1 - 24w2) << ((~(bit<2>)h.s0[0].f1)));
        h.u.m0.f0 = ((bit<16>)((bit<160>)h.eth.way) << 12);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.eth.isValid(), { m.m0, 8w0, h.eth.f4, 8w4, h.eth.f5, h.eth.f6, h.eth.f3, 8w128, 12w0 }, h.eth.f2, HashAlgorithm.csum16);
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<127> v3 = 127w130332611093708983537995409001956581807;
    register<bit<16>>(16) r4;
    register<bit<33>>(2) r5;
    counter(32, CounterType.packets_and_bytes) c6;
    meter(8, MeterType.bytes) x7;
    action a8(bit<16> p0) {
        {
            bit<16> v9;
            r4.read(v9, (bit<32>)((h.s0[1].f1)[3:0]));
            v9 = ((bit<16>)m.m1 | (17w65536)[15:0]);
            r4.write((bit<32>)((h.s0[1].f1)[3:0]), v9);
        }
        r4.write((bit<32>)((bit<17>)h.u.m1.f0)[13:7], ((bit<16>)((bit<100>)h.s1[2].f0) + (h.eth.f2 - p0)));
    }
    table t10 {
        key = {
            h.eth.f3 : exact @name("k0");
            h.u.m1.f0 : exact @name("k1");
            h.eth.f5 : exact @name("k2");
        }
        actions = {
            a8;
            NoAction;
        }
        const entries = {
            (0, 6, 4) : NoAction();
            (1, 5, 4) : NoAction();
            (2, 7, 1) : a8(16w0);
            (3, 2, 0) : NoAction();
        }
    }
    table t11 {
        key = {
            h.u.m0.f0 : lpm @name("k0");
            h.u.m0.f1 : exact @name("k1");
        }
        actions = {
            a8;
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, 6) : NoAction();
            (1, 1) : a8(16w2);
            (2, 4) : NoAction();
        }
    }
    apply {
        t11.apply();
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        sm.egress_spec = 9w1 + (bit<9>)(2w2 |-| 2w1);
        {
            bit<33> v12;
            r5.read(v12, (bit<32>)((h.s0[0].f0 << (7w64))));
            v12 = v12;
            r5.write((bit<32>)((h.s0[0].f0 << (7w64))), v12);
        }
        switch (((h.eth.f5 + h.eth.f5) | 5w0)) {
            6: {
                if (t10.apply().hit) {
                    r4.read(h.h0.f0, 0);
                }
            }
            5: {
                if ((((h.u.m0.f0 |+| m.m2) >> 1) < ((~16w65535) >> ((bit<6>)h.eth.sel)))) {
                } else {
                }
            }
            default: {
            }
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<2> v13 = 2w3;
    bit<33> v14 = 33w267475252;
    bit<12> v15 = 12w4;
    register<bit<48>>(4) r16;
    register<bit<16>>(4) r17;
    register<bit<24>>(4) r18;
    counter(1, CounterType.packets_and_bytes) c19;
    meter(1, MeterType.bytes) x20;
    action a21(in bit<12> in0, inout bit<4> io0) {
        h.eth.f2 = ((((bit<128>)h.h0.f0)[29:29] > 1) ? (bit<16>)(((bit<32>)h.s0[2].more |-| h.h1.f0)) : (((((bit<63>)h.eth.f4)[56:55] != 1) ? h.eth.f4 : (bit<24>)h.s0[1].f0))[22:7]);
    }
    action a22(in bit<65> in0, inout bit<24> io0) {
        c19.count((bit<32>)(~(bit<5>)h.s1[3].f0));
        h.u.m0 = h.h0;
    }
    action a23(in bit<100> in0, inout bit<33> io0) {
        h.eth.f2 = ((bit<16>)((12w4095 << 0)) ^ ((((bit<2>)h.s0[2].f0 < 2w3) ? sm.egress_rid : 16w31163) ^ (bit<16>)h.eth.f1));
        hash(h.vb.f1, HashAlgorithm.identity, 13w1, { h.h1.f0, m.m1, h.eth.f5, v14, h.s1[1].f0 }, 13w3871);
    }
    direct_counter(CounterType.packets_and_bytes) dc25;
    table t24 {
        key = {
            h.eth.sel[3:1] : exact @name("k0");
            h.eth.f6 : optional @name("k1");
        }
        actions = {
            NoAction;
        }
        default_action = NoAction();
        const entries = {
            (0, _) : NoAction();
            (1, _) : NoAction();
        }
        counters = dc25;
    }
    direct_counter(CounterType.packets_and_bytes) dc27;
    table t26 {
        key = {
            (h.eth.f2 |-| (~h.u.m0.f0)) : lpm @name("k0");
            h.s1[3].f0 : exact @name("k1");
        }
        actions = {
            NoAction;
        }
        const entries = {
            (0, 1) : NoAction();
        }
        counters = dc27;
    }
    table t29 {
        key = {
            h.u.m1.f0 : lpm @name("k0");
            h.s0[0].f0 : exact @name("k1");
            h.s0[0].isValid() : exact @name("valid");
        }
        actions = {
            NoAction;
        }
        const default_action = NoAction();
        size = 32;
    }
    apply {
        if (t29.apply().miss) {
            if ((((bit<3>)sm.ingress_port >> (8w4)) == (3w0 |+| h.s0[2].more))) { return; }
            r17.write(1, ((bit<16>)(40w0) |+| 16w65535));
        }
        if (t26.apply().miss) {
            {
                bit<2> v28;
                x20.execute_meter<bit<2>>((bit<32>)(h.s0[2].f1 ^ (bit<4>)h.s1[1].f0), v28);
                h.h1.f0 = (bit<32>)v28;
            }
        }
        hash(h.eth.f2, HashAlgorithm.identity, 16w0, { h.s1[1].f0, h.h0.f1, h.eth.f3, h.u.m0.f0 }, 16w12311);
        t24.apply();
        r17.write((bit<32>)((bit<5>)h.s0[0].f0 >> 0), ((h.h0.f0 - 16w32768) + ((bit<16>)h.eth.f6 |-| h.eth.f2)));
        h.s0[2].f1 = 4w2;
        if ((((bit<64>)h.s0[2].more)[25:25] != 1)) {
        } else {
        }
        if (m.rounds < 2 && h.eth.way[5:4] != 2) {
            m.rounds = m.rounds + 1;
            recirculate_preserving_field_list(2);
        }
        if (h.eth.way[3:2] == 3) { mark_to_drop(sm); }
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
        h.seen.pad = 0;
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.h0.isValid() && h.eth.way[1:0] != 2, { m.m1, h.eth.sel, h.eth.way, h.eth.f0, h.eth.f1, h.eth.f2, 8w1, h.eth.f3, 9w0 }, h.h0.f0, HashAlgorithm.csum16);
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.eth);
        pkt.emit(h.h1);
        pkt.emit(h.u);
        pkt.emit(h.s1);
        pkt.emit(h.s0);
        pkt.emit(h.vb);
        pkt.emit(h.h0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 158: Signed Saturate Shift Union Verify ValueSet TwoWays Table Random Hash Multicast Call Exit
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<1> f0;
    bit<55> f1;
    bit<12> f2;
    bit<44> f3;
}

header t0_t {
    bit<55> f0;
    bit<12> f1;
    bit<6> f2;
    bit<7> f3;
}

header t1_t {
    bit<7> f0;
    int<33> f1;
}

header_union u_t {
    t0_t m0;
    t0_t m1;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<17> m0;
    bit<8> m1;
    bit<7> m2;
    bit<16> m3;
    bit<63> m4;
    bit<4> m5;
    bit<2> pad;
}

struct headers_t {
    eth_t eth;
    u_t u;
    t0_t h0;
    seen_t seen;
}

struct metadata_t {
    bit<17> m0;
    bit<8> m1;
    bit<7> m2;
    bit<16> m3;
    bit<63> m4;
    bit<4> m5;
}

bit<2> fn1(in bit<16> x, in bit<4> y) {
    if ((((bit<48>)y < 48w61752169554046) && ((bit<16>)y <= x))) {
        return (((bit<2>)x + (bit<2>)y) << ((bit<3>)y));
    }
    return (bit<2>)x;
}

bit<9> fn2(in int<32> x, in int<32> y) {
    return (((((int<8>)y == (int<8>)8w255) ? (bit<9>)(bit<32>)y : (bit<9>)(bit<32>)y) - (~9w47)) + ((bit<9>)(16w0) - (9w3 |-| (bit<9>)(bit<32>)y)));
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) vs;
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        h.eth.way = ((8w128 << ((bit<7>)m.m0)) |+| (~(bit<8>)h.eth.f0));
        m.m1 = (-(8w2 | h.eth.way));
        transition select(h.eth.sel[7:5], m.m1) {
            (3w6, 8w6): accept;
            (3w3, 8w3 &&& 8w3): take_u0;
            (3w6, 8w1): take_u1;
            default: accept;
        }
    }
    state take_u0 {
        pkt.extract(h.u.m0);
        h.eth.f0 = ((-(bit<1>)m.m3) |-| ((bit<1>)m.m2 >> ((bit<7>)m.m3)));
        h.eth.sel = ((8w128 |-| h.eth.way) - h.eth.way);
        transition select(h.eth.sel) {
            vs: take_u1;
            8w0: accept;
            0 .. 255: accept;
            default: take_u1;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        m.m4 = (((int<1>)(bit<1>)m.m3 != (int<1>)(bit<1>)h.h0.f2) ? m.m4 : m.m4);
        h.eth.sel = ((8w250 & m.m1) << 3);
        transition select(h.eth.sel[5:3], h.h0.f0[2:0]) {
            (_, 3w0): take_u1;
            (3w1 .. 3w5, 3w2): reject;
            (3w6 .. 3w7, 3w3 .. 3w4): reject;
            (3w7, 3w2): accept;
            (_, _): reject;
            default: accept;
        }
    }
    state take_u1 {
        pkt.extract(h.u.m1);
        m.m5 = m.m5;
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<8> v3 = 8w0;
    action a4(in bit<8> in0, inout bit<12> io0) {
        mark_to_drop(sm);
        exit;
    }
    action a5() {
        h.h0.f2 = ((6w3 + (bit<6>)m.m5) | ((bit<6>)(8w40) << (((bit<3>)(h.u.m1.isValid() ? h.u.m1.f3 : 7w127) |-| (bit<3>)m.m5))));
        h.eth.f3 = (((20s1 >= (int<20>)(bit<20>)m.m5) && h.u.m1.isValid()) ? (bit<44>)(((bit<9>)(int<9>)(bit<9>)sm.checksum_error)) : (((bit<44>)m.m0 << 8) & (h.eth.f3 + h.eth.f3)));
        if (h.u.m1.isValid()) {
            m.m4 = (bit<63>)v3;
        }
        h.eth.f3 = (bit<44>)((64w18446744073709551615 & (-(bit<64>)m.m2)));
    }
    table t6 {
        key = {
            ((~9w3) - ((bit<9>)(h.u.m0.isValid() ? h.u.m0.f3 : 7w5) |-| 9w206)) : exact @name("k0");
            m.m0 : exact @name("k1");
            (bit<9>)m.m5 : exact @name("k2");
        }
        actions = {
            a5;
            NoAction;
        }
        const entries = {
            (0, 4, 0) : a5();
            (1, 2, 6) : a5();
            (2, 7, 3) : NoAction();
        }
    }
    table t7 {
        key = {
            h.eth.way[4:2] : exact @name("k0");
        }
        actions = {
            a5;
            NoAction;
        }
        const default_action = a5();
        size = 128;
    }
    apply {
        switch (t7.apply().action_run) {
            a5: {
                h.u.m1.f2 = (bit<6>)(bit<64>)((64s3 + (64s0 + (int<64>)(bit<64>)m.m3)));
            }
        }
        switch (t6.apply().action_run) {
            default: {
                m.m1 = 8w128;
            }
        }
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if (h.u.m0.isValid()) {
            hash(h.u.m1.f0, HashAlgorithm.identity, 55w1, { h.u.m0.f0 }, 55w437370884948);
        }
        h.h0.f0 = (((~(h.h0.isValid() ? h.h0.f0 : 55w18014398509481984)) << 55) |+| (~((bit<55>)m.m0 << 31)));
        mark_to_drop(sm);
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<4> v8 = 4w15;
    bit<24> v9 = 24w0;
    action a10() {
        h.eth.f3 = ((h.eth.f3 |+| (((bit<55>)(h.u.m0.isValid() ? h.u.m0.f2 : 6w0) < (h.u.m0.isValid() ? h.u.m0.f0 : 55w18014398509481984)) ? h.eth.f3 : (bit<44>)sm.packet_length)) >> ((bit<4>)m.m3));
        exit;
        if (((6w13 > (h.u.m0.isValid() ? h.u.m0.f2 : 6w63)) && ((7w64)[4:2] <= 1))) {
            m.m5 = (bit<4>)((v9 |-| v9));
        }
    }
    table t11 {
        key = {
            m.m1 : exact @name("k0");
            sm.ingress_port : exact @name("k1");
            h.eth.f3 : exact @name("k2");
            h.eth.isValid() : exact @name("valid");
        }
        actions = {
            a10;
            NoAction;
        }
        const default_action = a10();
        size = 128;
    }
    apply {
        if ((h.u.m0.isValid() || (h.u.m1.isValid() && h.eth.isValid()))) {
            h.h0.f0 = (h.h0.isValid() ? h.h0.f0 : 55w36028797018963967);
        } else {
            if (((8w2)[3:3] > 0)) { return; }
        }
        hash(h.h0.f1, HashAlgorithm.crc16, 12w0, { h.eth.way, m.m5, h.eth.f1 }, 12w485);
        m.m0 = (bit<17>)m.m2;
        {
            bit<3> v12;
            random(v12, 3w3, 3w4);
            if (v12 < 3 || v12 > 4) { m.m4 = 63w4; }
        }
        t11.apply();
        if (h.eth.isValid()) {
            if (h.h0.isValid()) {
                {
                    bit<32> v13;
                    random(v13, 32w1, 32w1);
                    if (v13 < 1 || v13 > 1) { v8 = 4w0; }
                }
                switch (1w0) {
                    1: {
                    }
                }
            }
        } else {
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
        h.seen.m5 = m.m5;
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
        pkt.emit(h.h0);
        pkt.emit(h.u);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

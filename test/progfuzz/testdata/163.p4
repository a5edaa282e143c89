// Program 163: Wide Signed Multiply Stack Varbit Lookahead Table Random Hash CloneI2E Multicast Digest Call
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<4> f0;
    bit<1> f1;
    bit<33> f2;
    bit<58> f3;
}

header t0_t {
    bit<32> f0;
}

header t1_t {
    int<88> f0;
}

header t2_t {
    bit<8> f0;
    bit<48> f1;
    bit<8> f2;
}

header vb_t {
    bit<8> f0;
    varbit<136> v;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<8> m0;
    int<64> m1;
    bit<191> m2;
    bit<16> m3;
    int<16> m4;
    bit<6> pad;
}

struct headers_t {
    eth_t eth;
    vb_t vb;
    t0_t h0;
    t0_t[4] s0;
    seen_t seen;
}

struct metadata_t {
    @field_list(3) bit<8> m0;
    @field_list(1, 2, 3) int<64> m1;
    @field_list(1, 2) bit<191> m2;
    @field_list(2) bit<16> m3;
    @field_list(1) int<16> m4;
    @field_list(1, 2, 3) bit<8> rounds;
}

struct digest_t {
    bit<8> a;
    bit<9> b;
}

int<5> fn1(in bit<32> x, in int<48> y) {
    return ((~(~(int<5>)y)) * ((int<5>)y * 5s3));
}

bit<2> fn2(in bit<17> x, in bit<64> y) {
    if ((((8w128)[0:0] <= 0) || (x >= 17w4))) {
        return ((bit<2>)y & (((64w18446744073709551615)[1:1] == 1) ? 2w0 : (bit<2>)y));
    }
    return ((((((bit<64>)x)[54:54] == 0) ? (bit<2>)x : 2w0) ^ ((bit<2>)y & 2w1)) | 2w2);
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        h.eth.f3 = ((h.eth.f3 * h.eth.f3) - (h.eth.f3 & (bit<58>)h.eth.f2));
        transition select(sm.ingress_port[2:0], h.eth.f3[2:0], pkt.lookahead<bit<47>>()) {
            (3w1 .. 3w5, 3w4, 47w4): accept;
            (3w1, 3w6 .. 3w7, _): accept;
            (3w6 .. 3w7, 3w0, _): accept;
            (3w0, 3w2 .. 3w2, 47w4): take_s0;
            default: take_s0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        m.m4 = (16s1 ^ m.m4);
        m.m4 = (((int<16>)16w32768 | (int<16>)16w32768) * (m.m4 & (int<16>)(bit<16>)h.eth.f0));
        transition select(h.eth.sel[3:1]) {
            3w2: take_s0;
            3w2 &&& 3w7: take_s0;
            3w0 &&& 3w4: take_vb;
            default: take_vb;
        }
    }
    state take_vb {
        pkt.extract(h.vb, ((bit<32>)h.eth.way[3:0]) << 3);
        transition select(h.eth.sel[7:5], sm.ingress_port[2:0], h.eth.way[2:0]) {
            (3w1, 3w5, 3w4 &&& 3w7): take_s0;
            (3w6 .. 3w7, _, 3w0): take_s0;
            (3w4 .. 3w6, 3w7 .. 3w7, _): accept;
            (3w0, _, 3w6): accept;
            default: accept;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        h.eth.way = (((bit<16>)sm.ingress_port == m.m3) ? m.m0 : (~8w255));
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<6> v3 = 6w63;
    action a4() {
        sm.mcast_grp = ((4w0 > 4w0) ? m.m3 : m.m3)[1:0] == 3 ? 16w0 : 16w1 + (bit<16>)h.eth.way[3:2];
        h.eth.f0 = (-(bit<4>)((((sm.ingress_port)[8:8] <= 0) ? (bit<16>)v3 : 16w65535)));
        h.s0[0] = h.s0[1];
    }
    action a5(bit<5> p0, int<4> p1) {
        h.eth.sel = ((-((bit<8>)(h.s0[0].isValid() ? h.s0[0].f0 : 32w0))) - (((int<2>)2w2 >= 2s0) ? m.m0 : (((int<48>)(bit<48>)h.eth.sel != (int<48>)(bit<48>)(h.s0[3].isValid() ? h.s0[3].f0 : 32w5)) ? m.m0 : (h.vb.isValid() ? h.vb.f0 : 8w3))));
    }
    action a6(in int<12> in0, inout bit<4> io0) {
        h.vb.f0 = (bit<8>)(bit<24>)((int<24>)(bit<24>)((((bit<1>)(h.s0[2].isValid() ? h.s0[2].f0 : 32w4294967295) <= h.eth.f1) ? (bit<6>)sm.ingress_port : 6w18)));
        h.eth.way = (((h.eth.f3 ^ 58w288230376151711743) == (58w288230376151711743 * h.eth.f3)) ? ((8w194 * 8w230) + (8w255 ^ (h.vb.isValid() ? h.vb.f0 : 8w2))) : (((bit<8>)h.eth.f1 + 8w255) & (-8w255)));
        h.s0[3].f0 = ((((h.s0[1].isValid() ? h.s0[1].f0 : 32w0) - sm.packet_length) + (bit<32>)(7w64)) + ((~(h.h0.isValid() ? h.h0.f0 : 32w2)) - ((bit<32>)(bit<64>)m.m1 ^ (h.s0[2].isValid() ? h.s0[2].f0 : 32w2147483648))));
    }
    table t7 {
        key = {
            m.m2 : exact @name("k0");
            h.eth.way : exact @name("k1");
        }
        actions = {
            a4;
            NoAction;
        }
        const default_action = a4();
        size = 32;
    }
    table t8 {
        key = {
            m.m0 : optional @name("k0");
            sm.checksum_error : exact @name("k1");
        }
        actions = {
            a4;
            NoAction;
        }
        default_action = NoAction();
        size = 64;
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        hash(h.eth.f3, HashAlgorithm.identity, 58w1, { m.m1, m.m3 }, 58w1081414143930);
        {
            bit<48> v9;
            random(v9, 48w1, 48w1);
            if (v9 < 1 || v9 > 1) { v3 = 6w2; }
        }
        if ((((m.m1 ^ m.m1) > 64s3) && (!((bit<55>)v3 != (bit<55>)sm.instance_type)))) {
            h.vb.f0 = ((bit<8>)sm.packet_length * (bit<8>)(((bit<256>)(h.vb.isValid() ? h.vb.f0 : 8w0) | (bit<256>)m.m3)));
        } else {
            t7.apply();
            if (h.s0[1].isValid()) {
                h.eth.f3 = (((bit<58>)((int<58>)(bit<58>)h.eth.sel - (int<58>)m.m4)) - (((bit<58>)(h.s0[2].isValid() ? h.s0[2].f0 : 32w3162337370) - 58w288230376151711743) & ((bit<58>)(int<58>)(bit<58>)h.eth.way)));
                {
                    bit<2> i10 = (bit<2>)h.eth.f0;
                    h.s0[i10].f0 = (32w4294967295 * ((bit<32>)32s5));
                }
            }
        }
        t8.apply();
        if (m.rounds < 1 && h.eth.way[5:4] == 1) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.I2E, (bit<32>)h.eth.way[7:6], 3);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<127> v11 = 127s3;
    bit<191> v12 = 191w3;
    action a13(in bit<64> in0, inout bit<191> io0) {
        h.s0[1].setInvalid();
        m.m2 = ((bit<191>)h.eth.sel ^ io0);
    }
    action a14(int<31> p0) {
        v12 = ((m.m2 ^ ((32w3157167262 <= (h.s0[0].isValid() ? h.s0[0].f0 : 32w3214830688)) ? (bit<191>)(h.vb.isValid() ? h.vb.f0 : 8w0) : v12)) & ((bit<191>)(-(int<191>)m.m4)));
    }
    table t15 {
        key = {
            h.eth.way[5:3] : exact @name("k0");
            m.m0 : lpm @name("k1");
            sm.instance_type : exact @name("k2");
        }
        actions = {
            a14;
            NoAction;
        }
        default_action = NoAction();
        size = 32;
    }
    table t16 {
        key = {
            h.eth.way : lpm @name("k0");
            (bit<16>)m.m4 : exact @name("k1");
            m.m2 : exact @name("k2");
        }
        actions = {
            a14;
            NoAction;
        }
        default_action = a14(31s0);
        size = 64;
    }
    apply {
        switch (t15.apply().action_run) {
            default: {
                hash(m.m0, HashAlgorithm.identity, 8w1, { m.m0, 6w5, m.m0, h.eth.f1 }, 8w69);
            }
        }
        h.s0[2].f0 = (((bit<32>)((bit<80>)(h.s0[3].isValid() ? h.s0[3].f0 : 32w0)) ^ ((bit<32>)(int<32>)(bit<32>)(h.vb.isValid() ? h.vb.f0 : 8w128))) * (-(h.s0[1].isValid() ? h.s0[1].f0 : 32w0)));
        t16.apply();
        a13((bit<64>)(h.s0[3].isValid() ? h.s0[3].f0 : 32w4), v12);
        h.eth.f1 = ((~(h.eth.f1 - h.eth.f1)) + (h.eth.f1 + (h.eth.f1 + (bit<1>)(h.s0[3].isValid() ? h.s0[3].f0 : 32w653058034))));
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
        pkt.emit(h.h0);
        pkt.emit(h.s0);
        pkt.emit(h.vb);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

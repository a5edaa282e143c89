// Program 1036: Wide Shift Concat Union Varbit Table Checksum Recirc Multicast Truncate Call Exit Loose
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<8> f0;
    bit<16> f1;
    bit<8> f2;
    bit<88> f3;
}

header t0_t {
    bit<96> f0;
    bit<8> f1;
}

header t1_t {
    bit<48> f0;
}

header t2_t {
    bit<64> f0;
    bit<47> f1;
    bit<7> f2;
    bit<63> f3;
    bit<96> f4;
    bit<16> f5;
    bit<3> f6;
}

header t3_t {
    bit<32> f0;
    bit<16> f1;
}

header vb_t {
    bit<8> f0;
    varbit<136> v;
}

header_union u_t {
    t0_t m0;
    t3_t m1;
    t0_t m2;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<32> m0;
    bit<48> m1;
    bit<15> m2;
    bit<6> pad;
}

struct headers_t {
    t1_t h0;
    vb_t vb;
    eth_t eth;
    u_t u;
    t2_t h1;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 2, 3) bit<32> m0;
    @field_list(2) bit<48> m1;
    @field_list(3) bit<15> m2;
    @field_list(1, 2, 3) bit<8> rounds;
}

bit<20> fn1(in bit<127> x, in bit<17> y) {
    if ((((32w5)[6:4] != 7) || ((16w4)[14:14] >= 0))) {
        return (bit<20>)(((bit<256>)x - (bit<256>)y));
    }
    return (bit<20>)x;
}

bit<32> fn2(in bit<8> x, in bit<1> y) {
    if ((!((8w0)[1:1] >= 0))) {
        return ((bit<32>)((bit<256>)y) + ((bit<32>)y | (bit<32>)y));
    }
    return ((bit<32>)x)[31:0];
}

control Sub(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<32> v3 = 32w2191584922;
    bit<16> v4 = 16w65535;
    action a5(bit<16> p0) {
        v3 = m.m0;
        v3 = (32w4 << 24);
    }
    action a6(in bit<128> in0, inout bit<63> io0) {
        h.eth.way = ((((bit<29>)h.eth.f3)[24:2] | (27w61317897)[25:3]))[10:3];
    }
    action a7(in bit<16> in0, inout bit<8> io0) {
        m.m0 = (bit<32>)(h.vb.f0);
        exit;
    }
    table t8 {
        key = {
            h.eth.sel[2:0] : exact @name("k0");
            h.u.m1.f0 : exact @name("k1");
        }
        actions = {
            NoAction;
        }
        size = 128;
    }
    table t9 {
        key = {
            m.m2 : range @name("k0");
            h.u.m2.f0 : lpm @name("k1");
            h.u.m1.f1 : ternary @name("k2");
        }
        actions = {
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
        }
    }
    apply {
        v4 = ((bit<16>)(((bit<130>)h.eth.f0 ++ (bit<30>)sm.ingress_port)) >> (((6w4 << (h.u.m0.f1)) ++ 1w1)));
        t9.apply();
        t8.apply();
        a7((bit<16>)h.u.m0.f0, h.u.m0.f1);
        h.u.m1.f0[18:14] = ((bit<5>)((bit<8>)((bit<6>)h.u.m0.f0)) - (bit<5>)((h.u.m1.f0 | 32w1)));
    }
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition take_u1;
    }
    state take_u1 {
        pkt.extract(h.u.m1);
        transition select(h.eth.f3[2:0], h.h1.f6, h.eth.f0[2:0]) {
            default: take_u0;
        }
    }
    state take_h1 {
        pkt.extract(h.h1);
        transition select(h.eth.sel[7:5], h.h1.f0[2:0], sm.ingress_port[2:0]) {
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        transition select(h.h1.f3, h.h1.f2, h.u.m2.f0) {
            default: take_u2;
        }
    }
    state take_vb {
        pkt.extract(h.vb, (bit<32>)h.eth.way);
        h.eth.f1 = 16w62227;
        transition select(h.eth.sel[2:0]) {
            default: take_u2;
        }
    }
    state take_u0 {
        pkt.extract(h.u.m0);
        m.m2 = (m.m2 + m.m2);
        h.eth.way = (((bit<5>)h.eth.f1 ++ (bit<3>)h.eth.way) - (bit<8>)(80w2));
        transition accept;
    }
    state take_u2 {
        pkt.extract(h.u.m2);
        m.m0 = (~h.u.m1.f0);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum_with_payload(h.eth.isValid(), { m.m0, h.eth.sel, h.eth.way, h.eth.f0, h.eth.f2 }, h.eth.f1, HashAlgorithm.csum16);
        verify_checksum(h.h1.isValid() && h.eth.way[1:0] != 3, { h.eth.way, 8w0, h.eth.f1, h.eth.f3, h.h1.f0, h.h1.f4, h.h1.f6, 5w3 }, h.h1.f5, HashAlgorithm.csum16);
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<6> v10 = 6w1;
    bit<2> v11 = 2w2;
    bit<13> v12 = 13w3712;
    action a13(bit<33> p0) {
    }
    action a14(bit<80> p0, bit<15> p1) {
    }
    table t15 {
        key = {
            h.eth.way[2:0] : optional @name("k0");
            v10 : optional @name("k1");
            h.h1.f5 : exact @name("k2");
        }
        actions = {
            NoAction;
        }
    }
    table t16 {
        key = {
            h.eth.way[5:3] : ternary @name("k0");
        }
        actions = {
            a14;
            NoAction;
        }
    }
    apply {
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<7> v17 = 7w1;
    bit<31> v18 = 31w4;
    action a19(in bit<48> in0, inout bit<8> io0) {
    }
    action a20(in bit<191> in0, inout bit<15> io0) {
    }
    action a21() {
    }
    table t22 {
        key = {
            h.eth.sel[2:0] : range @name("k0");
            m.m0 : ternary @name("k1");
            h.h1.f6 : ternary @name("k2");
        }
        actions = {
            a21;
            NoAction;
        }
        default_action = a21();
        size = 32;
    }
    table t23 {
        key = {
            h.eth.sel[5:3] : exact @name("k0");
            (~((16w0 != 16w2) ? (bit<16>)h.eth.f0 : sm.egress_rid)) : exact @name("k1");
        }
        actions = {
            a21;
            NoAction;
        }
        const default_action = a21();
        const entries = {
            (0, 7) : NoAction();
            (1, 3) : NoAction();
            (2, 3) : NoAction();
        }
    }
    apply {
        switch (t23.apply().action_run) {
            a21: {
                if ((sm.instance_type <= (((bit<32>)sm.egress_rid << ((bit<1>)h.h1.f2)) << ((~(bit<1>)h.h0.f0))))) {
                    h.u.m2.f0 = (((bit<24>)(h.h1.f0) == ((bit<24>)sm.ingress_port - (bit<24>)h.eth.f3)) ? 96w2 : ((h.u.m2.f0 - h.u.m0.f0) & (96w71088188787541171684512515616 + (bit<96>)h.u.m2.f1)));
                    m.m1 = (((h.eth.isValid() ? (bit<2>)h.u.m1.f0 : (bit<2>)h.eth.sel) & ((16w0 == 16w32768) ? (bit<2>)h.eth.f0 : (bit<2>)h.eth.f0)) ++ (bit<46>)h.h1.f5);
                    h.h0.setValid();
                    h.h0.f0 = (~(bit<48>)h.u.m2.f1);
                } else {
                }
            }
            default: {
            }
        }
        t22.apply();
        if (m.rounds < 2 && h.eth.way[5:4] != 1) {
            m.rounds = m.rounds + 1;
            recirculate_preserving_field_list(1);
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
        h.seen.pad = 0;
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.h1.isValid() && h.eth.way[1:0] != 3, { m.m0, m.m2, 8w5, h.eth.f0, 8w128, h.eth.f1, h.h1.f0, h.h1.f2, 2w3 }, h.h1.f5, HashAlgorithm.csum16);
        update_checksum(h.h1.isValid() && h.eth.way[1:0] != 0, { m.m2, h.eth.way, h.eth.f2, h.h1.f1, h.h1.f2, h.h1.f3, 8w255, h.h1.f6, 8w255, 9w3 }, h.h1.f5, HashAlgorithm.csum16);
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.eth);
        pkt.emit(h.h0);
        pkt.emit(h.u);
        pkt.emit(h.h1);
        pkt.emit(h.vb);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

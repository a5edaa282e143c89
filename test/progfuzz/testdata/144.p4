// Program 144: Shift Union Varbit Table Register Counter Checksum CloneI2E Multicast Digest Exit Large
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<48> f0;
    bit<40> f1;
    bit<32> f2;
}

header t0_t {
    bit<8> f0;
}

header t1_t {
    bit<6> f0;
    bit<31> f1;
    bit<35> f2;
}

header t2_t {
    bit<2> f0;
    bit<1> f1;
    bit<13> f2;
}

header vb_t {
    bit<8> f0;
    varbit<80> v;
}

header_union u_t {
    t0_t m0;
    t2_t m1;
    t2_t m2;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<32> m0;
    bit<32> m1;
    bit<13> m2;
    bit<16> m3;
    bit<64> m4;
    bit<48> m5;
}

struct headers_t {
    vb_t vb;
    eth_t eth;
    u_t u;
    t1_t h0;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 3) bit<32> m0;
    @field_list(1, 2) bit<32> m1;
    @field_list(1, 2) bit<13> m2;
    @field_list(1, 2) bit<16> m3;
    @field_list(2) bit<64> m4;
    @field_list(1, 2) bit<48> m5;
    @field_list(1, 2, 3) bit<8> rounds;
}

struct digest_t {
    bit<32> a;
    bit<9> b;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition select(m.m5) {
            48w6: take_u0;
            48w4: take_h0;
            48w6: take_u2;
            default: take_u1;
        }
    }
    state take_u1 {
        pkt.extract(h.u.m1);
        transition select(h.eth.sel[7:5], m.m0, h.eth.f0[2:0]) {
            (3w7 &&& 3w2, 32w4, 3w4 &&& 3w1): take_u0;
            (3w7, _, _): take_u2;
            (3w2, 32w2 .. 32w3, _): take_h0;
            default: take_u2;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        h.h0.f2 = (h.h0.f2 + ((bit<35>)h.eth.f2 >> ((bit<5>)h.eth.f2)));
        transition select(h.eth.sel[7:5], h.h0.f0) {
            (3w1 .. 3w3, 6w3): take_vb;
            (3w3, 6w5): take_u0;
            (3w5 &&& 3w3, _): accept;
            (3w3 .. 3w4, _): take_u2;
            default: accept;
        }
    }
    state take_u0 {
        pkt.extract(h.u.m0);
        transition select(h.eth.sel[4:2], sm.ingress_port, h.eth.way) {
            (3w1, 9w1, 8w5): accept;
            (3w5 .. 3w5, 9w5, 8w1 &&& 8w6): take_u2;
            (3w3 &&& 3w2, 9w7, 8w1 &&& 8w4): take_vb;
            default: take_vb;
        }
    }
    state take_u2 {
        pkt.extract(h.u.m2);
        h.eth.f0 = 48w95884453842875;
        h.u.m2.f2 = (13w6239 >> 1);
        transition select(h.eth.sel[4:2], m.m0[2:0]) {
            (3w3, 3w2 &&& 3w3): take_vb;
            (_, 3w3): take_vb;
            default: accept;
        }
    }
    state take_vb {
        pkt.extract(h.vb, ((bit<32>)h.eth.way[3:0]) << 3);
        m.m0 = (~32w2);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<24> v1 = 24w4;
    bit<63> v2 = 63w0;
    register<bit<12>>(1) r3;
    counter(32, CounterType.packets_and_bytes) c4;
    action a5() {
        exit;
    }
    action a6(bit<63> p0, bit<32> p1, bit<33> p2) {
        digest<digest_t>(1, { (m.m1 + p1), sm.ingress_port });
    }
    direct_counter(CounterType.packets_and_bytes) dc8;
    table t7 {
        key = {
            (m.m3 ^ (m.m3 - (bit<16>)h.eth.way)) : exact @name("k0");
        }
        actions = {
            a5;
            a6;
            NoAction;
        }
        size = 32;
        counters = dc8;
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        t7.apply();
        h.u.m2.f1 = (((1w1 | (bit<1>)m.m3) + (~(h.u.m2.isValid() ? h.u.m2.f1 : 1w0))) ^ (bit<1>)((bit<16>)(sm.packet_length)));
        if (h.eth.isValid()) {
            mark_to_drop(sm);
            m.m1 = (m.m1 << (((((bit<16>)h.eth.f0 != m.m3) ? (h.u.m1.isValid() ? h.u.m1.f1 : 1w1) : sm.checksum_error) ^ (bit<1>)(16w4))));
            if ((((bit<63>)m.m0 >= v2) && (((bit<6>)m.m1)[1:0] > 2))) { exit; }
        }
        h.eth.f2 = sm.instance_type;
        if (m.rounds == 0 && sm.instance_type == 0 && h.eth.way[5:4] == 0) {
            m.rounds = 1;
            clone(CloneType.I2E, (bit<32>)h.eth.way[7:6]);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<32> v9 = 32w2066449586;
    counter(8, CounterType.packets_and_bytes) c10;
    action a11(bit<4> p0) {
        c10.count((bit<32>)(3w7));
        h.h0.f0 = (((h.u.m1.isValid() ? 6w32 : (bit<6>)h.eth.way) << ((((sm.instance_type)[0:0] <= 1) ? (bit<5>)(h.u.m1.isValid() ? h.u.m1.f0 : 2w0) : (bit<5>)(h.u.m1.isValid() ? h.u.m1.f0 : 2w3)))) & ((h.h0.isValid() ? h.h0.f0 : 6w0) + (bit<6>)((bit<5>)m.m0)));
        if ((((h.h0.isValid() ? h.h0.f1 : 31w0))[5:3] == 2)) {
            m.m1 = ((32w4 << ((h.u.m1.isValid() ? h.u.m1.f1 : 1w0))) | m.m0);
        }
        h.h0.setValid();
        h.h0.f0 = (h.u.m2.isValid() ? 6w32 : (bit<6>)h.eth.f0);
        h.h0.f1 = (bit<31>)(h.vb.isValid() ? h.vb.f0 : 8w128);
        h.h0.f2 = ((bit<35>)p0 - (bit<35>)m.m2);
    }
    action a12(bit<55> p0, bit<9> p1) {
        m.m0 = (m.m0 - ((~h.eth.f2) | ((bit<32>)(h.u.m1.isValid() ? h.u.m1.f0 : 2w0) + m.m0)));
        h.eth.sel = ((~(~8w5)) & 8w95);
        if (((((h.eth.way)[2:2] < 1) ? m.m5 : m.m5) > (~h.eth.f0))) {
            h.eth.f1 = ((h.eth.f1 - 40w5) - h.eth.f1);
        }
        h.h0.f0 = ((((bit<6>)m.m2 - (h.h0.isValid() ? h.h0.f0 : 6w32)) + (6w13 - (h.h0.isValid() ? h.h0.f0 : 6w2))) | ((bit<6>)m.m5 - ((h.h0.isValid() ? h.h0.f0 : 6w0) ^ (h.h0.isValid() ? h.h0.f0 : 6w2))));
    }
    table t13 {
        key = {
            h.eth.f1 : exact @name("k0");
        }
        actions = {
            a11;
            NoAction;
        }
        size = 128;
    }
    apply {
        h.u.m2.setInvalid();
        t13.apply();
        h.eth.sel = (((~8w4) >> 3) + (((h.vb.isValid() ? h.vb.f0 : 8w4) - (h.vb.isValid() ? h.vb.f0 : 8w0)) >> 2));
        m.m2 = (~(((h.vb.isValid() ? h.vb.f0 : 8w128) == (bit<8>)h.eth.f0) ? (m.m2 << 0) : (h.u.m1.isValid() ? h.u.m1.f2 : 13w4096)));
        if ((((9w1)[0:0] < 0) || h.eth.isValid())) {
            h.u.m2.f2 = (((~13w0) << 6) << 10);
        } else {
            if (h.u.m0.isValid()) {
                switch (((4w8 << 2) >> 2)) {
                    6: {
                        h.u.m0.setInvalid();
                        c10.count(6);
                    }
                    2: {
                        m.m2 = m.m2;
                    }
                }
            }
            h.eth.f0 = ((bit<48>)(40w4) >> (2w1));
            h.u.m1.f1 = ((bit<1>)(h.u.m1.isValid() ? h.u.m1.f0 : 2w0) - ((h.u.m1.isValid() ? h.u.m1.f1 : 1w1) & (1w1 + (bit<1>)(h.u.m2.isValid() ? h.u.m2.f2 : 13w4096))));
        }
        m.m4 = (((64w18446744073709551615 - m.m4) << ((bit<5>)m.m3)) ^ (m.m4 + ((bit<64>)h.eth.sel << (2w0))));
        h.u.m0.f0 = ((((h.u.m0.isValid() ? h.u.m0.f0 : 8w92) ^ h.eth.sel) ^ (~h.eth.sel)) >> (((h.h0.isValid() ? h.h0.f0 : 6w1) >> ((bit<1>)((bit<12>)sm.ingress_port)))));
        h.eth.f2 = (h.vb.isValid() ? ((((bit<35>)(h.u.m1.isValid() ? h.u.m1.f0 : 2w0))[12:11] > 0) ? v9 : (m.m1 >> ((h.u.m2.isValid() ? h.u.m2.f0 : 2w0)))) : (m.m0 ^ (~32w2147483648)));
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
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.eth);
        pkt.emit(h.vb);
        pkt.emit(h.h0);
        pkt.emit(h.u);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

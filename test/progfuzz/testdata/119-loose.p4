// Program 119: Signed Saturate Shift Multiply Union Hash Recirc Multicast Digest Loose
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<8> f0;
    bit<7> f1;
    bit<64> f2;
    bit<9> f3;
    bit<8> f4;
}

header t0_t {
    bit<24> f0;
}

header t1_t {
    int<24> f0;
    int<17> f1;
    int<5> f2;
    bit<34> f3;
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
    bit<64> m0;
    bit<31> m1;
    bit<2> m2;
    int<6> m3;
    bit<17> m4;
    bit<5> pad;
}

struct headers_t {
    t1_t h0;
    eth_t eth;
    u_t u;
    seen_t seen;
}

struct metadata_t {
    bit<64> m0;
    @field_list(1) bit<31> m1;
    @field_list(1, 3) bit<2> m2;
    int<6> m3;
    @field_list(1) bit<17> m4;
    @field_list(1, 2, 3) bit<8> rounds;
}

struct digest_t {
    bit<64> a;
    bit<9> b;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        m.m1 = ((m.m1 - 31w2147483647) |+| (31w1073741824 |-| m.m1));
        transition select(h.eth.sel[2:0], h.eth.way, sm.ingress_port[2:0]) {
            (3w4 &&& 3w5, 8w5 .. 8w6, 3w5 .. 3w7): accept;
            (3w2 .. 3w5, 8w6, 3w5): take_u1;
            default: take_u1;
        }
    }
    state take_u0 {
        pkt.extract(h.u.m0);
        m.m2 = 2w3;
        m.m1 = (-(bit<31>)(48w4));
        transition select(h.eth.sel[4:2], m.m2) {
            default: take_u1;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        h.h0.f2 = h.h0.f2;
        h.h0.f0 = (((sm.ingress_port)[0:0] > 0) ? (h.h0.f0 >> (1w0)) : h.h0.f0);
        transition select(h.eth.sel[3:1], h.eth.way[2:0]) {
            (3w7, 3w2): accept;
            (3w0, 3w1 .. 3w2): accept;
            default: take_u1;
        }
    }
    state take_u1 {
        pkt.extract(h.u.m1);
        m.m4 = ((m.m4 << 8) |+| (-(bit<17>)h.eth.f3));
        h.eth.sel = (-h.eth.sel);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<4> v1 = 4w4;
    int<7> v2 = 7s0;
    int<6> v3 = (int<6>)6w32;
    action a4(int<16> p0) {
        h.eth.way = 8w0;
    }
    action a5(bit<9> p0) {
        if ((!(((bit<47>)(bit<6>)m.m3)[14:14] <= 1))) {
            h.eth.f2 = ((h.eth.f2 << 54) >> ((6w0 |+| (bit<6>)h.h0.f3)));
        }
        h.eth.f4 = ((bit<8>)(((int<8>)h.h0.f2 * (int<8>)m.m3) + (int<8>)(bit<8>)h.eth.f2));
    }
    action a6(int<64> p0, bit<17> p1, bit<12> p2) {
        hash(m.m2, HashAlgorithm.crc32, 2w0, { h.h0.f3, p1, h.h0.f3, h.eth.sel }, 2w2);
        hash(h.eth.f3, HashAlgorithm.xor16, 9w0, { h.h0.f3, 16w5, m.m4, 16w1, 13w2 }, 9w91);
    }
    apply {
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if (((8w0)[3:3] == 0)) {
            h.u.m1.f0 = ((((bit<24>)h.h0.f0) | ((bit<24>)h.eth.f0 - (bit<24>)(bit<17>)h.h0.f1)) |-| ((h.h0.isValid() ? h.u.m1.f0 : 24w2) | (-(bit<24>)h.h0.f3)));
            hash(h.eth.way, HashAlgorithm.crc16, 8w0, { h.eth.sel, h.eth.f2 }, 8w57);
            h.h0.f1 = ((int<17>)17w86472 ^ (int<17>)17w65536);
        } else {
            v3 = (int<6>)6w63;
        }
        h.h0.setValid();
        h.h0.f0 = ((int<24>)(bit<24>)sm.ingress_port ^ (int<24>)(bit<24>)h.eth.way);
        h.h0.f1 = ((int<17>)m.m3 |+| (int<17>)v2);
        h.h0.f2 = (int<5>)(bit<5>)sm.ingress_port;
        h.h0.f3 = ((bit<34>)v1 * (bit<34>)h.eth.f0);
        if (h.u.m1.isValid()) {
            if (((((h.eth.f0 != h.eth.f4) ? (int<24>)(bit<24>)h.eth.sel : (int<24>)(bit<24>)h.h0.f3) >= (int<24>)(bit<24>)(47w140737488355327)) || (((bit<8>)v1)[7:7] == 1))) {
                if (((((int<64>)64w18446744073709551615 <= (int<64>)(bit<64>)sm.checksum_error) || (m.m4 != m.m4)) && (!((bit<9>)h.eth.f2 == 9w0)))) {
                    h.h0.f1 = (((int<17>)(m.m4 * (bit<17>)m.m1)) |+| ((17s43589 & h.h0.f1) >> (((bit<2>)h.eth.f2 - m.m2))));
                    h.u.m0.setValid();
                    h.u.m0.f0 = (h.h0.isValid() ? (bit<24>)m.m0 : (bit<24>)h.h0.f0);
                } else {
                }
                switch (((~(bit<5>)h.h0.f2) |-| (bit<5>)h.eth.way)) {
                    7: {
                        hash(h.h0.f3, HashAlgorithm.crc16, 34w0, { h.u.m1.f0 }, 34w3913632153);
                    }
                    4: {
                        h.eth.f3 = h.eth.f3;
                    }
                    2: {
                    }
                }
            }
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<5> v7 = 5w31;
    action a8(bit<48> p0, bit<16> p1, bit<24> p2) {
        m.m1 = (((bit<31>)h.u.m1.f0 >> (2w1)) * ((m.m1 |+| 31w1073741824) * (m.m1 + (bit<31>)h.eth.sel)));
        h.u.m1 = h.u.m0;
        h.eth.f2 = (((64w4 ^ (bit<64>)h.eth.f3) * (m.m0 - m.m0)) |-| ((bit<64>)(h.eth.f0) >> ((6w0 - (bit<6>)m.m4))));
    }
    action a9(int<32> p0, bit<48> p1, bit<31> p2) {
        if ((((bit<9>)(bit<24>)h.h0.f0)[0:0] > 1)) {
            m.m4 = m.m4;
        }
        m.m0 = (((m.m0 * h.eth.f2) << ((~(bit<7>)h.u.m1.f0))) * h.eth.f2);
        h.eth.f0 = ((!((m.m0)[53:51] < 1)) ? (~h.eth.way) : (8w255 >> 5));
    }
    apply {
        h.h0.setValid();
        h.eth.f3 = ((bit<9>)sm.egress_rid | (-sm.ingress_port));
        hash(h.eth.f1, HashAlgorithm.identity, 7w1, { m.m4, sm.packet_length }, 7w64);
        hash(h.eth.way, HashAlgorithm.crc16, 8w1, { 24w7230525, h.eth.f1, h.h0.f2, m.m3 }, 8w42);
        v7 = 5w14;
        if (((((sm.instance_type)[3:1] <= 6) || h.h0.isValid()) && ((17w3)[5:3] < 2))) {
            if (((h.eth.f3 == ((bit<9>)v7 >> 0)) || h.eth.isValid())) {
                if ((((32w3)[25:25] > 0) && (((bit<55>)h.u.m0.f0 |-| (bit<55>)h.h0.f3) > ((bit<55>)sm.instance_type |-| (bit<55>)(bit<17>)h.h0.f1)))) {
                    h.u.m0 = h.u.m1;
                }
                if (h.h0.isValid()) {
                    h.eth.f3 = ((h.eth.f3 << 1) | ((bit<9>)(int<9>)(bit<9>)h.eth.sel));
                    h.h0.setValid();
                }
            }
        }
        if (m.rounds < 2 && h.eth.way[5:4] != 0) {
            m.rounds = m.rounds + 1;
            recirculate_preserving_field_list(2);
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
        pkt.emit(h.h0);
        pkt.emit(h.u);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

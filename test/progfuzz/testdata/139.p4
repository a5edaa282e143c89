// Program 139: Signed Saturate Multiply Concat Stack Varbit Lookahead Loop Register Hash Multicast Digest Exit
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<13> f0;
    bit<64> f1;
    bit<32> f2;
    bit<19> f3;
}

header t0_t {
    bit<32> f0;
}

header t1_t {
    int<4> f0;
    bit<12> f1;
}

header t2_t {
    int<7> f0;
    bit<49> f1;
}

header t3_t {
    bit<1> f0;
    bit<15> f1;
}

header loop_t {
    bit<3> more;
    bit<5> f0;
}

header vb_t {
    bit<16> f0;
    varbit<56> v;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<47> m0;
    bit<32> m1;
    bit<13> m2;
    bit<1> pad;
}

struct headers_t {
    loop_t[1] s1;
    vb_t vb;
    eth_t eth;
    loop_t[1] s0;
    t1_t h0;
    seen_t seen;
}

struct metadata_t {
    bit<47> m0;
    bit<32> m1;
    bit<13> m2;
}

struct digest_t {
    bit<47> a;
    bit<9> b;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition select(h.eth.f2[2:0]) {
            3w7 &&& 3w7: take_vb;
            3w7: take_h0;
            3w5: take_s1;
            3w3 &&& 3w2: take_h0;
            default: take_vb;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        h.eth.sel = h.eth.sel;
        transition select(h.s0.last.more) {
            3w0: take_h0;
            3w1: take_vb;
            2 .. 5: take_s0;
            default: take_s1;
        }
    }
    state take_s1 {
        pkt.extract(h.s1.next);
        m.m0 = (bit<47>)pkt.lookahead<bit<16>>();
        transition take_vb;
    }
    state take_vb {
        pkt.extract(h.vb, ((bit<32>)h.eth.way[3:0]) << 3);
        transition select(pkt.lookahead<bit<48>>(), m.m2) {
            (48w6, 13w0): take_h0;
            (48w6, _): accept;
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        m.m0 = (((bit<60>)h.eth.sel - (bit<60>)h.eth.way))[54:8];
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<12> v1 = 12s744;
    bit<17> v2 = 17w4;
    bit<1> v3 = 1w1;
    register<int<64>>(2) r4;
    register<bit<6>>(1) r5;
    action a6(int<55> p0, bit<24> p1) {
        hash(h.eth.f2, HashAlgorithm.crc32, 32w0, { sm.checksum_error, sm.ingress_port, sm.ingress_port }, 32w1856600253);
        m.m1 = 32w0;
    }
    action a7(int<8> p0) {
        m.m0 = 47w0;
        h.s0.pop_front(1);
        h.eth.f3 = (((~(bit<2>)m.m2) ++ (v2 |+| (bit<17>)(h.s0[0].isValid() ? h.s0[0].more : 3w4))) |-| 19w262144);
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if ((!(h.eth.isValid() || ((h.eth.f0)[8:7] >= 1)))) {
            hash(h.eth.f0, HashAlgorithm.xor16, 13w1, { m.m0, m.m0, 2w1 }, 13w4020);
        }
        digest<digest_t>(1, { (sm.checksum_error ++ (bit<46>)m.m1), sm.ingress_port });
        digest<digest_t>(1, { 47w70368744177664, sm.ingress_port });
        m.m2 = (13w4096 & (((bit<22>)(h.s0[0].isValid() ? h.s0[0].more : 3w3) |+| (bit<22>)sm.packet_length))[16:4]);
        h.eth.f2 = ((bit<32>)(((int<32>)(bit<32>)(h.vb.isValid() ? h.vb.f0 : 16w1) | (int<32>)(bit<32>)(h.s0[0].isValid() ? h.s0[0].more : 3w7)) + (int<32>)(bit<32>)h.eth.f0));
        h.s1[0].more = (h.s0[0].isValid() ? h.s0[0].more : 3w4);
        if (h.vb.isValid()) {
            h.s0[0].f0 = (h.s1[0].isValid() ? h.s1[0].f0 : 5w16);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<16> v8 = 16w2;
    action a9(bit<64> p0, bit<40> p1) {
        h.s0.push_front(1);
        hash(h.s0[0].f0, HashAlgorithm.crc32, 5w0, { 8w128, h.eth.f2 }, 5w4);
        hash(h.eth.f2, HashAlgorithm.identity, 32w0, { v8, 16w32768, 47w140737488355327, sm.packet_length }, 32w1701855733);
        exit;
    }
    action a10(bit<32> p0, bit<16> p1, bit<16> p2) {
        h.h0.f1 = ((bit<12>)(bit<20>)((int<20>)(bit<20>)(9w316)) * (h.h0.isValid() ? h.h0.f1 : 12w0));
        h.s0[0].more = (h.s0[0].isValid() ? h.s0[0].more : 3w5);
        m.m0 = ((m.m0 & 47w0) + ((m.m0 - m.m0) ^ (-47w0)));
        if (((sm.ingress_port)[8:1] != ((bit<8>)(int<8>)(bit<8>)(h.s0[0].isValid() ? h.s0[0].f0 : 5w17)))) {
            h.vb.f0 = 16w65535;
        }
    }
    apply {
        m.m2 = m.m2;
        if (h.eth.isValid()) {
            h.eth.f2[14:13] = ((h.eth.f2 != (~32w4294967295)) ? ((-(bit<1>)(h.s1[0].isValid() ? h.s1[0].more : 3w4)) ++ ((bit<1>)m.m0 * (bit<1>)h.eth.f0)) : (((40w549755813888 < (bit<40>)h.eth.sel) ? 20w1048575 : (bit<20>)(h.vb.isValid() ? h.vb.f0 : 16w65535)))[10:9]);
            if (h.s1[0].isValid()) {
                h.s0[0].setValid();
                h.s0[0].more = (bit<3>)(h.eth.way);
                h.s0[0].f0 = 5w1;
                h.eth.f3[14:9] = ((6w4 * ((bit<6>)m.m1 - (bit<6>)sm.egress_rid)) |-| 6w63);
                if ((h.s1[0].isValid() && (((h.eth.f0)[7:7] >= 1) && ((int<20>)(bit<20>)h.s0[0].more != (int<20>)(bit<20>)v8)))) {
                    h.s0[0].more = ((((bit<3>)m.m2 - (bit<3>)h.eth.f1) |-| 3w3) & ((bit<7>)sm.ingress_port)[2:0]);
                    h.vb.f0[6:3] = ((!(((bit<20>)m.m0)[9:8] == 3)) ? (bit<4>)(h.vb.isValid() ? h.vb.f0 : 16w1) : (((47w0 != m.m0) ? (bit<4>)h.eth.f2 : (bit<4>)m.m1) ^ (3w4 ++ (bit<1>)(h.s1[0].isValid() ? h.s1[0].more : 3w1))));
                } else {
                }
            } else {
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
        pkt.emit(h.s1);
        pkt.emit(h.s0);
        pkt.emit(h.vb);
        pkt.emit(h.h0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 170: Wide Signed Saturate Concat Union Varbit Lookahead ValueSet Counter Random Hash OddHash Checksum Truncate Call
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<72> f0;
    int<13> f1;
    int<27> f2;
}

header t0_t {
    bit<33> f0;
    bit<15> f1;
    bit<20> f2;
    bit<16> f3;
    int<8> f4;
    bit<5> f5;
    bit<96> f6;
    bit<55> f7;
}

header t1_t {
    bit<8> f0;
    int<80> f1;
    int<16> f2;
    bit<1> f3;
    bit<7> f4;
}

header vb_t {
    bit<16> f0;
    varbit<72> v;
}

header_union u_t {
    t0_t m0;
    t0_t m1;
    t0_t m2;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<63> m0;
    bit<32> m1;
    bit<8> m2;
    bit<47> m3;
    bit<7> pad;
}

struct headers_t {
    eth_t eth;
    t1_t h0;
    vb_t vb;
    u_t u;
    seen_t seen;
}

struct metadata_t {
    bit<63> m0;
    bit<32> m1;
    bit<8> m2;
    bit<47> m3;
}

bit<8> fn1(in int<32> x, in bit<32> y) {
    if (((y - y) != ((x >= x) ? (bit<32>)x : y))) {
        return ((8w128 |-| (bit<8>)y))[7:0];
    }
    return (bit<8>)(bit<32>)x;
}

bit<127> fn2(in bit<16> x, in bit<160> y) {
    return ((((bit<127>)x |+| (bit<127>)y) | (-(bit<127>)x)) |-| (bit<127>)(bit<8>)((int<8>)(bit<8>)y));
}

control Sub(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<20> v3 = 20s5;
    counter(1, CounterType.packets_and_bytes) c4;
    action a5(bit<3> p0, bit<65> p1) {
        h.u.m1.f5 = (bit<5>)((bit<20>)(((bit<81>)(h.u.m1.isValid() ? h.u.m1.f5 : 5w4))[70:6]));
        h.h0.f4 = (7w5 |-| ((p0 |-| p0) ++ ((bit<4>)m.m1 |+| (bit<4>)(h.u.m2.isValid() ? h.u.m2.f5 : 5w0))));
        c4.count(0);
        h.u.m1.f4 = (int<8>)((~(47s5 |+| (int<47>)(bit<47>)(h.u.m0.isValid() ? h.u.m0.f3 : 16w32768))));
    }
    apply {
        {
            bit<16> v6;
            random(v6, 16w3, 16w20648);
            if (v6 < 3 || v6 > 20648) { h.eth.sel = 8w161; }
        }
        if (((((bit<16>)m.m3)[1:0] >= 1) || (((bit<19>)(h.u.m2.isValid() ? h.u.m2.f3 : 16w3))[14:11] != 4w4))) {
            hash(h.u.m0.f2, HashAlgorithm.crc16, 20w1, { h.eth.way }, 20w278355);
            h.u.m1.f4 = 8s0;
            c4.count(0);
        } else {
        }
        {
            bit<32> v7;
            random(v7, 32w2, 32w1924073490);
            if (v7 < 2 || v7 > 1924073490) { h.u.m1.f3 = 16w65535; }
        }
        h.h0.f4 = (((h.u.m2.isValid() ? h.u.m2.f5 : 5w0) ++ ((bit<2>)m.m3 - (bit<2>)sm.ingress_port)) |-| (((47w2)[26:26] > 1) ? ((bit<7>)(int<7>)(bit<7>)(h.u.m1.isValid() ? h.u.m1.f1 : 15w0)) : (bit<7>)(sm.ingress_port)));
    }
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) vs;
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition take_u1;
    }
    state take_u0 {
        pkt.extract(h.u.m0);
        transition select(h.u.m0.f7[2:0], pkt.lookahead<bit<32>>()) {
            (3w6, 32w2 .. 32w5): take_u2;
            (3w5, 32w7): take_vb;
            (3w4, 32w3): take_u1;
            default: take_u1;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        h.h0.f3 = (h.h0.f3 - ((bit<1>)h.eth.way + h.h0.f3));
        h.eth.f0 = 72w4722366482869645213695;
        transition select(m.m0[2:0]) {
            3w1 &&& 3w2: take_u1;
            default: take_vb;
        }
    }
    state take_u1 {
        pkt.extract(h.u.m1);
        h.u.m1.f2 = h.u.m1.f2;
        h.u.m1.f2 = 20w524288;
        transition select(h.eth.sel[7:5], h.eth.way[2:0], h.eth.way) {
            (3w2, 3w6, 8w0): accept;
            (3w3 &&& 3w7, 3w4, 8w0): take_u2;
            (3w5, 3w1 .. 3w1, 8w2 &&& 8w1): accept;
            default: take_vb;
        }
    }
    state take_u2 {
        pkt.extract(h.u.m2);
        h.u.m2.f5 = (-(bit<5>)h.u.m2.f6);
        m.m0 = (bit<63>)pkt.lookahead<bit<6>>();
        transition select(h.eth.sel[2:0], m.m1[2:0], m.m3[2:0]) {
            (3w6, 3w4, 3w7): take_vb;
            default: accept;
        }
    }
    state take_vb {
        pkt.extract(h.vb, ((bit<32>)h.eth.way[2:0]) << 3);
        h.eth.sel = ((bit<8>)(int<8>)(bit<8>)m.m3);
        m.m1 = (bit<32>)pkt.lookahead<bit<5>>();
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<17> v8 = 17s0;
    bit<6> v9 = 6w1;
    counter(32, CounterType.packets_and_bytes) c10;
    action a11(in bit<128> in0, inout bit<16> io0) {
        h.eth.sel = ((((int<80>)(bit<80>)(h.u.m1.isValid() ? h.u.m1.f2 : 20w1048575) < (h.h0.isValid() ? h.h0.f1 : 80s4)) ? (8w3 & (bit<8>)(h.vb.isValid() ? h.vb.f0 : 16w1837)) : (h.eth.sel - m.m2)) |-| (bit<8>)(h.u.m0.isValid() ? h.u.m0.f2 : 20w5));
    }
    action a12(bit<32> p0, bit<47> p1) {
        hash(h.u.m2.f7, HashAlgorithm.xor16, 55w1, { sm.ingress_port, m.m0, m.m0, h.eth.f1, h.eth.way }, 55w28554058850);
        h.u.m2.f2[2:1] = (bit<2>)(h.u.m0.isValid() ? h.u.m0.f3 : 16w0);
        if (((~16s4) >= (16s1 ^ (h.h0.isValid() ? h.h0.f2 : 16s2)))) {
            h.u.m2.f1 = ((15w5 + 15w0) |-| (~(h.u.m2.isValid() ? h.u.m2.f1 : 15w32767)));
        }
    }
    action a13(in int<64> in0, inout bit<8> io0) {
        h.u.m0.f2 = ((-(bit<20>)((bit<31>)h.eth.sel)) + (bit<20>)(h.u.m2.isValid() ? h.u.m2.f6 : 96w39614081257132168796771975168));
        c10.count((bit<32>)((h.u.m0.isValid() ? h.u.m0.f5 : 5w16)));
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        h.u.m2.f2 = (h.u.m0.isValid() ? h.u.m0.f2 : 20w385642);
        h.u.m0.f5 = ((bit<5>)(int<5>)(((int<64>)64w9223372036854775808)));
        h.u.m2.f2[9:9] = ((bit<1>)(((int<1>)(bit<1>)(h.u.m1.isValid() ? h.u.m1.f0 : 33w4) ^ (int<1>)(h.h0.isValid() ? h.h0.f3 : 1w1)) + (int<1>)h.eth.f1));
        a11(((bit<128>)(int<128>)(bit<128>)v9), h.vb.f0);
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<63> v14 = 63w4611686018427387904;
    bit<8> v15 = 8w4;
    bit<33> v16 = 33w8589934591;
    counter(1, CounterType.packets_and_bytes) c17;
    action a18(bit<80> p0, int<48> p1) {
        h.h0.setInvalid();
        h.h0.setValid();
        h.h0.f0 = (v15 | 8w255);
        h.h0.f1 = ((int<80>)(bit<80>)(h.u.m1.isValid() ? h.u.m1.f0 : 33w1) - (int<80>)(bit<80>)(h.u.m1.isValid() ? h.u.m1.f0 : 33w4));
        h.h0.f2 = ((int<16>)(bit<16>)(h.u.m2.isValid() ? h.u.m2.f5 : 5w31) & (int<16>)16w59159);
        h.h0.f3 = (1w1 |-| 1w1);
        h.h0.f4 = (bit<7>)(bit<72>)((int<72>)p1);
        c17.count(0);
    }
    apply {
        truncate(32w150 + (bit<32>)((2w0 ++ (bit<4>)(bit<8>)(h.u.m0.isValid() ? h.u.m0.f4 : 8s3))));
        h.u.m0.f6 = ((bit<96>)(int<96>)(h.u.m2.isValid() ? h.u.m2.f4 : 8s1));
        if ((((bit<33>)(h.vb.isValid() ? (int<33>)(bit<33>)sm.packet_length : (int<33>)(bit<33>)(h.u.m2.isValid() ? h.u.m2.f3 : 16w65535))) <= ((51w2)[47:15] | v16))) {
            h.h0.f0[4:0] = (h.u.m2.isValid() ? h.u.m2.f5 : 5w31);
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
        pkt.emit(h.vb);
        pkt.emit(h.u);
        pkt.emit(h.h0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

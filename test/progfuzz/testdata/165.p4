// Program 165: Signed Saturate Shift Multiply Concat Lookahead Verify TwoWays Table Hash Resubmit Multicast Exit
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<24> f0;
    bit<63> f1;
    int<5> f2;
    bit<36> f3;
}

header t0_t {
    bit<64> f0;
    bit<24> f1;
}

header t1_t {
    bit<16> f0;
}

header t2_t {
    bit<24> f0;
    bit<2> f1;
    bit<3> f2;
    bit<33> f3;
    bit<26> f4;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<3> m0;
    int<48> m1;
    bit<15> m2;
    bit<7> m3;
    bit<4> pad;
}

struct headers_t {
    eth_t eth;
    t1_t h1;
    t0_t h0;
    t2_t h2;
    seen_t seen;
}

struct metadata_t {
    bit<3> m0;
    @field_list(2) int<48> m1;
    @field_list(2, 3) bit<15> m2;
    @field_list(2) bit<7> m3;
    @field_list(1, 2, 3) bit<8> rounds;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        m.m2 = (15w3375 & m.m2);
        transition select(sm.ingress_port) {
            9w6 &&& 9w4: take_h2;
            9w5: take_h1;
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        transition select(h.eth.sel[4:2]) {
            _: reject;
            3w0: reject;
            0 .. 7: accept;
        }
    }
    state take_h1 {
        pkt.extract(h.h1);
        transition accept;
    }
    state take_h2 {
        pkt.extract(h.h2);
        h.h2.f0 = 24w3;
        h.h2.f0 = (((8w57)[6:6] >= 0) ? h.eth.f0 : h.h2.f0);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<32> v1 = 32w0;
    bit<17> v2 = 17w6500;
    bit<32> v3 = 32w1022254571;
    action a4(bit<31> p0, bit<48> p1) {
        exit;
    }
    action a5(bit<16> p0) {
        sm.egress_spec = 9w1 + (bit<9>)((h.h2.isValid() ? h.h2.f1 : 2w3) * (bit<2>)(h.h0.isValid() ? h.h0.f1 : 24w5));
        h.h2.f2 = (bit<3>)v2;
        if ((!((m.m2)[3:2] != 2))) {
            h.h2.f3 = ((-33w0) | ((bit<33>)m.m3 ^ (h.h2.isValid() ? h.h2.f3 : 33w3)));
        }
    }
    action a6(int<48> p0, bit<20> p1) {
        if (((24w16777215)[6:5] >= 2)) {
            h.h0.f1 = (h.h0.isValid() ? h.h0.f1 : 24w1);
        }
        hash(v1, HashAlgorithm.crc16, 32w1, { m.m1, v3, p1, h.eth.f2 }, 32w889096692);
    }
    table t7 {
        key = {
            ((h.eth.f1 |-| 63w4611686018427387904) * (63w365494141466721345 - h.eth.f1)) : exact @name("k0");
            sm.ingress_port : exact @name("k1");
            v1 : exact @name("k2");
            h.h2.isValid() : exact @name("valid");
        }
        actions = {
            a4;
            a6;
            NoAction;
        }
        default_action = a4(31w1073741824, 48w0);
        const entries = {
            (0, 6, 4, false) : NoAction();
            (1, 3, 4, true) : NoAction();
            (2, 0, 2, true) : NoAction();
        }
    }
    table t8 {
        key = {
            v3 : exact @name("k0");
            v1 : exact @name("k1");
            (bit<48>)m.m1 : exact @name("k2");
        }
        actions = {
            a4;
            a5;
            NoAction;
        }
        const default_action = a4(31w556864454, 48w0);
        const entries = {
            (0, 1, 7) : a4(31w3, 48w140737488355328);
            (1, 0, 0) : a5(16w65535);
            (2, 3, 1) : a4(31w1, 48w281474976710655);
            (3, 1, 6) : a4(31w2147483647, 48w140737488355328);
        }
    }
    apply {
        if (t8.apply().hit) {
        }
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if (t7.apply().miss) {
            hash(h.h2.f3, HashAlgorithm.csum16, 33w1, { m.m1, m.m1, h.eth.f2, h.eth.f1, 16w2, 12w2 }, 33w3405041882);
        } else {
            if (h.h0.isValid()) {
                if (h.eth.isValid()) { exit; }
            } else {
                hash(h.eth.way, HashAlgorithm.csum16, 8w0, { m.m1, 16w3, h.eth.sel, 16w2, 8w68 }, 8w56);
                hash(h.h2.f3, HashAlgorithm.crc32, 33w0, { 20w4 }, 33w4073363393);
                h.eth.f3 = ((((bit<17>)m.m3 ++ (bit<19>)(bit<48>)m.m1) >> ((bit<6>)(h.h2.isValid() ? h.h2.f3 : 33w0))) |+| ((36w1 - h.eth.f3) |-| (h.eth.f3 |-| h.eth.f3)));
            }
            if ((((bit<33>)v2)[7:7] != 1)) {
                if (h.eth.isValid()) { exit; }
            }
        }
        if (m.rounds < 1 && h.eth.way[5:4] != 0) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(2);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<32> v9 = 32w2147483648;
    int<15> v10 = (int<15>)15w16384;
    action a11(bit<7> p0) {
        m.m3 = (~((bit<7>)(h.h0.isValid() ? h.h0.f0 : 64w18446744073709551615) |+| 7w127));
        exit;
        h.eth.f2 = (-((h.eth.f2 * h.eth.f2) + h.eth.f2));
    }
    action a12(bit<32> p0, bit<6> p1, bit<16> p2) {
        exit;
        exit;
        h.h2.f3 = (~(~(47w29017551079835)[36:4]));
    }
    action a13(bit<32> p0, int<2> p1) {
        h.h2.setValid();
        h.h2.f0 = ((bit<24>)24s2);
        h.h2.f1 = (bit<2>)sm.ingress_port;
        h.h2.f2 = m.m0;
        h.h2.f3 = ((bit<33>)sm.instance_type |+| (bit<33>)v9);
        h.h2.f4 = ((bit<26>)h.eth.way * 26w3);
        if (h.eth.isValid()) {
            m.m3[5:4] = (((h.h1.isValid() ? h.h1.f0 : 16w13328) >= sm.egress_rid) ? (h.h2.f1 & h.h2.f1) : (-h.h2.f1));
        }
    }
    table t14 {
        key = {
            h.eth.f1 : exact @name("k0");
            sm.packet_length : range @name("k1");
            h.eth.sel : exact @name("k2");
            h.h2.isValid() : exact @name("valid");
        }
        actions = {
            a11;
            a12;
            a13;
            NoAction;
        }
        size = 32;
    }
    table t15 {
        key = {
            sm.instance_type : lpm @name("k0");
        }
        actions = {
            a11;
            a12;
            a13;
            NoAction;
        }
        default_action = a11(7w56);
        size = 64;
    }
    table t16 {
        key = {
            h.eth.sel[2:0] : exact @name("k0");
            h.eth.way : exact @name("k1");
        }
        actions = {
            a11;
            a12;
            a13;
            NoAction;
        }
        const default_action = NoAction();
        size = 64;
    }
    apply {
        switch (t14.apply().action_run) {
            default: {
            }
        }
        if (t15.apply().miss) {
        }
        if (t16.apply().hit) {
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
        pkt.emit(h.h2);
        pkt.emit(h.h0);
        pkt.emit(h.h1);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 157: Wide Signed Shift Multiply Varbit Lookahead Verify Table Counter Hash Checksum CloneI2E
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    int<31> f0;
    bit<12> f1;
    int<47> f2;
    bit<12> f3;
    bit<10> f4;
}

header t0_t {
    bit<128> f0;
    bit<32> f1;
    int<72> f2;
    bit<6> f3;
    bit<18> f4;
}

header t1_t {
    bit<56> f0;
}

header t2_t {
    bit<16> f0;
    bit<32> f1;
    bit<16> f2;
    int<129> f3;
    bit<15> f4;
    bit<33> f5;
    bit<55> f6;
}

header t3_t {
    bit<8> f0;
}

header vb_t {
    bit<24> f0;
    varbit<88> v;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<12> m0;
    bit<8> m1;
    int<100> m2;
    bit<9> m3;
    bit<4> pad;
}

struct headers_t {
    vb_t vb;
    t3_t h0;
    eth_t eth;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 2, 3) bit<12> m0;
    @field_list(3) bit<8> m1;
    @field_list(1, 2) int<100> m2;
    bit<9> m3;
    @field_list(1, 2, 3) bit<8> rounds;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        h.eth.f4 = ((h.eth.f4 >> 2) * ((bit<10>)h.eth.way - h.eth.f4));
        transition select(h.eth.sel[6:4], h.eth.f4[2:0], h.eth.f4[2:0]) {
            (3w7 &&& 3w1, 3w5 .. 3w7, 3w3): take_vb;
        }
    }
    state take_vb {
        pkt.extract(h.vb, ((bit<32>)h.eth.way[2:0]) << 3);
        m.m1 = (h.eth.sel - (h.eth.way + (bit<8>)h.eth.f3));
        m.m2 = ((int<100>)100w1131190933203905704560193983764 ^ m.m2);
        transition select(h.eth.sel[6:4], m.m3, h.eth.sel[2:0]) {
            (3w4, _, 3w2): accept;
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        m.m2 = (((int<100>)(bit<100>)m.m2) & ((int<100>)100w633825300114114700748351602688 << ((bit<3>)(bit<100>)m.m2)));
        verify(((bit<13>)h.eth.way <= ((bit<13>)h.eth.way << 2)), error.Even);
        transition select(h.eth.sel[2:0], m.m3) {
            (3w7, 9w2 .. 9w5): reject;
            (3w2 .. 3w4, 9w7): accept;
        }
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<8> v1 = 8w255;
    bit<3> v2 = 3w3;
    bit<160> v3 = 160w730750818665451459101842416358141509827966271488;
    counter(8, CounterType.packets_and_bytes) c4;
    action a5(int<4> p0, bit<15> p1, bit<100> p2) {
    }
    action a6() {
    }
    table t7 {
        key = {
            v3 : exact @name("k0");
            (bit<31>)h.eth.f0 : exact @name("k1");
            sm.checksum_error : exact @name("k2");
        }
        actions = {
            a5;
            NoAction;
        }
        size = 64;
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        h.vb.f0 = (((24w1 & 24w8388608) << ((~(bit<2>)v2))) << 17);
        t7.apply();
        v2 = (~(-((bit<3>)h.eth.f4 << (v2))));
        if ((((m.m0 << (7w127)) << 0) > (-(m.m0 ^ h.eth.f3)))) {
            if (h.vb.isValid()) {
                if (((h.eth.way)[0:0] >= 0)) {
                    hash(h.h0.f0, HashAlgorithm.crc32, 8w1, { h.vb.f0 }, 8w78);
                    m.m3 = (bit<9>)(((bit<16>)(16s31890) >> 5));
                } else {
                    v3 = (bit<160>)h.eth.sel;
                }
            }
        }
        if (m.rounds == 0 && sm.instance_type == 0 && h.eth.way[5:4] == 3) {
            m.rounds = 1;
            clone(CloneType.I2E, 3);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<9> v8 = 9w4;
    bit<129> v9 = 129w680564733841876926926749214863536422911;
    counter(8, CounterType.packets_and_bytes) c10;
    action a11(int<13> p0, bit<8> p1, bit<48> p2) {
        c10.count((bit<32>)(((bit<3>)h.eth.sel << 0)));
        if ((((sm.egress_rid)[11:9] < 7) && (32w4294967295 < sm.instance_type))) {
            h.eth.sel = ((h.eth.sel & p1) - (h.eth.way * (bit<8>)v8));
        }
    }
    table t12 {
        key = {
            h.eth.way[2:0] : exact @name("k0");
            sm.egress_rid : exact @name("k1");
            (bit<47>)h.eth.f2 : exact @name("k2");
            h.eth.isValid() : exact @name("valid");
        }
        actions = {
            a11;
            NoAction;
        }
        const entries = {
            (0, 1, 1, false) : a11(13s0, 8w128, 48w281474976710655);
        }
    }
    direct_counter(CounterType.packets_and_bytes) dc14;
    table t13 {
        key = {
            h.eth.sel[6:4] : exact @name("k0");
            h.eth.way : exact @name("k1");
            v8 : exact @name("k2");
            h.eth.isValid() : exact @name("valid");
        }
        actions = {
            a11;
            NoAction;
        }
        size = 128;
        counters = dc14;
    }
    table t15 {
        key = {
            sm.egress_port : ternary @name("k0");
            sm.egress_rid : range @name("k1");
        }
        actions = {
            a11;
            NoAction;
        }
        const entries = {
            (0, 3 .. 5) : NoAction();
        }
    }
    apply {
        switch (t15.apply().action_run) {
            a11: {
            }
            default: {
            }
        }
        if (t13.apply().miss) {
            c10.count(6);
        } else {
            if (h.eth.isValid()) {
            }
        }
        if (t12.apply().hit) {
            if (h.eth.isValid()) {
                h.eth.sel = (((8w0 << 2) | (bit<8>)((bit<40>)h.eth.f3)) | h.eth.sel);
                c10.count((bit<32>)(((bit<3>)(bit<47>)h.eth.f2 * 3w6)));
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
        pkt.emit(h.h0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 52: Wide Saturate Concat Stack Lookahead Verify Table Register Hash CloneI2E Exit
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<32> f0;
    bit<72> f1;
    bit<24> f2;
}

header t0_t {
    bit<32> f0;
    bit<4> f1;
    bit<16> f2;
    bit<64> f3;
    bit<148> f4;
}

header t1_t {
    bit<129> f0;
    bit<23> f1;
}

header t2_t {
    bit<33> f0;
    bit<24> f1;
    bit<39> f2;
}

header t3_t {
    bit<24> f0;
    bit<9> f1;
    bit<7> f2;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<8> m0;
    bit<5> m1;
    bit<20> m2;
    bit<7> m3;
    bit<40> m4;
    bit<5> pad;
}

struct headers_t {
    t0_t[3] s0;
    t0_t h0;
    t2_t h1;
    t3_t[3] s1;
    eth_t eth;
    seen_t seen;
}

struct metadata_t {
    @field_list(2, 3) bit<8> m0;
    @field_list(2, 3) bit<5> m1;
    @field_list(1, 2) bit<20> m2;
    @field_list(2) bit<7> m3;
    bit<40> m4;
    @field_list(1, 2, 3) bit<8> rounds;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        m.m0 = (bit<8>)pkt.lookahead<bit<5>>();
        m.m0 = (~((h.eth.f0 != (bit<32>)sm.ingress_port) ? m.m0 : 8w1));
        transition select(h.eth.sel[4:2], h.eth.way[2:0]) {
            (3w2, 3w5): take_s0;
            default: take_s1;
        }
    }
    state take_h1 {
        pkt.extract(h.h1);
        transition select(m.m2, h.h1.f0) {
            default: take_s1;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        pkt.extract(h.s0.next);
        transition select(h.eth.sel[3:1]) {
        }
    }
    state take_h0 {
        transition select(h.eth.sel[7:5]) {
            3w7: take_s1;
            default: accept;
        }
    }
    state take_s1 {
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<160> v1 = 160w1081194036727123453609157990105085717664036687977;
    bit<31> v2 = 31w1346439055;
    register<bit<32>>(64) r3;
    register<bit<13>>(16) r4;
    register<bit<2>>(2) r5;
    action a6() {
    }
    action a7(bit<128> p0) {
    }
    action a8() {
    }
    table t9 {
        key = {
            h.eth.sel : exact @name("k0");
            m.m3 : ternary @name("k1");
        }
        actions = {
            a6;
            a7;
            a8;
            NoAction;
        }
    }
    table t10 {
        key = {
            h.eth.sel[5:3] : exact @name("k0");
            m.m2 : exact @name("k1");
        }
        actions = {
            a6;
            a7;
            NoAction;
        }
        const entries = {
            (0, 7) : a6();
            (1, 6) : a7(128w1);
            (2, 0) : a6();
        }
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        if (t9.apply().hit) {
            h.s0[0].f1 = (h.s0[1].isValid() ? h.s0[1].f1 : 4w8);
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        switch (t10.apply().action_run) {
            a7: {
            }
            default: {
            }
        }
        if (m.rounds == 0 && sm.instance_type == 0 && h.eth.way[5:4] == 1) {
            m.rounds = 1;
            clone(CloneType.I2E, (bit<32>)h.eth.way[7:6]);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<40> v11 = 40w837267354653;
    action a12(bit<16> p0, bit<55> p1) {
        h.s1[1] = h.s1[2];
    }
    table t13 {
        key = {
            h.eth.way : exact @name("k0");
            8w2 : exact @name("k1");
            h.eth.sel : exact @name("k2");
        }
        actions = {
            a12;
            NoAction;
        }
    }
    table t14 {
        key = {
            h.eth.way[7:5] : range @name("k0");
            m.m3 : exact @name("k1");
            h.h1.isValid() : exact @name("valid");
        }
        actions = {
            a12;
            NoAction;
        }
    }
    table t15 {
        key = {
            h.eth.sel[4:2] : optional @name("k0");
            sm.egress_port : exact @name("k1");
            h.eth.way : range @name("k2");
            h.s1[2].isValid() : exact @name("valid");
        }
        actions = {
            a12;
            NoAction;
        }
    }
    apply {
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
        pkt.emit(h.s0);
        pkt.emit(h.h1);
        pkt.emit(h.h0);
        pkt.emit(h.s1);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 121: Saturate Shift Union Lookahead TwoWays Table Counter Resubmit CPU Exit
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<64> f0;
    bit<12> f1;
    bit<40> f2;
    bit<4> f3;
}

header t0_t {
    bit<8> f0;
    bit<2> f1;
    bit<64> f2;
    bit<14> f3;
}

header t1_t {
    bit<13> f0;
    bit<19> f1;
}

header t2_t {
    bit<8> f0;
    bit<17> f1;
    bit<31> f2;
}

header t3_t {
    bit<20> f0;
    bit<6> f1;
    bit<22> f2;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> port;
    bit<7> pad;
}

@controller_header("packet_in")
header packet_in_t {
    bit<9> port;
    bit<7> pad;
}

header_union u_t {
    t0_t m0;
    t1_t m1;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<16> m0;
    bit<13> m1;
    bit<8> m2;
    bit<8> m3;
    bit<63> m4;
    bit<20> m5;
    bit<5> pad;
}

struct headers_t {
    u_t u;
    t3_t h0;
    eth_t eth;
    seen_t seen;
    packet_out_t packet_out;
    packet_in_t packet_in;
}

struct metadata_t {
    bit<16> m0;
    @field_list(1, 2, 3) bit<13> m1;
    @field_list(1, 3) bit<8> m2;
    @field_list(3) bit<8> m3;
    bit<63> m4;
    @field_list(3) bit<20> m5;
    @field_list(1, 2, 3) bit<8> rounds;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        transition select(sm.ingress_port) {
            510: packet_out;
            default: eth;
        }
    }
    state packet_out {
        pkt.extract(h.packet_out);
        transition eth;
    }
    state eth {
        pkt.extract(h.eth);
        transition accept;
    }
    state take_h0 {
        pkt.extract(h.h0);
        h.eth.f0 = h.eth.f0;
        transition select(h.eth.sel[4:2], h.h0.f0, m.m0[2:0]) {
            (3w7, 20w2, 3w5): take_u1;
            (3w2, 20w6, 3w7 .. 3w7): take_u1;
            default: take_u0;
        }
    }
    state take_u1 {
        pkt.extract(h.u.m1);
        m.m0 = (~(16w62806 ^ m.m0));
        transition select(m.m0[2:0], pkt.lookahead<bit<8>>()) {
            (_, _): take_u0;
            (3w4, 8w6 .. 8w9): accept;
            default: take_u0;
        }
    }
    state take_u0 {
        pkt.extract(h.u.m0);
        m.m5 = ((m.m5 << (h.eth.f3)) + ((bit<20>)h.u.m0.f3 - m.m5));
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<24> v1 = 24w4761100;
    bit<13> v2 = 13w4992;
    bit<48> v3 = 48w281474976710655;
    counter(32, CounterType.packets_and_bytes) c4;
    action a5() {
        exit;
        h.h0.setInvalid();
        h.eth.f3 = ((((bit<4>)(h.u.m1.isValid() ? h.u.m1.f0 : 13w4096) |+| (bit<4>)(h.u.m1.isValid() ? h.u.m1.f0 : 13w4096)) << ((h.u.m0.isValid() ? h.u.m0.f1 : 2w2))) |-| (((bit<4>)sm.checksum_error >> 5) |-| h.eth.f3));
    }
    table t6 {
        key = {
            h.eth.sel[5:3] : exact @name("k0");
            h.eth.way : exact @name("k1");
            h.eth.f3 : exact @name("k2");
        }
        actions = {
            a5;
            NoAction;
        }
        default_action = a5();
        size = 64;
    }
    direct_counter(CounterType.packets_and_bytes) dc8;
    table t7 {
        key = {
            h.eth.sel[6:4] : optional @name("k0");
            m.m3 : optional @name("k1");
            h.u.m0.isValid() : exact @name("valid");
        }
        actions = {
            a5;
            NoAction;
        }
        size = 64;
        counters = dc8;
    }
    table t9 {
        key = {
            h.eth.way[2:0] : exact @name("k0");
        }
        actions = {
            a5;
            NoAction;
        }
        const default_action = NoAction();
        size = 128;
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if (h.eth.way[4:2] == 5) { sm.egress_spec = 510; }
        if (t7.apply().hit) {
            c4.count(17);
        }
        switch (t9.apply().action_run) {
            a5: {
                switch (((bit<2>)((h.h0.isValid() ? h.h0.f0 : 20w4)) |+| (~(h.u.m0.isValid() ? h.u.m0.f1 : 2w2)))) {
                    1: {
                        h.u.m0.f1 = ((bit<2>)(sm.checksum_error) |+| ((h.u.m0.isValid() ? h.u.m0.f1 : 2w0) |-| ((h.u.m0.isValid() ? h.u.m0.f1 : 2w3) |+| (h.u.m0.isValid() ? h.u.m0.f1 : 2w2))));
                    }
                }
            }
        }
        if (h.packet_out.isValid()) {
            sm.egress_spec = h.packet_out.port;
            h.packet_out.setInvalid();
        }
        if ((((bit<48>)(h.u.m0.isValid() ? h.u.m0.f2 : 64w18446744073709551615))[31:31] == 1)) {
            if (h.u.m1.isValid()) {
                c4.count((bit<32>)(((bit<5>)v1 & (bit<5>)v1)));
                if (h.u.m1.isValid()) { exit; }
            }
            switch (((6w10 | (h.h0.isValid() ? h.h0.f1 : 6w2)) ^ (bit<6>)((bit<5>)sm.instance_type))) {
                3: {
                }
                6: {
                }
                7: {
                }
                default: {
                }
            }
        } else {
        }
        if (t6.apply().hit) {
            h.u.m0.setValid();
            h.u.m0.f0 = (m.m2 - (bit<8>)v3);
            h.u.m0.f1 = ((bit<2>)(h.h0.isValid() ? h.h0.f2 : 22w2) << 0);
            h.u.m0.f2 = ((bit<64>)sm.packet_length & h.eth.f0);
            h.u.m0.f3 = ((bit<14>)(h.h0.isValid() ? h.h0.f2 : 22w3837274) - (bit<14>)sm.checksum_error);
            h.u.m0.setValid();
            h.u.m0.f0 = (h.eth.way >> (2w0));
            h.u.m0.f1 = (bit<2>)m.m0;
            h.u.m0.f2 = (bit<64>)h.eth.f1;
            h.u.m0.f3 = (14w9442 |+| (bit<14>)h.eth.way);
        }
        if (m.rounds < 2 && h.eth.way[5:4] != 3) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(2);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<3> v10 = 3w2;
    bit<5> v11 = 5w3;
    bit<2> v12 = 2w2;
    counter(1, CounterType.packets_and_bytes) c13;
    action a14(bit<17> p0) {
        h.eth.f0 = (64w18446744073709551615 |+| (h.h0.isValid() ? (((bit<63>)h.eth.way == 63w5841235942421451576) ? (bit<64>)(h.u.m0.isValid() ? h.u.m0.f0 : 8w255) : (h.u.m0.isValid() ? h.u.m0.f2 : 64w18446744073709551615)) : (~h.eth.f0)));
    }
    action a15(bit<20> p0, bit<64> p1, bit<63> p2) {
    }
    action a16(bit<8> p0, bit<9> p1, bit<32> p2) {
        h.u.m0.f0 = (h.eth.way |+| h.eth.sel);
        h.eth.way = ((bit<8>)((bit<6>)sm.packet_length) |-| ((8w3 |+| m.m3) ^ (h.eth.way |-| (bit<8>)sm.egress_rid)));
    }
    table t17 {
        key = {
            h.eth.way[6:4] : exact @name("k0");
            h.u.m0.isValid() : exact @name("valid");
        }
        actions = {
            a14;
            a15;
            NoAction;
        }
        default_action = a15(20w524288, 64w9223372036854775808, 63w8007758704936347502);
        const entries = {
            (0, true) : NoAction();
        }
    }
    table t18 {
        key = {
            sm.packet_length : exact @name("k0");
        }
        actions = {
            a14;
            a15;
            a16;
            NoAction;
        }
        size = 32;
    }
    table t19 {
        key = {
            sm.instance_type : lpm @name("k0");
            h.eth.f2 : exact @name("k1");
            h.h0.isValid() : exact @name("valid");
        }
        actions = {
            a15;
            a16;
            NoAction;
        }
        default_action = a15(20w4, 64w18446744073709551615, 63w4611686018427387904);
        size = 64;
    }
    apply {
        switch (t17.apply().action_run) {
            a15: {
                if (h.eth.isValid()) {
                    if ((!(m.m2 >= (h.u.m0.isValid() ? h.u.m0.f0 : 8w128)))) { return; }
                    m.m2 = 8w5;
                }
                if (h.u.m1.isValid()) {
                    if ((((h.h0.isValid() ? h.h0.f2 : 22w1719328) + (h.h0.isValid() ? h.h0.f2 : 22w4)) < ((h.h0.isValid() ? h.h0.f2 : 22w2097152) + 22w2097152))) { return; }
                    if ((20w4 != m.m5)) { return; }
                }
            }
            default: {
            }
        }
        if (t18.apply().miss) {
        } else {
        }
        if (t19.apply().miss) {
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
        if (sm.egress_port == 510) {
            h.packet_in.setValid();
            h.packet_in.port = sm.ingress_port;
            h.packet_in.pad = 0;
        }
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.packet_in);
        pkt.emit(h.eth);
        pkt.emit(h.h0);
        pkt.emit(h.u);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

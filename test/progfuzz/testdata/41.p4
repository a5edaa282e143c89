// Program 41: Wide Signed Saturate Stack Verify Loop Register Counter Hash Checksum Resubmit CloneI2E CloneE2E Multicast Exit
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<1> f0;
    bit<13> f1;
    bit<47> f2;
    int<15> f3;
    bit<24> f4;
    int<4> f5;
}

header t0_t {
    bit<7> f0;
    bit<8> f1;
    bit<20> f2;
    bit<5> f3;
}

header t1_t {
    bit<128> f0;
    bit<160> f1;
    bit<40> f2;
}

header t2_t {
    bit<1> f0;
    bit<32> f1;
    bit<24> f2;
    bit<17> f3;
    bit<2> f4;
    bit<32> f5;
    bit<5> f6;
    bit<13> f7;
    bit<24> f8;
    bit<3> f9;
    bit<33> f10;
    bit<8> f11;
    bit<16> f12;
    int<40> f13;
    int<16> f14;
    bit<13> f15;
    bit<6> f16;
    int<3> f17;
}

header loop_t {
    bit<3> more;
    bit<13> f0;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<4> m0;
    int<20> m1;
    bit<65> m2;
    bit<2> m3;
    bit<15> m4;
    bit<3> pad;
}

struct headers_t {
    t0_t h1;
    loop_t[3] s0;
    eth_t eth;
    t1_t h2;
    t0_t h0;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 2) bit<4> m0;
    @field_list(1) int<20> m1;
    @field_list(2) bit<65> m2;
    @field_list(1, 2) bit<2> m3;
    @field_list(1) bit<15> m4;
    @field_list(1, 2, 3) bit<8> rounds;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition take_h0;
    }
    state take_s0 {
        transition select(h.s0.last.more) {
            3w0: accept;
            default: take_s0;
        }
    }
    state take_h0 {
        transition select(h.eth.sel[4:2], h.eth.f4, m.m2) {
            default: take_h2;
        }
    }
    state take_h2 {
        transition select(h.eth.sel[4:2]) {
        }
    }
    state take_h1 {
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<20> v1 = 20w5;
    counter(1, CounterType.packets_and_bytes) c2;
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if (((~((h.h2.isValid() ? h.h2.f1 : 160w1461501637330902918203684832716283019655932542975) & (h.h2.isValid() ? h.h2.f1 : 160w3))) < (((h.h2.isValid() ? h.h2.f1 : 160w426936896643746362433683401120973777893874775600) |-| (h.h2.isValid() ? h.h2.f1 : 160w2)) + (bit<160>)(bit<5>)((int<5>)(bit<5>)sm.instance_type)))) {
        } else {
        }
        if (m.rounds < 2 && h.eth.way[5:4] == 0) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(1);
        }
        if (m.rounds < 2 && h.eth.way[5:4] == 1) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.I2E, (bit<32>)h.eth.way[7:6], 2);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        hash(h.s0[2].more, HashAlgorithm.xor16, 3w1, { m.m4, h.eth.way, 16w65535, 16w0, 9w1 }, 3w3);
        h.s0.pop_front(1);
        switch ((((bit<6>)h.eth.f1 |-| 6w32) |+| (6w5 - (bit<6>)(h.h0.isValid() ? h.h0.f1 : 8w2)))) {
        }
        if (m.rounds < 2 && h.eth.way[5:4] == 2) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.E2E, (bit<32>)h.eth.way[7:6], 3);
        }
        if (h.eth.way[3:2] == 3) { mark_to_drop(sm); }
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
        pkt.emit(h.h2);
        pkt.emit(h.h0);
        pkt.emit(h.s0);
        pkt.emit(h.h1);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

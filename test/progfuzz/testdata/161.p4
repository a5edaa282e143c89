// Program 161: Signed Saturate Multiply Stack Lookahead Verify Loop Counter CloneI2E CloneE2E Call
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<8> f0;
    bit<16> f1;
    bit<24> f2;
    bit<3> f3;
    bit<3> f4;
    bit<50> f5;
}

header t0_t {
    bit<2> f0;
    bit<6> f1;
}

header t1_t {
    bit<16> f0;
    int<33> f1;
    bit<39> f2;
}

header t2_t {
    bit<1> f0;
    bit<15> f1;
}

header t3_t {
    bit<32> f0;
    bit<16> f1;
    int<24> f2;
}

header loop_t {
    bit<3> more;
    int<13> f0;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<64> m0;
    int<48> m1;
    bit<32> m2;
    bit<5> pad;
}

struct headers_t {
    t1_t h0;
    eth_t eth;
    loop_t[3] s0;
    seen_t seen;
}

struct metadata_t {
    bit<64> m0;
    @field_list(1) int<48> m1;
    bit<32> m2;
    @field_list(1, 2, 3) bit<8> rounds;
}

bit<8> fn1(in bit<48> x, in int<63> y) {
    return (-((bit<8>)(bit<63>)y * ((bit<8>)(bit<63>)y * (bit<8>)x)));
}

bit<5> fn2(in bit<32> x, in int<7> y) {
    return ((bit<5>)(bit<7>)y - 5w16);
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        m.m1 = ((-m.m1) - (~(int<48>)48w281474976710655));
        m.m0 = ((bit<64>)(int<64>)(bit<64>)m.m2);
        transition reject;
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        verify((((h.eth.f2)[11:9] != 5) && ((h.eth.f0)[6:5] == 3)), error.Even);
        m.m2 = ((bit<32>)h.eth.way * ((bit<32>)h.eth.way | 32w2));
        transition select(h.s0.last.more) {
            3w0: accept;
            3w1: take_h0;
            3w4 &&& 3w4: take_s0;
            default: take_s0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        m.m0 = (bit<64>)pkt.lookahead<bit<32>>();
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<15> v3 = 15w32767;
    counter(1, CounterType.packets_and_bytes) c4;
    action a5(bit<8> p0) {
        h.eth.sel = (~h.eth.way);
        sm.egress_spec = 9w1 + (bit<9>)((bit<2>)h.eth.f5 | (bit<2>)(h.s0[0].isValid() ? h.s0[0].more : 3w4));
        h.eth.f1 = (((sm.checksum_error - 1w1) > 1w1) ? 16w32768 : ((bit<16>)((int<16>)16w0)));
        h.eth.f3 = (bit<3>)h.eth.f1;
    }
    action a6(bit<24> p0, bit<33> p1, int<4> p2) {
        h.s0.push_front(1);
        h.s0[1].setValid();
        h.s0[1].more = (-(h.s0[0].isValid() ? h.s0[0].more : 3w0));
        h.s0[1].f0 = ((int<13>)13w8191);
        if (h.h0.isValid()) {
            h.h0.f0 = (((bit<16>)(int<16>)(bit<16>)p0) - (bit<16>)(bit<13>)((int<13>)(bit<13>)sm.ingress_port));
        }
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        h.s0[1].more = (((h.s0[1].isValid() ? h.s0[1].more : 3w2) + (bit<3>)sm.instance_type) |-| (h.s0[2].isValid() ? h.s0[2].more : 3w4));
        h.eth.f3 = ((bit<3>)(m.m0) - ((bit<3>)((bit<47>)sm.instance_type) |-| ((h.s0[2].isValid() ? h.s0[2].more : 3w4) - (h.s0[0].isValid() ? h.s0[0].more : 3w4))));
        switch (((bit<4>)sm.ingress_port |-| ((bit<4>)(int<4>)(h.s0[1].isValid() ? h.s0[1].f0 : 13s4)))) {
            2: {
                h.eth.sel = h.eth.way;
            }
        }
        if ((((h.eth.f5 * h.eth.f5) < (-h.eth.f5)) && (((bit<32>)(h.s0[0].isValid() ? h.s0[0].more : 3w7) < 32w2147483648) && ((h.s0[2].isValid() ? h.s0[2].f0 : (int<13>)13w8191) <= 13s2)))) {
            if (h.h0.isValid()) {
            }
        } else {
        }
        if (m.rounds < 1 && h.eth.way[5:4] != 2) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.I2E, (bit<32>)h.eth.way[7:6], 3);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<24> v7 = 24s0;
    bit<3> v8 = 3w7;
    bit<7> v9 = 7w4;
    counter(1, CounterType.packets_and_bytes) c10;
    action a11(in int<4> in0, inout bit<32> io0) {
        h.s0[1] = h.s0[2];
    }
    action a12(int<16> p0, int<12> p1) {
        h.s0[0].setValid();
        h.s0[0].more = (3w5 | h.eth.f4);
        h.s0[0].f0 = ((int<13>)13w4096);
        h.s0[2].setValid();
        h.s0[2].more = (h.eth.f3 + (h.s0[1].isValid() ? h.s0[1].more : 3w4));
        h.s0[2].f0 = ((h.s0[1].isValid() ? h.s0[1].f0 : 13s1296) |+| (h.s0[1].isValid() ? h.s0[1].f0 : 13s4021));
    }
    apply {
        h.s0[2].f0 = (int<13>)(bit<13>)v9;
        a11((int<4>)(bit<4>)h.eth.f3, m.m2);
        if (((16w5)[4:3] < 2)) {
            if (h.eth.isValid()) {
                h.eth.f3 = (((h.s0[2].isValid() ? h.s0[2].more : 3w5) |-| (-h.eth.f4)) * (bit<3>)(((bit<8>)(h.h0.isValid() ? h.h0.f2 : 39w274877906944) + 8w2)));
            }
        } else {
        }
        if (m.rounds < 1 && h.eth.way[5:4] == 0) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.E2E, 1, 3);
        }
        if (h.eth.way[3:2] == 1) { mark_to_drop(sm); }
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
        pkt.emit(h.s0);
        pkt.emit(h.h0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

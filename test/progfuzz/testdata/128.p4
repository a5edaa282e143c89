// Program 128: Saturate Multiply Stack Verify ValueSet Counter OddHash Resubmit Multicast Call
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<8> f0;
    bit<33> f1;
    bit<7> f2;
    bit<24> f3;
    bit<8> f4;
    bit<5> f5;
    bit<2> f6;
    bit<33> f7;
}

header t0_t {
    bit<8> f0;
}

header t1_t {
    bit<16> f0;
    bit<24> f1;
}

header t2_t {
    bit<15> f0;
    bit<25> f1;
}

header t3_t {
    bit<31> f0;
    bit<31> f1;
    bit<34> f2;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<47> m0;
    bit<12> m1;
    bit<33> m2;
    bit<63> m3;
    bit<6> m4;
    bit<4> pad;
}

struct headers_t {
    t2_t[2] s0;
    eth_t eth;
    t3_t[2] s1;
    t2_t h1;
    t1_t h0;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 2) bit<47> m0;
    @field_list(1, 2, 3) bit<12> m1;
    @field_list(2, 3) bit<33> m2;
    @field_list(1, 2, 3) bit<63> m3;
    @field_list(1) bit<6> m4;
    @field_list(1, 2, 3) bit<8> rounds;
}

bit<32> fn1(in bit<12> x, in bit<16> y) {
    return (bit<32>)x;
}

bit<4> fn2(in bit<9> x, in bit<33> y) {
    if ((31w0 == ((bit<31>)x |+| (bit<31>)x))) {
        return ((bit<4>)x + ((bit<4>)y + (bit<4>)x));
    }
    return (((9w0)[8:8] >= 0) ? (((bit<4>)y |-| (bit<4>)x) & (bit<4>)x) : (((bit<4>)x |-| (bit<4>)x) & ((bit<4>)y + (bit<4>)y)));
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) vs;
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        verify(((m.m4)[3:2] > 3), error.Even);
        verify(((m.m1)[7:7] != 1), error.Odd);
        transition select(sm.ingress_port) {
            9w5: take_s1;
            9w0: take_h1;
            default: take_h0;
        }
    }
    state take_s1 {
        pkt.extract(h.s1.next);
        pkt.extract(h.s1.next);
        h.eth.f6 = (((((bit<12>)m.m4)[1:1] != 0) ? h.eth.f6 : h.eth.f6) * (~h.eth.f6));
        h.eth.f4 = (h.eth.sel |+| h.eth.sel);
        transition select(h.eth.f4, h.eth.way, m.m0) {
            (8w1 &&& 8w5, _, 47w4): accept;
            (8w6 .. 8w10, _, 47w3): take_h0;
            (_, 8w0, 47w5): take_h1;
            (8w0, _, 47w0): take_h0;
            default: take_s0;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        m.m4 = m.m4;
        transition take_h0;
    }
    state take_h0 {
        pkt.extract(h.h0);
        verify(((h.eth.f7)[23:23] == 1), error.Even);
        transition select(h.eth.sel[2:0], h.eth.sel) {
            (3w1, 8w1): take_h1;
            (3w6 .. 3w7, 8w3): take_h1;
            (3w0, 8w4 .. 8w6): take_h1;
            default: accept;
        }
    }
    state take_h1 {
        pkt.extract(h.h1);
        h.h1.f1 = ((bit<25>)m.m3 + h.h1.f1);
        h.eth.way = (bit<8>)h.h1.f1;
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<63> v3 = 63w9223372036854775807;
    counter(1, CounterType.packets_and_bytes) c4;
    action a5(bit<48> p0, bit<17> p1, bit<3> p2) {
        h.s0[1].f1 = (bit<25>)((((bit<13>)m.m2) * (bit<13>)(h.s1[1].isValid() ? h.s1[1].f0 : 31w0)));
    }
    action a6(bit<48> p0, bit<20> p1, bit<6> p2) {
        h.eth.f5 = (bit<5>)(8w3);
        sm.mcast_grp = ((h.h0.isValid() ? h.h0.f0 : 16w32768) + (bit<16>)h.eth.f5)[1:0] == 3 ? 16w0 : 16w1 + (bit<16>)h.eth.way[3:2];
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        h.s0[1].setValid();
        h.s0[1].f0 = ((bit<15>)h.eth.f6 & 15w13788);
        h.s0[1].f1 = ((h.s0[0].isValid() ? h.s0[0].f1 : 25w4) - (h.h1.isValid() ? h.h1.f1 : 25w2));
        if (h.s0[0].isValid()) {
            h.h1.setInvalid();
            if (h.h1.isValid()) {
                h.s0.pop_front(1);
                if (h.s1[0].isValid()) {
                    h.h0.f1 = ((h.h0.isValid() ? h.h0.f1 : 24w4) + (bit<24>)((h.eth.way & h.eth.f4)));
                }
                if ((!(!(m.m0 <= 47w140737488355327)))) {
                    h.s1[1].setInvalid();
                } else {
                    h.h0.f1 = (h.h0.isValid() ? h.h0.f1 : 24w7396203);
                    h.h1.f1 = 25w33554431;
                }
            }
        }
        if (m.rounds < 2 && h.eth.way[5:4] == 1) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(2);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<20> v7 = 20w4;
    counter(32, CounterType.packets_and_bytes) c8;
    action a9(bit<4> p0, bit<5> p1) {
        h.s1.pop_front(2);
        h.s0[1].f0 = ((bit<15>)((h.h0.isValid() ? h.h0.f0 : 16w0)) ^ ((h.h1.isValid() ? h.h1.f0 : 15w4) + 15w1));
        h.eth.f1 = (((bit<33>)(h.s1[0].isValid() ? h.s1[0].f2 : 34w0) |+| (h.eth.f1 * 33w4294967296)) |+| 33w4294967296);
    }
    action a10() {
        h.eth.f3 = (~h.eth.f3);
    }
    apply {
        h.h1.setValid();
        h.h1.f0 = (15w30332 ^ (h.s0[1].isValid() ? h.s0[1].f0 : 15w24350));
        h.h1.f1 = (~(bit<25>)(h.s0[1].isValid() ? h.s0[1].f0 : 15w16384));
        if (h.s0[1].isValid()) {
            h.h0.f1 = ((((h.h0.isValid() ? h.h0.f1 : 24w0) |-| 24w8388608) & ((h.h0.isValid() ? h.h0.f1 : 24w3) - 24w8388608)) * ((24w16777215 + (bit<24>)h.eth.f5) |-| (h.eth.f3 |+| h.eth.f3)));
            h.eth.f2 = (bit<7>)h.eth.f6;
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
        pkt.emit(h.s1);
        pkt.emit(h.h1);
        pkt.emit(h.h0);
        pkt.emit(h.s0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 24: Wide Stack Union Varbit Lookahead ValueSet Register Meter OddHash Exit Loose
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<65> f0;
    bit<55> f1;
}

header t0_t {
    bit<16> f0;
    bit<80> f1;
    bit<7> f2;
    bit<9> f3;
    bit<63> f4;
    bit<89> f5;
}

header t1_t {
    bit<1> f0;
    bit<64> f1;
    bit<63> f2;
    bit<1> f3;
    bit<8> f4;
    bit<5> f5;
    bit<32> f6;
    bit<58> f7;
}

header vb_t {
    bit<8> f0;
    bit<8> f1;
    varbit<48> v;
}

header_union u_t {
    t0_t m0;
    t0_t m1;
    t1_t m2;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<8> m0;
    bit<48> m1;
    bit<15> m2;
    bit<63> m3;
    bit<9> m4;
    bit<64> m5;
    bit<6> pad;
}

struct headers_t {
    t1_t[4] s1;
    t0_t h0;
    t1_t h1;
    t1_t[2] s0;
    eth_t eth;
    seen_t seen;
}

struct metadata_t {
    bit<63> m3;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition select(h.eth.sel[4:2]) {
            3w0: take_h2;
            3w3 .. 3w5: take_u2;
            default: take_u0;
        }
    }
    state take_h2 {
        transition select(h.s1[1].f2, h.s1[3].f3, pkt.lookahead<bit<16>>()) {
            default: take_u2;
        }
    }
    state take_u0 {
        transition select(h.eth.sel[6:4], h.s0[1].f2[2:0]) {
            default: take_s0;
        }
    }
    state take_u2 {
        h.eth.way = ((bit<8>)((bit<1>)h.s1[0].f5) - (h.s0[0].f4 ^ (bit<8>)h.h1.f3));
        m.m3 = (bit<63>)pkt.lookahead<bit<32>>();
        transition take_s1;
    }
    state take_s1 {
        pkt.extract(h.s1.next);
        transition select(h.h0.f5) {
            default: take_h1;
        }
    }
    state take_h1 {
        transition select(h.eth.sel[6:4], h.s1[0].f6[2:0]) {
            default: take_h0;
        }
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        transition select(h.s0[0].f6, pkt.lookahead<bit<9>>()) {
            default: take_vb;
        }
    }
    state take_u1 {
        transition select(h.eth.sel) {
            default: accept;
        }
    }
    state take_vb {
        transition select(h.eth.sel[6:4], h.h0.f4, pkt.lookahead<bit<5>>()) {
            default: take_h0;
        }
    }
    state take_h0 {
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.eth);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

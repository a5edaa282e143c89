// Program 6: Wide Signed Shift Stack Varbit Lookahead ValueSet TwoWays Table Register Counter Random Hash OddHash CloneI2E Multicast Truncate Call Exit
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    int<16> f0;
    bit<31> f1;
    int<20> f2;
    bit<37> f3;
}

header t0_t {
    bit<63> f0;
    bit<8> f1;
    bit<6> f2;
    bit<8> f3;
    int<129> f4;
    bit<16> f5;
    bit<3> f6;
    bit<23> f7;
}

header t1_t {
    bit<17> f0;
    int<32> f1;
    bit<8> f2;
    int<40> f3;
    bit<16> f4;
    int<5> f5;
    bit<9> f6;
    bit<193> f7;
}

header t2_t {
    bit<20> f0;
    bit<16> f1;
    bit<3> f2;
    int<3> f3;
    bit<40> f4;
    bit<8> f5;
    int<32> f6;
    bit<32> f7;
    bit<8> f8;
    bit<5> f9;
    int<63> f10;
    bit<50> f11;
}

header t3_t {
    bit<63> f0;
    bit<25> f1;
}

header vb_t {
    bit<8> f0;
    varbit<72> v;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    int<20> m0;
    int<33> m1;
    bit<40> m2;
    bit<16> m3;
}

struct headers_t {
    eth_t eth;
    t2_t h1;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 3) bit<16> m3;
    @field_list(1, 2, 3) bit<8> rounds;
}

control Sub(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    table t9 {
        key = {
            h.eth.sel[7:5] : optional @name("k0");
            sm.ingress_port : ternary @name("k1");
        }
        actions = {
            NoAction;
        }
    }
    apply {
    }
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) vs;
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        transition select(h.eth.sel[6:4], h.eth.f3[2:0]) {
            default: take_s0;
        }
    }
    state take_s1 {
        transition select(h.eth.sel[7:5], m.m3) {
            default: take_h2;
        }
    }
    state take_s0 {
        transition select(h.eth.sel) {
            8w3: take_h1;
            default: take_h0;
        }
    }
    state take_h0 {
        transition select(h.eth.sel) {
            0 .. 255: accept;
            default: take_h2;
        }
    }
    state take_h2 {
        transition select(h.eth.sel) {
            default: take_h1;
        }
    }
    state take_vb {
        transition take_h1;
    }
    state take_h1 {
        h.eth.f1 = ((((int<65>)(bit<65>)h.h1.f9 <= (int<65>)h.h1.f10) ? h.eth.f1 : h.eth.f1) - (31w4 - 31w2));
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
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

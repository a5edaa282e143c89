// Program 1023: Wide Signed Multiply Union Varbit Register Counter Random Hash OddHash Checksum Resubmit CloneI2E Truncate CPU Loose
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    int<32> f0;
    bit<32> f1;
    int<8> f2;
    bit<1> f3;
    bit<16> f4;
    int<16> f5;
    bit<12> f6;
    bit<3> f7;
    bit<8> f8;
}

header t0_t {
    int<24> f0;
}

header t1_t {
    bit<17> f0;
    bit<17> f1;
    int<6> f2;
}

header t2_t {
    bit<32> f0;
}

header t3_t {
    bit<9> f0;
    int<23> f1;
}

header vb_t {
    int<8> f0;
    varbit<96> v;
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
    int<16> m0;
    bit<13> m1;
    int<7> m2;
    bit<55> m3;
    bit<47> m4;
    bit<3> pad;
}

struct headers_t {
    t1_t h1;
    t0_t h2;
    vb_t vb;
    u_t u;
    eth_t eth;
    t2_t h0;
    seen_t seen;
    packet_out_t packet_out;
    packet_in_t packet_in;
}

struct metadata_t {
    @field_list(1, 3) int<16> m0;
    @field_list(2, 3) bit<13> m1;
    @field_list(2, 3) int<7> m2;
    @field_list(1, 2, 3) bit<55> m3;
    @field_list(1) bit<47> m4;
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
        transition take_u2;
    }
    state take_h1 {
        transition select(h.eth.sel[5:3], m.m4[2:0], sm.ingress_port[2:0]) {
            default: take_u2;
        }
    }
    state take_vb {
        transition select(h.eth.sel[4:2], h.eth.f4[2:0]) {
            default: take_h2;
        }
    }
    state take_u2 {
        transition select(m.m4, m.m3) {
            default: take_h2;
        }
    }
    state take_u0 {
        transition select(h.eth.sel[2:0], m.m4[2:0], m.m3[2:0]) {
            default: accept;
        }
    }
    state take_h2 {
        transition select(h.eth.sel[7:5], h.eth.sel) {
            default: take_u1;
        }
    }
    state take_h0 {
        transition select(h.eth.sel[7:5], h.h1.f1) {
            default: accept;
        }
    }
    state take_u1 {
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<16> v1 = 16w50299;
    bit<32> v2 = 32w0;
    register<bit<64>>(64) r3;
    register<int<80>>(2) r4;
    apply {
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        hash(h.eth.f6, HashAlgorithm.identity, 12w1, { v1 }, 12w349);
        truncate(32w150 + (bit<32>)(((bit<6>)(bit<32>)h.eth.f0 & 6w5)));
        hash(h.h1.f1, HashAlgorithm.crc16, 17w1, { m.m3, v2, 4w0, h.eth.f0, 24w3 }, 17w10194);
        if (m.rounds < 2 && h.eth.way[5:4] == 2) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(1);
        }
        if (m.rounds < 2 && h.eth.way[5:4] != 0) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.I2E, 2, 1);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    register<bit<32>>(16) r10;
    counter(1, CounterType.packets_and_bytes) c11;
    action a12() {
        truncate(32w150 + (bit<32>)(((bit<6>)sm.ingress_port * (bit<6>)(bit<24>)h.u.m2.f0)));
        h.h2.f0 = (-(((int<24>)(bit<24>)m.m1) * (~24s3)));
    }
    apply {
        h.eth.f1 = (-(bit<32>)((bit<128>)(bit<24>)h.h2.f0));
        {
            bit<16> v15;
            random(v15, 16w3, 16w18749);
            if (v15 < 3 || v15 > 18749) { h.eth.f0 = (int<32>)32w4294967295; }
        }
        switch (((((bit<9>)(bit<8>)h.eth.f2)[6:5] >= 0) ? ((bit<2>)(int<2>)(bit<2>)h.eth.f7) : (bit<2>)(bit<8>)h.vb.f0)) {
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
        if (sm.egress_port == 510) {
            h.packet_in.setValid();
            h.packet_in.port = sm.ingress_port;
            h.packet_in.pad = 0;
        }
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum_with_payload(h.eth.isValid(), { m.m1, 63w4, m.m2, m.m4, h.eth.sel, 32w4294967295, h.eth.way, h.eth.f0 }, h.eth.f4, HashAlgorithm.csum16);
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.packet_in);
        pkt.emit(h.eth);
        pkt.emit(h.h0);
        pkt.emit(h.h1);
        pkt.emit(h.vb);
        pkt.emit(h.h2);
        pkt.emit(h.u);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

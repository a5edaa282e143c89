// Program 116: Wide Verify ValueSet Register Meter CloneI2E Call Exit
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<104> f0;
}

header t0_t {
    bit<40> f0;
}

header t1_t {
    bit<8> f0;
    bit<33> f1;
    bit<7> f2;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<48> m0;
    bit<1> m1;
    bit<16> m2;
    bit<4> pad;
}

struct headers_t {
    t0_t h0;
    eth_t eth;
    seen_t seen;
}

struct metadata_t {
    @field_list(2, 3) bit<48> m0;
    @field_list(1, 2) bit<1> m1;
    @field_list(1, 3) bit<16> m2;
    @field_list(1, 2, 3) bit<8> rounds;
}

bit<3> fn1(in bit<64> x, in bit<4> y) {
    return 3w0;
}

bit<48> fn2(in bit<128> x, in bit<8> y) {
    return (bit<48>)((((128w68247631371300589412077457930120263109)[47:45] >= 0) ? (bit<16>)y : ((bit<16>)y ^ (bit<16>)x)));
}

control Sub(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<32> v3 = 32w4294967295;
    bit<16> v4 = 16w65535;
    bit<96> v5 = 96w0;
    meter(8, MeterType.bytes) x6;
    action a7(bit<47> p0) {
        if ((h.eth.isValid() || ((96w1)[51:51] > 0))) {
            m.m2 = v4;
        }
    }
    action a8(bit<48> p0, bit<16> p1) {
        h.eth.way = ((!(((bit<48>)h.eth.f0)[29:28] > 1)) ? ((h.eth.sel | (bit<8>)sm.ingress_port) & (((v3)[6:6] != 0) ? (bit<8>)v4 : h.eth.sel)) : (~h.eth.sel));
        h.eth.sel = (bit<8>)((((v4)[14:13] >= 2) ? (128w1 | 128w3) : ((bit<128>)h.eth.f0 + (bit<128>)m.m0)));
        v3 = (bit<32>)((bit<6>)h.eth.f0);
    }
    action a9(bit<100> p0, bit<128> p1) {
        h.h0.f0 = ((bit<40>)v4 - (h.h0.isValid() ? h.h0.f0 : 40w1099511627775));
        h.eth.f0 = (~104w5056948932994274318307310065398);
    }
    apply {
        h.h0.f0 = (~(bit<40>)((bit<8>)((bit<15>)v3)));
    }
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) vs;
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        h.eth.way = h.eth.sel;
        transition select(h.eth.sel[2:0], h.eth.way, m.m0) {
            (_, 8w1 .. 8w3, _): accept;
            (3w5, 8w5, 48w5): accept;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        h.eth.way = ((20w4 != (bit<20>)m.m0) ? (h.eth.sel - 8w0) : 8w255);
        h.eth.way = ((1w0 > 1w0) ? (bit<8>)((bit<12>)h.h0.f0) : ((((bit<96>)m.m2)[14:12] >= 3) ? h.eth.way : h.eth.way));
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<100> v10 = 100w633825300114114700748351602688;
    bit<160> v11 = 160w1461501637330902918203684832716283019655932542975;
    register<bit<48>>(1) r12;
    register<bit<64>>(4) r13;
    register<bit<128>>(64) r14;
    meter(1, MeterType.packets) x15;
    action a16(in bit<9> in0, inout bit<160> io0) {
        m.m1 = ((h.eth.isValid() && (160w0 < 160w1461501637330902918203684832716283019655932542975)) ? m.m1 : ((9w511 >= 9w3) ? (h.h0.isValid() ? 1w1 : m.m1) : (1w1 | 1w1)));
        m.m1 = ((((sm.ingress_port)[3:2] < 0) ? ((bit<1>)(h.h0.isValid() ? h.h0.f0 : 40w3) & sm.checksum_error) : 1w1) ^ (~((((bit<104>)sm.packet_length)[42:40] >= 6) ? sm.checksum_error : 1w1)));
    }
    action a17(in bit<32> in0, inout bit<8> io0) {
        sm.egress_spec = 9w1 + (bit<9>)(bit<2>)v10;
    }
    action a18(bit<16> p0, bit<100> p1) {
        v11 = (((((p1)[49:47] != 3) ? v11 : (bit<160>)sm.packet_length) ^ 160w1) ^ ((~(bit<160>)m.m0) + v11));
        h.h0.setValid();
        h.h0.f0 = ((bit<40>)h.eth.sel & 40w0);
        h.eth.way = (h.eth.way | ((bit<8>)m.m0 | (((bit<160>)p0 == (bit<160>)sm.ingress_port) ? h.eth.way : h.eth.way)));
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        switch ((bit<1>)((bit<16>)((bit<13>)v11))) {
            0: {
                m.m2 = m.m2;
                v10 = 100w1267650600228229401496703205375;
            }
            default: {
                v10 = (~((bit<100>)h.eth.f0 - v10));
                if (((m.m2 != m.m2) && (sm.instance_type < sm.instance_type))) { return; }
            }
        }
        if (h.eth.isValid()) {
            a16(9w256, v11);
            a17((((9w511 > sm.ingress_port) ? sm.packet_length : (bit<32>)v10) | 32w2147483648), h.eth.way);
            switch ((bit<5>)(((h.eth.sel >= h.eth.way) ? sm.instance_type : 32w3))) {
                6: {
                    r12.write(0, fn2(((bit<128>)v10 + (bit<128>)h.eth.sel), (h.eth.way + h.eth.sel)));
                }
                2: {
                    v11 = ((bit<160>)m.m1 + (((bit<160>)h.eth.f0 & (bit<160>)v10) & (v11 - 160w1461501637330902918203684832716283019655932542975)));
                }
                default: {
                }
            }
        }
        if (m.rounds < 1 && h.eth.way[5:4] != 2) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.I2E, 3, 3);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<15> v19 = 15w0;
    bit<47> v20 = 47w70368744177664;
    bit<16> v21 = 16w1;
    meter(32, MeterType.packets) x22;
    action a23() {
        if (h.h0.isValid()) {
            h.eth.sel = (~h.eth.way);
        }
        h.eth.sel = (h.eth.sel - (~((sm.egress_port != sm.ingress_port) ? (bit<8>)sm.egress_rid : 8w5)));
    }
    action a24(bit<16> p0, bit<8> p1) {
        v19 = (bit<15>)((~1w1));
    }
    action a25(bit<24> p0, bit<16> p1, bit<3> p2) {
        m.m2 = ((h.h0.isValid() && (15w3 != 15w0)) ? (bit<16>)((sm.ingress_port | sm.ingress_port)) : (~(bit<16>)v19));
        h.h0.setInvalid();
    }
    apply {
        m.m2 = (v21 - ((~v21) ^ (bit<16>)(h.eth.sel)));
        if (h.eth.isValid()) {
            h.eth.way = (bit<8>)(((bit<129>)((bit<96>)(h.h0.isValid() ? h.h0.f0 : 40w447809328964)) + (129w0 | (bit<129>)h.eth.f0)));
        }
        h.eth.sel = (~((((v19)[3:2] == 3) ? 8w128 : 8w255) + (h.eth.way & h.eth.sel)));
        h.h0.setInvalid();
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
        pkt.emit(h.h0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// Program 118: Shift Stack Varbit Lookahead Verify Loop ValueSet Table Register Counter Hash Checksum Resubmit CloneI2E Multicast Digest Call Exit
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<48> f0;
    bit<16> f1;
    bit<5> f2;
    bit<12> f3;
    bit<6> f4;
    bit<13> f5;
    bit<20> f6;
}

header t0_t {
    bit<7> f0;
    bit<9> f1;
}

header t1_t {
    bit<64> f0;
    bit<15> f1;
    bit<17> f2;
}

header t2_t {
    bit<8> f0;
}

header loop_t {
    bit<3> more;
    bit<4> f0;
    bit<1> f1;
}

header vb_t {
    bit<12> f0;
    bit<12> f1;
    varbit<112> v;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<2> m0;
    bit<55> m1;
    bit<16> m2;
    bit<64> m3;
    bit<15> m4;
    bit<47> m5;
    bit<6> pad;
}

struct headers_t {
    t0_t h0;
    loop_t[2] s0;
    vb_t vb;
    eth_t eth;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 2, 3) bit<2> m0;
    @field_list(1, 2, 3) bit<55> m1;
    @field_list(1) bit<16> m2;
    @field_list(1, 2, 3) bit<64> m3;
    bit<15> m4;
    @field_list(2) bit<47> m5;
    @field_list(1, 2, 3) bit<8> rounds;
}

struct digest_t {
    bit<2> a;
    bit<9> b;
}

bit<1> fn1(in bit<3> x, in bit<31> y) {
    return (bit<1>)y;
}

bit<3> fn2(in bit<3> x, in bit<24> y) {
    return 3w4;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) vs;
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        h.eth.f3 = (bit<12>)h.eth.f6;
        m.m2 = (bit<16>)pkt.lookahead<bit<48>>();
        transition accept;
    }
    state take_s0 {
        pkt.extract(h.s0.next);
        m.m1 = (bit<55>)pkt.lookahead<bit<16>>();
        transition select(h.s0.last.more) {
            3w0: reject;
            3w1: take_vb;
            3w4 &&& 3w4: take_s0;
            default: take_s0;
        }
    }
    state take_vb {
        pkt.extract(h.vb, ((bit<32>)h.eth.way[2:0]) << 3);
        transition select(h.eth.sel[3:1], m.m1[2:0], h.eth.f4) {
            (3w0, 3w4 &&& 3w6, 6w3 .. 6w7): accept;
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.eth.isValid() && h.eth.way[1:0] != 2, { m.m3, m.m4, m.m5, h.eth.sel, h.eth.way, 8w128, h.eth.f0, h.eth.f4, 4w5 }, h.eth.f1, HashAlgorithm.csum16);
        verify_checksum(h.eth.isValid(), { m.m4, m.m5, 8w3, h.eth.sel, 8w3, h.eth.f3, h.eth.f5, 8w5, 9w256 }, h.eth.f1, HashAlgorithm.csum16);
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<17> v3 = 17w2;
    bit<24> v4 = 24w16777215;
    bit<16> v5 = 16w1;
    counter(32, CounterType.packets_and_bytes) c6;
    action a7(in bit<8> in0, inout bit<16> io0) {
        exit;
    }
    action a8(in bit<32> in0, inout bit<13> io0) {
        v5 = (h.eth.f1 - ((m.m2 + m.m2) | ((((bit<7>)v4)[2:0] < 0) ? v5 : h.eth.f1)));
        if (((m.m5 | (bit<47>)(h.s0[0].isValid() ? h.s0[0].f0 : 4w8)) <= (m.m5 + (bit<47>)(h.s0[1].isValid() ? h.s0[1].f0 : 4w8)))) {
            h.eth.f0 = ((~(bit<48>)(h.vb.isValid() ? h.vb.f1 : 12w0)) - (~48w140737488355328));
        }
    }
    table t9 {
        key = {
            h.eth.sel[2:0] : ternary @name("k0");
        }
        actions = {
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0) : NoAction();
        }
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        v4 = ((bit<24>)((bit<4>)(h.eth.f4)) & ((bit<24>)(h.eth.f5) ^ (~(bit<24>)v5)));
        switch (t9.apply().action_run) {
            default: {
                h.eth.f5 = (((13w4 - h.eth.f5) | ((((bit<40>)(h.s0[1].isValid() ? h.s0[1].more : 3w4))[15:15] < 0) ? (bit<13>)m.m3 : (bit<13>)v5)) | (((bit<13>)m.m5 + h.eth.f5) >> ((h.s0[0].isValid() ? h.s0[0].f0 : 4w8))));
            }
        }
        h.eth.f5 = ((bit<13>)(((bit<16>)(h.vb.isValid() ? h.vb.f0 : 12w3) - m.m2)) >> (((~(bit<1>)h.eth.f6) + ((h.s0[0].isValid() ? h.s0[0].f1 : 1w1) + (h.s0[1].isValid() ? h.s0[1].f1 : 1w1)))));
        h.eth.f5 = ((~(13w8191 ^ h.eth.f5)) - 13w1937);
        if (m.rounds < 1 && h.eth.way[5:4] == 3) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(3);
        }
        if (m.rounds < 1 && h.eth.way[5:4] != 1) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.I2E, (bit<32>)h.eth.way[7:6], 3);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<9> v10 = 9w511;
    counter(8, CounterType.packets_and_bytes) c11;
    action a12(bit<16> p0) {
        if ((h.s0[1] != h.s0[0])) {
            h.eth.f4 = (bit<6>)(sm.packet_length);
        }
    }
    action a13(in bit<2> in0, inout bit<3> io0) {
        h.s0.pop_front(1);
    }
    direct_counter(CounterType.packets_and_bytes) dc15;
    table t14 {
        key = {
            h.eth.sel[5:3] : exact @name("k0");
            h.eth.sel : exact @name("k1");
            sm.instance_type : exact @name("k2");
        }
        actions = {
            a12;
            NoAction;
        }
        const default_action = a12(16w0);
        size = 64;
        counters = dc15;
    }
    table t16 {
        key = {
            h.eth.sel[3:1] : exact @name("k0");
            m.m2 : exact @name("k1");
            ((m.m1 >> ((bit<3>)h.eth.f4)) ^ (m.m1 << 2)) : exact @name("k2");
        }
        actions = {
            a12;
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, 6, 6) : a12(16w1);
            (1, 1, 7) : NoAction();
        }
    }
    apply {
        switch (((h.eth.f4 - h.eth.f4) - ((((bit<12>)(h.h0.isValid() ? h.h0.f0 : 7w127))[6:6] > 0) ? (bit<6>)m.m1 : h.eth.f4))) {
            6: {
                h.s0[1].f0 = ((bit<4>)((h.eth.f6 - 20w750911)) & (bit<4>)m.m4);
            }
            7: {
                h.eth.f3 = (((12w4 & h.eth.f3) << (((h.s0[1].isValid() ? h.s0[1].more : 3w3) & (bit<3>)(h.h0.isValid() ? h.h0.f1 : 9w2)))) - (((h.s0[1].isValid() ? h.s0[1].more : 3w5) >= (h.s0[0].isValid() ? h.s0[0].more : 3w1)) ? ((h.vb.isValid() ? h.vb.f0 : 12w0) - (bit<12>)(h.h0.isValid() ? h.h0.f0 : 7w0)) : (~12w3502)));
            }
            1: {
                if (t14.apply().miss) {
                    if (h.s0[0].isValid()) {
                        hash(m.m0, HashAlgorithm.crc32, 2w1, { 6w5, m.m0, h.s0[0].f1, m.m1 }, 2w2);
                        m.m3 = (bit<64>)(h.s0[1].isValid() ? h.s0[1].more : 3w7);
                    }
                    v10 = (9w130 - (((h.h0.isValid() ? h.h0.f1 : 9w0) + v10) + (9w0 | (bit<9>)(h.vb.isValid() ? h.vb.f1 : 12w2))));
                }
            }
            default: {
                h.eth.sel = (bit<8>)(h.s0[0].isValid() ? h.s0[0].f1 : 1w0);
                h.s0[1].f1 = (((1w1 + (h.s0[1].isValid() ? h.s0[1].f1 : 1w1)) << 1) ^ (h.s0[1].isValid() ? h.s0[1].f1 : 1w0));
            }
        }
        hash(h.s0[1].f0, HashAlgorithm.crc16, 4w1, { sm.egress_port, m.m3, h.eth.f0 }, 4w1);
        t16.apply();
        h.eth.f2 = 5w0;
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
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.eth.isValid(), { m.m0, m.m1, m.m2, m.m4, m.m5, h.eth.way, h.eth.f2, h.eth.f3 }, h.eth.f1, HashAlgorithm.csum16);
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.eth);
        pkt.emit(h.s0);
        pkt.emit(h.vb);
        pkt.emit(h.h0);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

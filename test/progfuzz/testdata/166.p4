// Program 166: Wide Union Table Register Counter Hash CloneE2E
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<48> f0;
    bit<4> f1;
    bit<5> f2;
    bit<16> f3;
    bit<39> f4;
}

header t0_t {
    bit<9> f0;
    bit<16> f1;
    bit<31> f2;
}

header t1_t {
    bit<33> f0;
    bit<7> f1;
    bit<32> f2;
}

header t2_t {
    bit<96> f0;
}

header_union u_t {
    t0_t m0;
    t2_t m1;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<13> m0;
    bit<64> m1;
    bit<63> m2;
    bit<48> m3;
    bit<7> m4;
    bit<24> m5;
    bit<2> pad;
}

struct headers_t {
    u_t u;
    eth_t eth;
    t2_t h0;
    seen_t seen;
}

struct metadata_t {
    @field_list(1, 2, 3) bit<13> m0;
    @field_list(1, 2) bit<64> m1;
    @field_list(1, 3) bit<63> m2;
    @field_list(1, 3) bit<48> m3;
    @field_list(1) bit<7> m4;
    @field_list(1, 3) bit<24> m5;
    @field_list(1, 2, 3) bit<8> rounds;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        m.m4 = 7w0;
        m.m3 = (bit<48>)m.m5;
        transition select(h.eth.sel[5:3], h.eth.f3[2:0]) {
            (3w5, 3w0 &&& 3w1): take_u0;
            default: take_u1;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        transition select(h.eth.sel[3:1], m.m0[2:0], h.eth.f4[2:0]) {
            (3w1, _, 3w5): accept;
            default: take_u0;
        }
    }
    state take_u0 {
        pkt.extract(h.u.m0);
        h.u.m0.f0 = sm.ingress_port;
        transition select(h.eth.f0[2:0], h.eth.f1) {
            (3w7, 4w3): accept;
            (3w4 .. 3w4, 4w4): accept;
            default: take_u1;
        }
    }
    state take_u1 {
        pkt.extract(h.u.m1);
        m.m5 = ((m.m5 | m.m5) - m.m5);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<32> v1 = 32w107308532;
    register<bit<3>>(4) r2;
    register<bit<8>>(1) r3;
    register<bit<31>>(4) r4;
    counter(8, CounterType.packets_and_bytes) c5;
    action a6(bit<16> p0) {
        h.eth.f2 = ((((9w0 < 9w328) ? h.eth.f2 : h.eth.f2) & (bit<5>)((bit<12>)m.m3)) ^ ((5w0 + h.eth.f2) ^ (~h.eth.f2)));
    }
    action a7(bit<12> p0) {
        {
            bit<8> v8;
            r3.read(v8, 0);
            v8 = 8w4;
            r3.write(0, v8);
        }
    }
    action a9(bit<24> p0) {
        h.h0.f0 = ((((bit<16>)m.m3 <= h.eth.f3) ? (bit<96>)(m.m2) : ((h.h0.isValid() ? h.h0.f0 : 96w5) - (h.h0.isValid() ? h.h0.f0 : 96w39614081257132168796771975168))) & (h.u.m1.isValid() ? h.u.m1.f0 : 96w39614081257132168796771975168));
    }
    table t10 {
        key = {
            m.m3 : exact @name("k0");
        }
        actions = {
            a6;
            a9;
            NoAction;
        }
        const default_action = NoAction();
        size = 64;
    }
    direct_counter(CounterType.packets_and_bytes) dc12;
    table t11 {
        key = {
            h.eth.way[3:1] : exact @name("k0");
            m.m1 : exact @name("k1");
        }
        actions = {
            a6;
            a7;
            a9;
            NoAction;
        }
        size = 32;
        counters = dc12;
    }
    apply {
        if (!h.eth.isValid()) {
            mark_to_drop(sm);
            return;
        }
        switch (t11.apply().action_run) {
            a6: {
            }
            a7: {
            }
            a9: {
            }
        }
        switch (t10.apply().action_run) {
            a6: {
                m.m1 = (~((((16w27388)[0:0] > 1) ? m.m1 : m.m1) & (m.m1 + (bit<64>)sm.checksum_error)));
                h.eth.f4 = (h.h0.isValid() ? ((h.eth.f4 | 39w0) | (h.eth.f4 & (bit<39>)m.m3)) : ((h.eth.f4 & h.eth.f4) & (h.u.m1.isValid() ? 39w2 : (bit<39>)h.eth.way)));
            }
            a9: {
                switch ((((5w5)[1:1] == 1) ? (bit<5>)m.m0 : ((bit<5>)m.m1 | h.eth.f2))) {
                    6: {
                        m.m1 = (~(m.m1 & (~64w9223372036854775808)));
                    }
                    3: {
                        r3.read(h.eth.sel, 0);
                        h.u.m1 = h.h0;
                    }
                    5: {
                    }
                    default: {
                    }
                }
            }
            default: {
            }
        }
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<32> v13 = 32w4;
    bit<9> v14 = 9w4;
    bit<256> v15 = 256w0;
    counter(8, CounterType.packets_and_bytes) c16;
    action a17(bit<1> p0) {
        if ((!(((bit<48>)p0)[46:45] > 2))) {
            h.h0.f0 = (((h.u.m1.isValid() ? h.u.m1.f0 : 96w0) + 96w79228162514264337593543950335) & 96w2);
        }
    }
    action a18(bit<13> p0, bit<32> p1) {
        m.m2 = m.m2;
    }
    table t19 {
        key = {
            h.eth.way[4:2] : exact @name("k0");
        }
        actions = {
            a17;
            a18;
            NoAction;
        }
        const default_action = a18(13w8191, 32w1552900429);
        const entries = {
            (0) : a18(13w3, 32w2743062012);
        }
    }
    table t20 {
        key = {
            h.eth.f2 : exact @name("k0");
            m.m5 : exact @name("k1");
        }
        actions = {
            a17;
            a18;
            NoAction;
        }
        size = 64;
    }
    table t21 {
        key = {
            (bit<63>)(h.eth.f3) : exact @name("k0");
        }
        actions = {
            a17;
            a18;
            NoAction;
        }
        size = 64;
    }
    apply {
        t21.apply();
        t20.apply();
        h.u.m1 = h.h0;
        switch (t19.apply().action_run) {
            default: {
                if (((((bit<16>)(h.u.m0.isValid() ? h.u.m0.f0 : 9w511) & (h.u.m0.isValid() ? h.u.m0.f1 : 16w28826)) + (~16w2)) != (bit<16>)(((bit<65>)v13 ^ 65w36893488147419103231)))) {
                    h.h0 = h.u.m1;
                    h.eth.f0 = (~(bit<48>)((bit<17>)((bit<1>)(h.u.m0.isValid() ? h.u.m0.f1 : 16w32768))));
                } else {
                    h.u.m0.f2 = ((bit<31>)(((bit<55>)h.eth.f4 ^ (bit<55>)sm.egress_rid)) & (~(bit<31>)(48w140737488355328)));
                    h.u.m0.f0 = 9w356;
                    hash(h.eth.f1, HashAlgorithm.identity, 4w1, { h.eth.f4 }, 4w6);
                }
            }
        }
        if (((m.m1)[28:28] == 0)) {
            h.u.m1 = h.h0;
            if ((((sm.ingress_port)[0:0] == 1) || h.u.m0.isValid())) {
            }
        } else {
        }
        if (m.rounds < 1 && h.eth.way[5:4] != 3) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.E2E, (bit<32>)h.eth.way[7:6], 1);
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
        pkt.emit(h.u);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

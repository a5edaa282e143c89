// Program 113: Wide Shift Multiply Concat Lookahead Verify TwoWays Register Counter Meter Resubmit CloneE2E Multicast Call Exit Loose
#include <core.p4>
#include <v1model.p4>

error { Odd, Even }

header eth_t {
    bit<8> sel;
    bit<8> way;
    bit<96> f0;
}

header t0_t {
    bit<9> f0;
    bit<55> f1;
}

header t1_t {
    bit<5> f0;
    bit<27> f1;
}

header t2_t {
    bit<15> f0;
    bit<16> f1;
    bit<57> f2;
}

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    bit<48> m0;
    bit<4> m1;
    bit<16> m2;
    bit<7> m3;
    bit<6> m4;
    bit<15> m5;
    bit<5> pad;
}

struct headers_t {
    t2_t h1;
    eth_t eth;
    t1_t h0;
    seen_t seen;
}

struct metadata_t {
    bit<48> m0;
    @field_list(1, 3) bit<4> m1;
    @field_list(2) bit<16> m2;
    @field_list(1, 2, 3) bit<7> m3;
    @field_list(1, 2) bit<6> m4;
    @field_list(1, 2) bit<15> m5;
    @field_list(1, 2, 3) bit<8> rounds;
}

bit<6> fn1(in bit<8> x, in bit<191> y) {
    return (bit<6>)y;
}

bit<20> fn2(in bit<24> x, in bit<6> y) {
    if (((x)[4:3] != 1)) {
        return (((bit<3>)y >= (bit<3>)x) ? ((bit<20>)y >> ((bit<3>)y)) : ((bit<20>)x - (bit<20>)y));
    }
    return (bit<20>)y;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start { transition eth; }
    state eth {
        pkt.extract(h.eth);
        verify(((m.m0)[17:15] <= 3), error.Odd);
        transition select(h.eth.sel[3:1], h.h0.f1[2:0]) {
            (3w3, 3w2 &&& 3w5): take_h1;
            (3w5, 3w6 .. 3w7): accept;
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        transition select(pkt.lookahead<bit<2>>(), pkt.lookahead<bit<15>>()) {
            (_, 15w3): accept;
            (2w2 &&& 2w3, 15w1): accept;
            (0 .. 3, _): take_h1;
            default: take_h1;
        }
    }
    state take_h1 {
        pkt.extract(h.h1);
        verify(((15w5)[3:3] >= 1), error.Even);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<16> v3 = 16w0;
    bit<9> v4 = 9w1;
    bit<8> v5 = 8w255;
    register<bit<20>>(4) r6;
    counter(8, CounterType.packets_and_bytes) c7;
    meter(8, MeterType.bytes) x8;
    action a9() {
        exit;
        m.m2 = v3;
    }
    action a10(bit<63> p0, bit<65> p1) {
        h.h0.setValid();
        h.h0.f1[6:0] = (((m.m3)[6:0] + ((bit<7>)sm.ingress_port * m.m3)) * ((m.m3 ^ (bit<7>)h.eth.f0) + (5w1 ++ (bit<2>)h.eth.f0)));
    }
    apply {
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        r6.write((bit<32>)(h.h0.f0 ++ (bit<3>)h.eth.f0), (~(20w524288 + (bit<20>)h.h1.f2)));
        if (h.h0.isValid()) {
            m.m4 = 6w5;
            switch ((((m.m4)[4:2] > 2) ? (bit<1>)h.eth.way : (((m.m0)[17:17] <= 1) ? 1w0 : sm.checksum_error))) {
                0: {
                    switch (((h.h0.f0 - h.h0.f0) + ((bit<3>)m.m1 ++ (bit<2>)h.eth.way))) {
                        7: {
                            v5 = ((((bit<3>)m.m1 >> 3) ++ (h.h0.f0 << (4w2))) << 3);
                            c7.count((bit<32>)((3w2 ^ (bit<3>)v4)));
                        }
                        default: {
                            sm.mcast_grp = m.m2[1:0] == 3 ? 16w0 : 16w1 + (bit<16>)h.eth.way[3:2];
                            r6.write(2, ((bit<20>)m.m0 << ((bit<4>)sm.checksum_error)));
                        }
                    }
                }
                default: {
                    if (h.h0.isValid()) {
                    }
                }
            }
        }
        if (m.rounds < 1 && h.eth.way[5:4] == 3) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(3);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<8> v11 = 8w0;
    bit<64> v12 = 64w3;
    register<bit<12>>(2) r13;
    counter(32, CounterType.packets_and_bytes) c14;
    meter(1, MeterType.packets) x15;
    action a16(in bit<64> in0, inout bit<96> io0) {
        {
            bit<12> v17;
            r13.read(v17, 0);
            v17 = (((bit<12>)h.eth.sel - 12w2700) + ((bit<12>)h.eth.way + v17));
            r13.write(0, v17);
        }
        c14.count((bit<32>)((5w0 | (bit<5>)io0)));
    }
    apply {
        if (h.h0.isValid()) {
            if (h.eth.isValid()) {
                m.m0 = (~(m.m0 * ((bit<48>)h.eth.sel - 48w91788504743177)));
                if (h.h1.isValid()) { return; }
                m.m2 = (m.m5 ++ ((~(bit<19>)h.h0.f0))[2:2]);
                h.eth.f0 = ((((bit<8>)m.m2 - v11) >= (h.eth.sel + v11)) ? h.eth.f0 : (((bit<96>)sm.egress_rid >> 39) + ((bit<96>)sm.packet_length - h.eth.f0)));
            }
            if (((h.h0.f1)[11:10] > 1)) {
                r13.write(0, (~((bit<31>)v11)[12:1]));
                switch ((bit<2>)m.m3) {
                    0: {
                        a16((((bit<79>)h.h0.f1 & (bit<79>)sm.egress_port))[69:6], h.eth.f0);
                    }
                    1: {
                        c14.count((bit<32>)(4w15 << ((bit<1>)h.h1.f0)));
                    }
                }
            } else {
            }
        }
        if (m.rounds == 0 && sm.instance_type == 0 && h.eth.way[5:4] == 2) {
            m.rounds = 1;
            clone(CloneType.E2E, 1);
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
        pkt.emit(h.h1);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

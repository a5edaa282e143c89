// Program 127: Signed Saturate Concat Lookahead Counter Random Hash OddHash Resubmit Recirc CloneE2E Digest CPU Exit Loose
#include <core.p4>
#include <v1model.p4>

header eth_t {
    bit<8> sel;
    bit<8> way;
    int<32> f0;
    bit<16> f1;
    bit<1> f2;
    bit<47> f3;
}

header t0_t {
    bit<3> f0;
    bit<7> f1;
    bit<22> f2;
}

header t1_t {
    int<24> f0;
}

header t2_t {
    int<6> f0;
    bit<48> f1;
    bit<26> f2;
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

header seen_t {
    bit<32> instance_type;
    bit<32> packet_length;
    bit<9> ingress_port;
    bit<9> egress_port;
    bit<16> egress_rid;
    bit<1> checksum_error;
    int<15> m0;
    bit<5> m1;
    bit<2> m2;
    bit<7> pad;
}

struct headers_t {
    t2_t h1;
    eth_t eth;
    t1_t h0;
    t1_t h2;
    seen_t seen;
    packet_out_t packet_out;
    packet_in_t packet_in;
}

struct metadata_t {
    int<15> m0;
    bit<5> m1;
    @field_list(1) bit<2> m2;
    @field_list(1, 2, 3) bit<8> rounds;
}

struct digest_t {
    bit<15> a;
    bit<9> b;
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
        m.m0 = (int<15>)(bit<15>)pkt.lookahead<bit<13>>();
        transition select(pkt.lookahead<bit<63>>()) {
            63w6: take_h0;
            63w1: accept;
            default: take_h0;
        }
    }
    state take_h1 {
        pkt.extract(h.h1);
        h.eth.sel = h.eth.way;
        transition select(h.eth.sel[4:2], h.eth.f1[2:0]) {
            (3w3 .. 3w5, 3w0): accept;
            (3w5 .. 3w7, 3w1 .. 3w1): take_h2;
            (3w2, _): take_h0;
            (3w0 .. 3w2, 3w0): take_h0;
            default: take_h0;
        }
    }
    state take_h2 {
        pkt.extract(h.h2);
        h.eth.way = ((h.eth.sel - 8w4) ^ (-h.eth.sel));
        m.m1 = (bit<5>)pkt.lookahead<bit<16>>();
        transition select(h.eth.sel[6:4], pkt.lookahead<bit<7>>()) {
            (_, 7w2): take_h0;
            default: take_h0;
        }
    }
    state take_h0 {
        pkt.extract(h.h0);
        h.eth.f3 = (h.eth.f3 |-| (h.eth.f3 & 47w140737488355327));
        m.m1 = (((((bit<40>)h.eth.f2)[6:6] <= 0) ? m.m1 : (bit<5>)(bit<15>)m.m0) |-| 5w11);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    bit<12> v1 = 12w5;
    bit<8> v2 = 8w0;
    counter(1, CounterType.packets_and_bytes) c3;
    action a4() {
        c3.count(0);
        hash(v2, HashAlgorithm.xor16, 8w0, { v1, h.eth.way, 3w7, sm.checksum_error, 8w255 }, 8w71);
    }
    action a5(bit<8> p0) {
        if (((h.h1.f0 != h.h1.f0) || (h.eth.f1 == h.eth.f1))) {
            h.eth.f1 = (-(bit<16>)v2);
        }
        if (((h.h0.isValid() ? sm.checksum_error : (bit<1>)h.eth.f1) < (bit<1>)((bit<20>)(bit<6>)h.h1.f0))) {
            h.eth.f0 = (-((int<32>)32w2147483648 ^ h.eth.f0));
        }
        h.h1.f0 = h.h1.f0;
    }
    action a6(int<13> p0, bit<8> p1, bit<2> p2) {
    }
    apply {
        sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];
        if (h.eth.way[4:2] == 5) { sm.egress_spec = 510; }
        if (h.packet_out.isValid()) {
            sm.egress_spec = h.packet_out.port;
            h.packet_out.setInvalid();
        }
        if ((((bit<2>)((int<2>)2w0)) > ((-(bit<2>)h.eth.f1) |+| (m.m2 & m.m2)))) {
            if ((((~m.m0) |+| ((int<15>)(bit<15>)sm.instance_type)) > ((15s5 |-| (int<15>)h.h0.f0) |+| (m.m0 ^ m.m0)))) {
            }
        } else {
        }
        if (m.rounds < 2 && h.eth.way[5:4] == 0) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(3);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    int<6> v7 = (int<6>)6w63;
    bit<16> v8 = 16w2;
    counter(32, CounterType.packets_and_bytes) c9;
    action a10(bit<16> p0, bit<6> p1, bit<24> p2) {
        h.eth.way[2:0] = ((-((bit<3>)h.eth.f1 |+| (bit<3>)(bit<32>)h.eth.f0)) - (10w112)[6:4]);
        if ((16s0 >= ((int<16>)16w32768 |+| (int<16>)(bit<16>)sm.instance_type))) {
            v7 = 6s0;
        }
        if (((-(int<3>)(bit<3>)h.eth.f2) >= (int<3>)3w5)) {
            h.eth.way = (-(bit<8>)(3w6));
        }
        c9.count((bit<32>)(((bit<5>)h.eth.sel | m.m1)));
    }
    apply {
        if ((!h.h1.isValid())) {
            h.eth.way = ((bit<8>)(bit<24>)h.h2.f0 + (bit<8>)m.m1);
        } else {
            h.h2.f0 = (-24s5);
            if (h.h1.isValid()) {
                if (h.h2.isValid()) {
                    h.h1.f0 = v7;
                }
            }
        }
        if (m.rounds < 2 && h.eth.way[5:4] == 0) {
            m.rounds = m.rounds + 1;
            recirculate_preserving_field_list(2);
        }
        if (m.rounds < 2 && h.eth.way[5:4] != 0) {
            m.rounds = m.rounds + 1;
            clone_preserving_field_list(CloneType.E2E, (bit<32>)h.eth.way[7:6], 2);
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
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.packet_in);
        pkt.emit(h.eth);
        pkt.emit(h.h1);
        pkt.emit(h.h0);
        pkt.emit(h.h2);
        pkt.emit(h.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// Arithmetic of every kind on narrow, signed and wide fields; the operation is chosen by the packet.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8> op;
    bit<32> x;
    bit<32> y;
    int<16> s;
    int<16> t;
    bit<128> w;
    bit<128> v;
}

header results_t {
    bit<32> r;
    int<16> q;
    bit<128> wide;
    bit<5> odd;
    bit<1> a;
    bit<1> b;
    bit<1> c;
    int<24> mixed;
}

struct headers_t {
    operands_t i;
    results_t o;
}

struct metadata_t {
    bit<64> full;
    bit<2048> huge;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.i);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        h.o.setValid();
        if (h.i.op == 0) {
            h.o.r = h.i.x + h.i.y;
            h.o.q = h.i.s + h.i.t;
            h.o.wide = h.i.w + h.i.v;
        } else if (h.i.op == 1) {
            h.o.r = h.i.x - h.i.y;
            h.o.q = h.i.s - h.i.t;
            h.o.wide = h.i.w - h.i.v;
        } else if (h.i.op == 2) {
            h.o.r = h.i.x |+| h.i.y;
            h.o.q = h.i.s |+| h.i.t;
            h.o.wide = h.i.w |+| h.i.v;
        } else if (h.i.op == 3) {
            h.o.r = h.i.x |-| h.i.y;
            h.o.q = h.i.s |-| h.i.t;
            h.o.wide = h.i.w |-| h.i.v;
        } else if (h.i.op == 4) {
            h.o.r = h.i.x * h.i.y;
            h.o.q = h.i.s * h.i.t;
            h.o.wide = h.i.w * h.i.v;
        } else if (h.i.op == 5) {
            h.o.r = h.i.x << h.i.y[7:0];
            h.o.q = h.i.s << h.i.y[3:0];
            h.o.wide = h.i.w << h.i.v[7:0];
        } else if (h.i.op == 6) {
            h.o.r = h.i.x >> h.i.y[7:0];
            h.o.q = h.i.s >> h.i.y[3:0];
            h.o.wide = h.i.w >> h.i.v[7:0];
        } else if (h.i.op == 7) {
            h.o.r = h.i.x & ~h.i.y;
            h.o.q = h.i.s ^ h.i.t;
            h.o.wide = ~(h.i.w | h.i.v);
        } else if (h.i.op == 8) {
            h.o.a = (bit<1>)(h.i.x < h.i.y);
            h.o.b = (bit<1>)(h.i.s <= h.i.t);
            h.o.c = (bit<1>)(h.i.w > h.i.v);
            h.o.odd = (bit<5>)(bit<1>)(h.i.w == h.i.v) ++ (bit<1>)(h.i.s != h.i.t) == 3 ? 5w17 : 5w9;
        } else if (h.i.op == 9) {
            h.o.r = h.i.x[15:0] ++ h.i.y[31:16];
            h.o.q = (int<16>)(int<8>)h.i.s;
            h.o.wide = h.i.w[63:0] ++ h.i.v[127:64];
            h.o.odd = h.i.w[70:66];
        } else if (h.i.op == 10) {
            h.o.q = -h.i.s;
            h.o.mixed = (int<24>)h.i.s - (int<24>)h.i.t;
            h.o.wide[100:37] = h.i.x ++ h.i.y;
            m.full = (bit<64>)h.i.x * (bit<64>)h.i.y + 0xfedcba9876543210;
            h.o.r = m.full[47:16];
        } else if (h.i.op == 11) {
            m.huge = (((bit<2048>)h.i.w << 250) - (bit<2048>)h.i.v) << h.i.x[7:0];
            m.huge = m.huge ^ (m.huge >> 177) ^ (m.huge * 5);
            m.huge = (m.huge << h.i.y[7:0]) + 1;
            h.o.wide = m.huge[500:373];
            h.o.r = m.huge[319:288];
            h.o.a = (bit<1>)(m.huge > ((bit<2048>)h.i.w << 250));
        } else {
            h.o.r = (h.i.s < 0) ? h.i.x : h.i.y;
            h.o.q = h.i.w[127:127] == 1 ? h.i.s : 16s5;
            h.o.odd = (bit<5>)(h.i.op >> 1);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { }
}

control C(inout headers_t h, inout metadata_t m) {
    apply { }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.o);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

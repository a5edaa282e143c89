// SPDX-License-Identifier: Apache-2.0
// Hashes of every kind, over fields and constants, with headers that may be missing; random numbers in ranges that say what comes out.
#include <core.p4>
#include <v1model.p4>
header e_t { bit<48> d; bit<48> s; bit<16> t; }
header a_t { bit<32> x; bit<16> y; bit<16> z; bit<128> w; bit<4> n; bit<4> k; }
header o_t { bit<32> c32; bit<16> c16; bit<16> cs; bit<16> x16; bit<64> id; bit<128> wide; bit<32> c32b; bit<16> part; bit<16> lim; bit<8> r; }
struct h_t { e_t e; a_t a; a_t b; o_t o; }
struct m_t { bit<16> p; }
parser P(packet_in pkt, out h_t h, inout m_t m, inout standard_metadata_t sm) {
  state start { pkt.extract(h.e); transition select(h.e.d[0:0]) { 1: one; default: accept; } }
  state one { pkt.extract(h.a); transition select(h.e.d[1:1]) { 1: two; default: accept; } }
  state two { pkt.extract(h.b); transition accept; }
}
control V(inout h_t h, inout m_t m) { apply {} }
control I(inout h_t h, inout m_t m, inout standard_metadata_t sm) { apply {
  sm.egress_spec = 1;
  h.o.setValid();
  m.p = h.e.t + 5;
  hash(h.o.c32, HashAlgorithm.crc32, 32w0, { h.a.x, h.a.y, h.b.w, m.p }, 64w0x100000000);
  hash(h.o.c16, HashAlgorithm.crc16, 16w3, { h.a.x, h.a.y, h.b.x, h.e.s }, 32w1000);
  hash(h.o.cs, HashAlgorithm.csum16, 16w0, { h.e.s, h.a.z, h.b.z }, 32w0x10000);
  hash(h.o.x16, HashAlgorithm.xor16, 16w0, { h.e.d, h.e.t, h.b.n, h.b.k }, 32w0x10000);
  hash(h.o.id, HashAlgorithm.identity, 64w1, { h.a.w, h.e.t }, 64w0xffffffffffffffff);
  hash(h.o.wide, HashAlgorithm.crc32_custom, 128w0, { h.e.d, 7w3, 1w1 }, 64w0x100000000);
  hash(h.o.c32b, HashAlgorithm.crc32, h.a.x, { h.e.d, h.e.s, h.e.t, h.a.x, h.a.y, h.a.z, h.a.w }, h.a.y);
  hash(h.o.part, HashAlgorithm.crc16_custom, 16w0, { h.b.n }, 32w0x10000);
  random(h.o.lim, 16w7, 16w7);
  bit<8> r; random(r, 8w3, 8w9); h.o.r = (bit<8>)(bit<1>)(r >= 3 && r <= 9);
} }
control E(inout h_t h, inout m_t m, inout standard_metadata_t sm) { apply {} }
control C(inout h_t h, inout m_t m) { apply {} }
control D(packet_out pkt, in h_t h) { apply { pkt.emit(h.e); pkt.emit(h.o); pkt.emit(h.a); pkt.emit(h.b); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;

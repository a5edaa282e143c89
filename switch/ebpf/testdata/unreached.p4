// SPDX-License-Identifier: Apache-2.0
// Code that no packet reaches, as the engine finds out where p4c does not: each of what becomes a function of its own, in ingress and in egress.
#include <core.p4>
#include <v1model.p4>
header e_t { bit<48> d; bit<48> s; bit<16> t; }
struct h_t { e_t e; }
struct m_t { bit<16> p; bit<16> q; bit<32> r; }
parser P(packet_in pkt, out h_t h, inout m_t m, inout standard_metadata_t sm) {
  state start { pkt.extract(h.e); transition accept; }
}
control V(inout h_t h, inout m_t m) { apply {
  verify_checksum_with_payload((bit<32>)m.q > 32w0x1ffff, { h.e.s, h.e.d }, h.e.t, HashAlgorithm.csum16);
  verify_checksum((bit<32>)m.q > 32w0x1ffff, { h.e.s, h.e.d }, h.e.t, HashAlgorithm.crc16);
} }
control I(inout h_t h, inout m_t m, inout standard_metadata_t sm) {
  register<bit<32>>(16) r;
  meter(16, MeterType.packets) k;
  action note() { hash(m.p, HashAlgorithm.identity, 16w0, { h.e.s }, 32w100); h.e.t = m.p; }
  table masked { key = { m.q: ternary; h.e.s: range; } actions = { note; NoAction; } const default_action = NoAction; size = 8; }
  apply {
    sm.egress_spec = 1;
    if ((bit<32>)m.q > 32w0x1ffff) {
      masked.apply();
      hash(m.p, HashAlgorithm.crc32, 16w0, { h.e.s }, 32w100);
      r.read(m.r, 32w3);
      r.write(32w3, m.r + 1);
      k.execute_meter(32w2, m.r);
      digest<bit<48>>(1, h.e.s);
      h.e.t = m.p + (bit<16>)m.r;
    }
  }
}
control E(inout h_t h, inout m_t m, inout standard_metadata_t sm) {
  register<bit<32>>(16) r;
  apply {
    if ((bit<32>)m.q > 32w0x1ffff) {
      hash(m.p, HashAlgorithm.csum16, 16w0, { h.e.d }, 32w100);
      r.write(32w3, (bit<32>)m.p);
      h.e.t = m.p;
    }
  }
}
control C(inout h_t h, inout m_t m) { apply {
  update_checksum_with_payload((bit<32>)m.q > 32w0x1ffff, { h.e.s, h.e.d }, h.e.t, HashAlgorithm.csum16);
  update_checksum((bit<32>)m.q > 32w0x1ffff, { h.e.s, h.e.d }, h.e.t, HashAlgorithm.xor16);
} }
control D(packet_out pkt, in h_t h) { apply { pkt.emit(h.e); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;

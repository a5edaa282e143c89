// SPDX-License-Identifier: Apache-2.0
// What no packet reaches, as p4c finds out after it has written the P4Info: tables with direct resources and action profiles, a digest, a value set, a packet header.
#include <core.p4>
#include <v1model.p4>
@controller_header("packet_in") header packet_in_t { bit<9> port; bit<7> padding; }
header e_t { bit<48> d; bit<48> s; bit<16> t; }
struct h_t { e_t e; }
struct m_t { bit<16> p; bit<32> r; bit<8> c; }
struct d_t { bit<48> s; bit<16> t; }
parser P(packet_in pkt, out h_t h, inout m_t m, inout standard_metadata_t sm) {
  value_set<bit<16>>(4) vs;
  state start { pkt.extract(h.e); bit<8> x = 0; transition select(x) { 1: more; default: accept; } }
  state more { transition select(h.e.t) { vs: accept; default: reject; } }
}
control V(inout h_t h, inout m_t m) { apply {} }
control I(inout h_t h, inout m_t m, inout standard_metadata_t sm) {
  register<bit<32>>(16) r;
  meter(16, MeterType.packets) k;
  counter(16, CounterType.packets) c;
  direct_counter(CounterType.packets) dc;
  direct_meter<bit<8>>(MeterType.packets) dm;
  action_profile(16) ap;
  action_selector(HashAlgorithm.crc16, 32w16, 32w8) as;
  action fwd(bit<9> port) { sm.egress_spec = port; }
  action counted(bit<9> port) { sm.egress_spec = port; dc.count(); }
  action metered(bit<9> port) { sm.egress_spec = port; dm.read(m.c); }
  action used(bit<9> port) { sm.egress_spec = port; c.count(2); r.write(2, 3); k.execute_meter(3, m.c); digest<d_t>(1, {h.e.s, h.e.t}); }
  table gone { key = { h.e.d: exact; } actions = { fwd; used; NoAction; } size = 8; }
  table gonec { key = { h.e.d: exact; } actions = { counted; NoAction; } counters = dc; size = 8; }
  table gonem { key = { h.e.d: exact; } actions = { metered; NoAction; } meters = dm; size = 8; }
  table gonep { key = { h.e.d: exact; } actions = { fwd; NoAction; } implementation = ap; size = 8; }
  table gones { key = { h.e.d: exact; h.e.t: selector; } actions = { fwd; NoAction; } implementation = as; size = 8; }
  table here { key = { h.e.d: exact; } actions = { fwd; NoAction; } size = 8; }
  apply {
    bit<8> x = 0;
    here.apply();
    if (x == 1) { gone.apply(); gonec.apply(); gonem.apply(); gonep.apply(); gones.apply(); c.count(1); r.read(m.r, 1); }
  }
}
control E(inout h_t h, inout m_t m, inout standard_metadata_t sm) { apply {} }
control C(inout h_t h, inout m_t m) { apply {} }
control D(packet_out pkt, in h_t h) { apply { pkt.emit(h.e); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;

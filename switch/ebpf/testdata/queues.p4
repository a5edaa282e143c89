// SPDX-License-Identifier: Apache-2.0
// What egress sees of clocks and queues, of which ingress says what is not so.
#include <core.p4>
#include <v1model.p4>
header e_t { bit<48> d; bit<48> s; bit<16> t; }
header q_t { bit<48> came; bit<32> entered; bit<48> left; bit<32> waited; bit<32> before; bit<32> behind; }
struct h_t { e_t e; q_t q; }
struct m_t { }
parser P(packet_in pkt, out h_t h, inout m_t m, inout standard_metadata_t sm) {
  state start { pkt.extract(h.e); transition accept; }
}
control V(inout h_t h, inout m_t m) { apply {} }
control I(inout h_t h, inout m_t m, inout standard_metadata_t sm) { apply {
  sm.egress_spec = 1;
  sm.enq_timestamp = 3;
  sm.deq_timedelta = 7;
  sm.enq_qdepth = 5;
  sm.deq_qdepth = 6;
} }
control E(inout h_t h, inout m_t m, inout standard_metadata_t sm) { apply {
  h.q.setValid();
  h.q.came = sm.ingress_global_timestamp;
  h.q.entered = sm.enq_timestamp;
  h.q.left = sm.egress_global_timestamp;
  h.q.waited = sm.deq_timedelta;
  h.q.before = (bit<32>)sm.enq_qdepth;
  h.q.behind = (bit<32>)sm.deq_qdepth;
} }
control C(inout h_t h, inout m_t m) { apply {} }
control D(packet_out pkt, in h_t h) { apply { pkt.emit(h.e); pkt.emit(h.q); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// A packet says its port and its priority, goes on and, if it says so, to multicast group 1 or round
// once more; egress writes what it sees of the queue. The v1model.p4 of p4c 1.2.4 has no qid: a test
// makes user metadata of it.
#include <core.p4>
#include <v1model.p4>
header e_t { bit<8> port; bit<8> priority; bit<8> how; bit<8> number; bit<80> rest; }
header q_t { bit<48> entered; bit<48> left; bit<32> waited; bit<32> before; bit<32> behind; bit<8> queue; }
struct h_t { e_t e; q_t q; }
struct m_t { bit<5> queue; }
parser P(packet_in pkt, out h_t h, inout m_t m, inout standard_metadata_t sm) {
  state start { pkt.extract(h.e); transition accept; }
}
control V(inout h_t h, inout m_t m) { apply {} }
control I(inout h_t h, inout m_t m, inout standard_metadata_t sm) { apply {
  sm.egress_spec = (bit<9>)h.e.port;
  sm.priority = (bit<3>)h.e.priority;
  if (h.e.how == 1) {
    sm.mcast_grp = 1;
  } else if (h.e.how == 2) {
    clone(CloneType.I2E, 7);
  }
} }
control E(inout h_t h, inout m_t m, inout standard_metadata_t sm) { apply {
  if (h.e.how == 3) {
    h.e.how = 0;
    recirculate_preserving_field_list(0);
  } else {
    h.q.setValid();
    h.q.entered = (bit<48>)sm.enq_timestamp;
    h.q.left = sm.egress_global_timestamp;
    h.q.waited = sm.deq_timedelta;
    h.q.before = (bit<32>)sm.enq_qdepth;
    h.q.behind = (bit<32>)sm.deq_qdepth;
    h.q.queue = (bit<8>)m.queue;
  }
} }
control C(inout h_t h, inout m_t m) { apply {} }
control D(packet_out pkt, in h_t h) { apply { pkt.emit(h.e); pkt.emit(h.q); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;

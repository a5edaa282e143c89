/* SPDX-License-Identifier: Apache-2.0
 *
 *                                ┌── instance ACK: the reply becomes the chain's acknowledgement, by each port of the tree but the one that the reply goes by
 *   the tail's reply to a write ─┤
 *                                └── instance REPLY: as it is, towards the client; for the switches on this way it is the acknowledgement
 *
 * The tail answers a write and acknowledges it with one packet; so does each switch on the reply's
 * way that the tree branches at. All copies say the same version and value.
 */
#ifndef NETCRAQ_EGRESS_P4
#define NETCRAQ_EGRESS_P4

#include "headers.p4"

control EgressReplication(inout headers_t hdr, in bit<16> instance, in bit<9> egress_port, in bit<9> ingress_port) {
    apply {
        if (instance == INSTANCE_ACK &&
            (hdr.netcraq.KV_OP == kv_op_t.WRITE_REPLY || hdr.netcraq.KV_OP == kv_op_t.CAS_REPLY)) {
            hdr.netcraq.KV_OP = kv_op_t.ACK;
            hdr.netcraq.flags = 0;
            hdr.udp.dst_port = NETCRAQ_PORT;
            hdr.ipv4.dst = hdr.ipv4.src;      // the service address: an ACK is for the chain
        }
        if (egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = ingress_port;
            hdr.packet_in.padding = 0;
        }
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 *                                ┌── instance ACK: the reply becomes the chain's acknowledgement, by each port of the tree but the one that the reply goes by
 *   the tail's reply to a write ─┼── instance REPLY: as it is, towards the client; for the switches on this way it is the acknowledgement
 *                                └── instance NOTIFY: to a server on this very switch that watches the key
 *
 * The tail answers a write and acknowledges it with one packet; so does each switch on the reply's
 * way that the tree branches at. All copies say the same version and value. An ACK is copied in
 * the same way, to the tree's ports and to the servers that watch. A RETRY of the tail's that tells
 * what is committed (PROOF) is such an answer, too.
 */
#ifndef NETCRAQ_EGRESS_P4
#define NETCRAQ_EGRESS_P4

#include "headers.p4"

/* What was committed, for a program behind the port: it reaches no other switch. It says nothing of
 * who wrote. */
control Notify(inout headers_t hdr, in bit<9> egress_port, inout bool drop) {
    @id(0x01E63A27)
    @action_restriction("udp_port != 0")
    action notify(@id(1) @format(MAC_ADDRESS) mac_addr_t dst_mac, @id(2) @format(IPV4_ADDRESS) ipv4_addr_t address,
                  @id(3) bit<16> udp_port) {
        if (hdr.netcraq.KV_OP == kv_op_t.ACK) {
            hdr.ipv4.src = hdr.ipv4.dst;      // the service address
        }
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.dst = address;
        hdr.ipv4.identification = 0;
        hdr.ipv4.ttl = 64;
        hdr.udp.src_port = NETCRAQ_PORT;
        hdr.udp.dst_port = udp_port;
        hdr.udp.checksum = 0;
        hdr.netcraq.KV_OP = kv_op_t.NOTIFY;
        hdr.netcraq.flags = 0;
        hdr.netcraq.session = 0;
        hdr.netcraq.request = 0;
    }
    @id(0x01B7C914)
    action not_watched() {
        drop = true;
    }
    /* Who is told of which key. The copies are made for all servers that watch a key of the chain:
     * which of them watches this one, and may read it, is said here. */
    @id(0x0239D1F6)
    @entry_restriction(TEXT_OF(egress_port < CPU_PORT))
    table watcher {
        key = {
            egress_port: exact @id(1) @name("egress_port");
            hdr.netcraq.KEY_ID: exact @id(2) @name("KEY_ID");
        }
        actions = {
            notify;
            @defaultonly not_watched;
        }
        const default_action = not_watched();
        size = 16384;
    }

    apply {
        watcher.apply();
    }
}

control EgressReplication(inout headers_t hdr, in bit<16> instance, in bit<9> egress_port, in bit<9> ingress_port,
                          inout bool drop) {
    Notify() notify;

    apply {
        if (instance == INSTANCE_ACK &&
            (hdr.netcraq.KV_OP == kv_op_t.WRITE_REPLY || hdr.netcraq.KV_OP == kv_op_t.CAS_REPLY)) {
            if (hdr.netcraq.flags == STATUS_RETRY) {
                /* The request was not executed: the version is of another one, of which the reply
                 * does not say who wrote it. */
                hdr.netcraq.session = 0;
                hdr.netcraq.request = 0;
            }
            hdr.netcraq.KV_OP = kv_op_t.ACK;
            hdr.netcraq.flags = 0;
            hdr.udp.dst_port = NETCRAQ_PORT;
            hdr.ipv4.dst = hdr.ipv4.src;      // the service address: an ACK is for the chain
        } else if (instance == INSTANCE_NOTIFY) {
            notify.apply(hdr, egress_port, drop);
        }
        if (egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = ingress_port;
            hdr.packet_in.padding = 0;
        }
    }
}

#endif

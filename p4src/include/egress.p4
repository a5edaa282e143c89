/* SPDX-License-Identifier: Apache-2.0
 *
 *                                ┌── instance ACK: becomes an ACK, by each port of the tree except the reply's
 *   the tail's reply to a write ─┼── instance REPLY: unchanged, towards the client; it is the ACK for switches on its way
 *                                └── instance NOTIFY: to a server at this switch that watches the key
 *
 * The tail answers and acknowledges a write with one packet, which is multicast. Each switch on the
 * reply's way at which the tree branches multicasts the reply again. All copies carry the same
 * version and value. An ACK is copied in the same way, to the tree's ports and to watching servers.
 */
#ifndef NETCRAQ_EGRESS_P4
#define NETCRAQ_EGRESS_P4

#include "headers.p4"

/* Makes the copy a NOTIFY, which tells a server behind the port the committed value, but not the
 * writer. Only a host port carries a NOTIFY, so no other switch receives it. */
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
    /* The servers that watch a key, by port. The copies go to all servers that watch some key of
     * the chain. An entry exists only if the server watches this key and may read it. */
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
            hdr.netcraq.KV_OP = kv_op_t.ACK;
            hdr.netcraq.flags = 0;
            hdr.udp.dst_port = NETCRAQ_PORT;
            hdr.ipv4.dst = hdr.ipv4.src;      // the service address, because an ACK is for the whole chain
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

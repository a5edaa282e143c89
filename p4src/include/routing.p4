/* SPDX-License-Identifier: Apache-2.0
 *
 *               ┌──────────┐ forward ──▶ port (reply_group + port, if the reply also acknowledges)
 *  IPv4 dst ──▶ │ ipv4_lpm │ to_controller ──▶ CPU port (only answers to the controller)
 *               └──────────┘ no_route ──▶ drop (an ACK still goes down the tree)
 *
 * Plain IPv4 routing, for NetCRAQ packets, whose destination Chain may have changed, and for all
 * others.
 */
#ifndef NETCRAQ_ROUTING_P4
#define NETCRAQ_ROUTING_P4

#include "headers.p4"
#include "events.p4"

control Routing(inout headers_t hdr, inout metadata_t meta) {
    @id(0x0126F3FD)
    @action_restriction(TEXT_OF(port < CPU_PORT))
    action forward(@id(1) @format(MAC_ADDRESS) mac_addr_t dst_mac, @id(2) bit<9> port) {
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = dst_mac;
        meta.forwarding.egress_port = port;
        meta.forwarding.routed = true;
    }
    @id(0x01F1E441)
    action to_controller() {
        meta.forwarding.egress_port = CPU_PORT;
        meta.forwarding.routed = true;
    }
    @id(0x01784573)
    action no_route() {
    }
    /* Routes: a /32 for each host, switch and service address, or prefixes. At every switch, the
     * route of the controller's own address is to_controller. */
    @id(0x02080C81)
    table ipv4_lpm {
        key = {
            hdr.ipv4.dst: lpm @id(1) @name("ipv4_dst") @format(IPV4_ADDRESS);
        }
        actions = {
            forward;
            to_controller;
            no_route;
        }
        default_action = no_route();
        size = 4096;
    }

    apply {
        ipv4_lpm.apply();
        if (!meta.forwarding.routed && meta.acknowledge) {
            meta.forwarding.multicast_group = meta.chain.ack_group;
        } else if (!meta.forwarding.routed) {
            meta.event = EVENT_DROP_NO_ROUTE;
            meta.forwarding.drop = true;
        } else if (meta.forwarding.egress_port == CPU_PORT &&
                   (!meta.is_netcraq || hdr.ipv4.identification != CONTROLLER)) {
            /* The controller gets only answers to its own requests. Other packets could keep it too
             * busy to renew leases. */
            meta.event = EVENT_DROP_UNTRUSTED;
            meta.forwarding.drop = true;
        } else if (hdr.ipv4.ttl <= 1) {
            meta.event = EVENT_DROP_TTL;
            meta.forwarding.drop = true;
        } else {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            if (hdr.ipv4.ihl != 5) {
                /* Options are not parsed, so the checksum cannot be computed again. The time to
                 * live is the high byte of its 16-bit word, so to subtract 1 from it adds 0x0100 to
                 * the checksum (RFC 1141). */
                bit<32> sum = (bit<32>)hdr.ipv4.checksum + 0x0100;
                hdr.ipv4.checksum = sum[15:0] + sum[31:16];
            }
            if (meta.acknowledge) {
                meta.forwarding.multicast_group = meta.chain.reply_group + (bit<16>)meta.forwarding.egress_port;
            }
        }
    }
}

#endif

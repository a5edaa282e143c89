/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's Routing: plain IPv4, and the last checks of what leaves the switch.
 */
#ifndef NETCRAQ_CHIP_ROUTING_P4
#define NETCRAQ_CHIP_ROUTING_P4

#include "metadata.p4"
#include "../events.p4"

control ChipRouting(inout headers_t hdr, inout chip_metadata_t meta, TRAFFIC_PARAMETERS) {
    @id(0x0126F3FD)
    action forward(@format(MAC_ADDRESS) mac_addr_t dst_mac, bit<9> port) {
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl |-| 1;
        TM_PORT = port;
        meta.route_port = (bit<16>)port;
        meta.route = ROUTE_PORT;
    }
    @id(0x01F1E441)
    action to_controller() {
        TM_PORT = CPU_PORT;
        hdr.ipv4.ttl = hdr.ipv4.ttl |-| 1;
        meta.route_port = CPU_PORT;
        meta.route = ROUTE_CONTROLLER;
    }
    @id(0x01784573)
    action no_route() {
        meta.route = ROUTE_NONE;
    }
    @id(0x02080C81)
    table ipv4_lpm {
        key = { hdr.ipv4.dst: lpm @name("ipv4_dst"); }
        actions = { forward; to_controller; no_route; }
        default_action = no_route();
        size = 4096;
    }

    @hidden action refuse(bit<8> why) {
        TM_DROP = TM_DROPPED;
        TM_GROUP = 0;
        meta.event = why;
    }
    /* At a leaf of the tree an ACK ends, and has counted as what it did here. */
    @hidden action end_ack() {
        TM_DROP = TM_DROPPED;
        TM_GROUP = 0;
    }
    /* The rest of the ACK tree beside the reply, or without it. */
    @hidden action with_tree() {
        TM_GROUP = meta.reply_group + meta.route_port;
    }
    @hidden action tree_only() {
        TM_GROUP = meta.ack_group;
    }
    @hidden action leave() {
    }
    @hidden table departure {
        key = {
            meta.route: ternary;
            hdr.ipv4.ttl: ternary;
            meta.is_netcraq: ternary;
            hdr.ipv4.identification: ternary;
            meta.acknowledge: ternary;
            meta.ack_group: ternary;
            meta.passes_ack: ternary;
        }
        actions = { refuse; end_ack; with_tree; tree_only; leave; }
        const entries = {
            (ROUTE_NONE, _, _, _, 1, 0, _): refuse(EVENT_DROP_NO_ROUTE);
            (ROUTE_NONE, _, _, _, 1, _, _): tree_only();
            (ROUTE_NONE, _, _, _, _, _, _): refuse(EVENT_DROP_NO_ROUTE);
            (ROUTE_CONTROLLER, _, 0, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (ROUTE_CONTROLLER, 0, _, CONTROLLER, _, _, _): refuse(EVENT_DROP_TTL);
            (ROUTE_CONTROLLER, _, _, CONTROLLER, 1, 0, _): leave();
            (ROUTE_CONTROLLER, _, _, CONTROLLER, 1, _, _): with_tree();
            (ROUTE_CONTROLLER, _, _, CONTROLLER, _, _, _): leave();
            (ROUTE_CONTROLLER, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (ROUTE_PORT, 0, _, _, _, _, _): refuse(EVENT_DROP_TTL);
            (ROUTE_PORT, _, _, _, 1, 0, _): leave();
            (ROUTE_PORT, _, _, _, 1, _, _): with_tree();
            (ROUTE_NOT, _, _, _, _, 0, 1): end_ack();
            (ROUTE_NOT, 0, _, _, _, _, 1): end_ack();
        }
        const default_action = leave();
    }

    /* Options are not parsed, so the header cannot be summed up anew; routing.p4 explains this. */
    bit<32> sum;
    @hidden action add_hop() {
        sum = (bit<32>)hdr.ipv4.checksum + 0x0100;
    }
    @hidden action fold() {
        hdr.ipv4.checksum = sum[15:0] + sum[31:16];
    }

    apply {
        if (meta.routed == 0) {
            ipv4_lpm.apply();
            if (meta.options == 1) {
                add_hop();
                fold();
            }
        }
        departure.apply();
    }
}

#endif

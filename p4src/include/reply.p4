/* SPDX-License-Identifier: Apache-2.0
 *
 *               ┌── DROP
 *               ├── FORWARD_TO_... ───▶ the same request, to another address ──┐
 *   decision ───┼── ANSWER... ──────▶ the packet becomes its own answer ───────┼──▶ Routing
 *               ├── ACKNOWLEDGE ────▶ the packet becomes the chain's ACK ──┐   │
 *               └── PASS ──────────────────────────────────────────────────┤   │
 *                                                                    ACK?  ├───┘ no
 *                                                                          └─────▶ down the tree
 *
 * Carries out the decision of the stages before it.
 */
#ifndef NETCRAQ_REPLY_P4
#define NETCRAQ_REPLY_P4

#include "headers.p4"
#include "events.p4"

/* An ACK continues down the tree and ends at a leaf. While a chain changes, switches have trees of
 * two configurations, which together can send an ACK in a circle and double it each time. A single
 * tree has no circles, so every circle has a switch whose epoch is not the ACK's. A hop at such a
 * switch costs more of the time to live, which bounds the number of rounds. */
control AckTree(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<8> hop = ACK_HOP;
        if (meta.chain.epoch != hdr.netcraq.epoch) {
            hop = ACK_HOP_OF_ANOTHER_EPOCH;
        }
        meta.forwarding.multicast_group = meta.chain.ack_group;
        if (meta.chain.ack_group == 0 || hdr.ipv4.ttl <= hop) {
            meta.forwarding.drop = true;
        } else {
            hdr.ipv4.ttl = hdr.ipv4.ttl - hop;
        }
    }
}

control Reply(inout headers_t hdr, inout metadata_t meta) {
    AckTree() ack_tree;

    /* Sends the packet to another address, as the same request. */
    @hidden action forward_to(ipv4_addr_t addr) {
        hdr.ipv4.dst = addr;
        hdr.netcraq.flags = hdr.netcraq.flags | meta.decision.status;
        hdr.udp.checksum = 0;
    }
    /* Turns the packet into its own answer. */
    @hidden action answer() {
        hdr.netcraq.KV_OP = meta.reply_op;
        hdr.netcraq.flags = meta.decision.status;
        hdr.netcraq.epoch = meta.chain.epoch;
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = NETCRAQ_PORT;
        hdr.udp.checksum = 0;
        hdr.ipv4.ttl = 64;
    }

    apply {
        meta.event = meta.decision.event;
        if (meta.decision.verdict == verdict_t.ANSWER) {
            answer();
            hdr.ipv4.dst = hdr.ipv4.src;
            hdr.ipv4.src = meta.chain.service_addr;
        } else if (meta.decision.verdict == verdict_t.FORWARD_TO_NEXT) {
            forward_to(meta.chain.next_addr);
        } else if (meta.decision.verdict == verdict_t.FORWARD_TO_TAIL) {
            forward_to(meta.chain.tail_addr);
        } else if (meta.decision.verdict == verdict_t.FORWARD_TO_HEAD) {
            forward_to(meta.chain.head_addr);
        } else if (meta.decision.verdict == verdict_t.FORWARD_TO_STORE) {
            forward_to(meta.store_addr);
        } else if (meta.decision.verdict == verdict_t.DROP) {
            meta.forwarding.drop = true;
        } else if (meta.decision.verdict == verdict_t.ANSWER_FROM_HERE) {
            answer();
            ipv4_addr_t asked = hdr.ipv4.dst;
            hdr.ipv4.dst = hdr.ipv4.src;
            hdr.ipv4.src = asked;
        } else if (meta.decision.verdict == verdict_t.ANSWER_CONTROLLER) {
            answer();
            meta.forwarding.egress_port = CPU_PORT;
            meta.forwarding.routed = true;
        } else if (meta.decision.verdict == verdict_t.ACKNOWLEDGE) {
            hdr.netcraq.KV_OP = kv_op_t.ACK;
            hdr.netcraq.flags = 0;
            hdr.ipv4.dst = meta.chain.service_addr;
            hdr.udp.checksum = 0;
        }
        if (hdr.netcraq.KV_OP == kv_op_t.ACK && !meta.forwarding.drop) {
            ack_tree.apply(hdr, meta);
        }
    }
}

#endif

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
 * The stages before this have decided; here the packet is made what they have decided that it is.
 */
#ifndef NETCRAQ_REPLY_P4
#define NETCRAQ_REPLY_P4

#include "headers.p4"
#include "events.p4"

/* An ACK goes on down the tree. At a leaf it ends, and has counted as what it did here. While a
 * chain changes, trees of two configurations, with different tails, can send it round and multiply
 * it each time. Each round has a switch of another configuration than the ACK's, because one tree
 * alone has no circles; such a hop costs so much that there are few of them. */
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
    /* Makes the packet its own answer. */
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

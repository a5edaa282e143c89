/* SPDX-License-Identifier: Apache-2.0
 *
 *              from a fabric port:         ┌────────────┐ yes ──▶ Watch
 *   Lookup ──▶ STAMPED, ACK, a reply, or ─▶│ chain_peer │
 *              in the controller's name    └────────────┘ no ───▶ dropped (Dispatch)
 *
 * Checks whether the chain sends this message by this port. A fabric port leads to another switch,
 * which an attacker may have taken over. So this switch accepts a chain's message only from
 * a port on the message's route: a stamped write from the predecessor's side, an ACK from the
 * tail's side, an answer from a member's side. A switch outside a chain can then neither write the
 * chain's keys nor answer for it.
 *
 * A port may lead to several switches, for example to a rack switch that forwards everything. The
 * rack switch has its own table.
 */
#ifndef NETCRAQ_PEER_P4
#define NETCRAQ_PEER_P4

#include "headers.p4"

control Peer(in headers_t hdr, inout metadata_t meta) {
    bit<1> from_predecessor = 0;
    bit<1> from_tail = 0;
    bit<1> from_member = 0;

    @id(0x01A94C17)
    action peer(@id(1) bit<1> predecessor, @id(2) bit<1> tail, @id(3) bit<1> member) {
        from_predecessor = predecessor;
        from_tail = tail;
        from_member = member;
    }
    /* The messages of a chain that may arrive by a fabric port. Until the controller changes the
     * default action, every port may bring all of them. */
    @id(0x02B35E6D)
    @entry_restriction(TEXT_OF(ingress_port < CPU_PORT))
    table chain_peer {
        key = {
            CHAIN_OF(hdr.netcraq.KEY_ID): exact @id(1) @name("chain");
            meta.ingress_port: exact @id(2) @name("ingress_port");
        }
        actions = {
            peer;
        }
        default_action = peer(1, 1, 1);
        size = 4096;
    }

    apply {
        if (meta.trust == trust_t.FABRIC) {
            bool request = hdr.netcraq.KV_OP == kv_op_t.READ || hdr.netcraq.KV_OP == kv_op_t.WRITE ||
                           hdr.netcraq.KV_OP == kv_op_t.CAS;
            bool stamped = request && hdr.netcraq.KV_OP != kv_op_t.READ && (hdr.netcraq.flags & STAMPED) != 0;
            if (!request && hdr.netcraq.KV_OP != kv_op_t.ACK && hdr.ipv4.identification == CONTROLLER) {
                /* Each switch sends its answers to the controller by its own CPU port, never over a
                 * link. */
                meta.stranger = true;
            } else if (!request && hdr.netcraq.KV_OP != kv_op_t.ACK &&
                       (!meta.chain.known || hdr.ipv4.src != meta.chain.service_addr)) {
                /* The source is not the chain's address. The reply is meant only for the client,
                 * and must come from the key's backing store or from a switch that does not know
                 * the chain. */
                meta.hearsay = true;
                meta.stranger = hdr.netcraq.flags != STATUS_NO_CHAIN &&
                                (hdr.netcraq.KV_OP != kv_op_t.READ_REPLY || meta.placed ||
                                 meta.store_addr == 0 || hdr.ipv4.src != meta.store_addr);
            } else if (!request || stamped || hdr.ipv4.identification == CONTROLLER) {
                chain_peer.apply();
                if (stamped) {
                    meta.stranger = from_predecessor == 0;
                } else if (hdr.netcraq.KV_OP == kv_op_t.ACK) {
                    meta.stranger = from_tail == 0;
                } else {
                    meta.stranger = from_member == 0;
                    meta.hearsay = !request && from_tail == 0;
                }
            }
        }
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 *               its own realm, or        ┌────────┐ grant
 *   Dispatch ──▶ the controller? ── no ─▶│ access │──────▶ enough? ── no ─▶ answer DENIED, or drop
 *                 │ yes                  └────────┘          │ yes
 *                 └─────────────────────────────────────────▶└──▶ Lease
 *
 * Checks whether the packet's principal may use the key's realm in this way. The switch that gives
 * the answer checks this before it uses any register: a member for a READ, the head for a write,
 * and the tail again for a write that comes down the chain.
 *
 * A hidden key is one whose first write is on its way. Its slot may hold the value of an earlier
 * key, so a client's READ, WRITE or CAS finds no key here, as if there were no entry.
 */
#ifndef NETCRAQ_ACCESS_P4
#define NETCRAQ_ACCESS_P4

#include "headers.p4"
#include "events.p4"

control Access(in headers_t hdr, inout metadata_t meta) {
    bit<1> may_read = 0;
    bit<1> may_write = 0;

    @id(0x01FD75B8)
    action grant(@id(1) bit<1> read, @id(2) bit<1> write) {
        may_read = read;
        may_write = write;
    }
    /* Rights of principals in realms other than their own. Without an entry, a principal has no
     * right there. The table is not consulted for the controller, or for a principal in the realm
     * of its own number, because these may do everything. */
    @id(0x02E00EEF)
    @entry_restriction("principal != 0 && principal != 65535 && realm != 0 && realm < 32768")
    table access {
        key = {
            hdr.ipv4.identification: exact @id(1) @name("principal");
            meta.realm: exact @id(2) @name("realm");
        }
        actions = {
            grant;
        }
        default_action = grant(0, 0);
        size = 4096;
    }

    apply {
        if (meta.placed && (hdr.ipv4.identification != meta.realm || meta.realm == HIDDEN) &&
            hdr.ipv4.identification != CONTROLLER &&
            (meta.chain_op == chain_op_t.READ || meta.chain_op == chain_op_t.ASSIGN ||
             meta.chain_op == chain_op_t.COMMIT || meta.chain_op == chain_op_t.FAIL)) {
            if (meta.realm == HIDDEN && (meta.chain_op == chain_op_t.READ || meta.chain_op == chain_op_t.ASSIGN)) {
                meta.placed = false;
            } else {
                /* No entry has the realm HIDDEN, so this member drops a client's stamped request
                 * for a hidden key. That is why the controller opens the head's entry last. */
                access.apply();
                /* A CAS needs the right to read, too, because its failure discloses the value. */
                bool allowed = (may_read == 1 || hdr.netcraq.KV_OP == kv_op_t.WRITE) &&
                               (may_write == 1 || hdr.netcraq.KV_OP == kv_op_t.READ);
                if (!allowed && (meta.chain_op == chain_op_t.READ || meta.chain_op == chain_op_t.ASSIGN)) {
                    meta.decision = { verdict_t.ANSWER, STATUS_DENIED, EVENT_DENIED };
                } else if (!allowed) {
                    /* The head has accepted the request. The tail denies it, but does not answer
                     * DENIED, because a later tail may still execute the request. */
                    meta.decision = { verdict_t.DROP, 0, EVENT_DENIED };
                }
                if (!allowed) {
                    meta.chain_op = chain_op_t.NONE;
                }
            }
        }
        /* While the controller removes a key, its deletion must be the last write. A later write
         * would be found at members that still have the key's entry after others have answered
         * NOT_FOUND. */
        if (meta.chain_op == chain_op_t.ASSIGN && meta.placed && meta.closed == 1 &&
            hdr.ipv4.identification != CONTROLLER) {
            meta.decision = { verdict_t.ANSWER, STATUS_RETRY, EVENT_WRITE_FROZEN };
            meta.chain_op = chain_op_t.NONE;
        }
    }
}

#endif

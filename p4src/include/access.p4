/* SPDX-License-Identifier: Apache-2.0
 *
 *              realm of its own, or  ┌────────┐ grant
 *   Dispatch ─▶ the controller? ─ no ▶│ access │──────▶ enough? ─ no ─▶ answered DENIED, or dropped
 *                   │ yes            └────────┘           │ yes
 *                   └────────────────────────────────────▶└──▶ Lease
 *
 * May its principal do that in the key's realm? Asked before any register is touched, by whoever
 * gives the answer: a member of a read, the head of a write, and again the tail of what comes down.
 *
 * A hidden key has a slot whose first write is on its way. The slot may hold an earlier key's
 * value, so a client's READ, WRITE or CAS finds no key here, exactly as if there were no entry.
 */
#ifndef NETCRAQ_ACCESS_P4
#define NETCRAQ_ACCESS_P4

#include "headers.p4"
#include "events.p4"

control Access(inout headers_t hdr, inout metadata_t meta) {
    bit<1> may_read = 0;
    bit<1> may_write = 0;

    @id(0x01FD75B8)
    action grant(@id(1) bit<1> read, @id(2) bit<1> write) {
        may_read = read;
        may_write = write;
    }
    /* What principals may do in realms other than their own: nothing without an entry. In the realm
     * of its own number a principal may do everything, and nobody has to look. The controller may
     * do everything everywhere. */
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
                /* No entry is of the realm HIDDEN, so a client's stamped request is dropped where the
                 * key is hidden: the controller opens the head's entry last. */
                access.apply();
                /* A CAS that fails tells the value. */
                bool allowed = (may_read == 1 || hdr.netcraq.KV_OP == kv_op_t.WRITE) &&
                               (may_write == 1 || hdr.netcraq.KV_OP == kv_op_t.READ);
                if (!allowed && (meta.chain_op == chain_op_t.READ || meta.chain_op == chain_op_t.ASSIGN)) {
                    meta.decision = { verdict_t.ANSWER, STATUS_DENIED, EVENT_DENIED };
                } else if (!allowed) {
                    /* The head has let it in: whoever sent it is not told that it is not executed,
                     * since a later tail may do it. */
                    meta.decision = { verdict_t.DROP, 0, EVENT_DENIED };
                }
                if (!allowed) {
                    meta.chain_op = chain_op_t.NONE;
                }
            }
        }
        /* While a key is taken out, its deletion is the last write: what came after it would be
         * found at members whose entries are there yet when others have said that there is none. */
        if (meta.chain_op == chain_op_t.ASSIGN && meta.placed && meta.closed == 1 &&
            hdr.ipv4.identification != CONTROLLER) {
            hdr.netcraq.version = 0;
            meta.decision = { verdict_t.ANSWER, STATUS_RETRY, EVENT_WRITE_FROZEN };
            meta.chain_op = chain_op_t.NONE;
        }
    }
}

#endif

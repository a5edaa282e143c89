/* SPDX-License-Identifier: Apache-2.0
 *
 *                   ┌── LEASE, FETCH, SYNC ──▶ DispatchController ──▶ LEASE, FETCH, LEARN, SESSION
 *                   │
 *   Watch ───▶ KV_OP┼── ACK, replies ────────▶ DispatchLearning ────▶ LEARN, or nothing
 *                   │
 *                   ├── STAMPED ─────────────▶ DispatchStamped ─────▶ STORE, COMMIT, FAIL
 *                   │
 *                   └── READ, WRITE, CAS ────▶ DispatchRequest ─────▶ READ, ASSIGN
 *
 * Chooses the packet's operation on the registers, given this switch's role. If the outcome does
 * not depend on a register, this control decides it directly: answer, forward or drop.
 */
#ifndef NETCRAQ_DISPATCH_P4
#define NETCRAQ_DISPATCH_P4

#include "headers.p4"
#include "events.p4"

/* Handles packets from the controller (Admission has checked their port). Such packets are for this
 * switch, whatever their destination address is. */
control DispatchController(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.netcraq.KV_OP == kv_op_t.LEASE) {
            meta.reply_op = kv_op_t.LEASE_REPLY;
            meta.chain_op = chain_op_t.LEASE;
        } else if (hdr.netcraq.KV_OP == kv_op_t.FETCH) {
            meta.reply_op = kv_op_t.FETCH_REPLY;
            meta.chain_op = chain_op_t.FETCH;
        } else {
            meta.reply_op = kv_op_t.SYNC_REPLY;
            meta.chain_op = chain_op_t.LEARN;
        }
        if (hdr.netcraq.KV_OP != kv_op_t.LEASE) {
            if ((hdr.netcraq.flags & SESSION) != 0) {
                meta.chain_op = chain_op_t.SESSION;
            } else if (!meta.placed) {
                meta.chain_op = chain_op_t.NONE;
                hdr.netcraq.length = TOMBSTONE;
                meta.decision = { verdict_t.ANSWER_CONTROLLER, STATUS_NOT_FOUND, EVENT_FETCH };
                if (hdr.netcraq.KV_OP == kv_op_t.SYNC) {
                    meta.decision.event = EVENT_SYNC;
                }
            }
        }
    }
}

/* Messages by which a member learns of a commit: the ACK down the tree, and passing replies to a
 * client. A reply helps a member that missed the ACK. It counts only if it comes from the tail's
 * side (Peer). */
control DispatchLearning(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.netcraq.KV_OP == kv_op_t.ACK) {
            if (!meta.chain.known) {
                meta.decision = { verdict_t.DROP, 0, EVENT_DROP_NOT_MEMBER };
            } else if ((meta.is_member || meta.chain.role == role_t.SHADOW) && meta.placed) {
                meta.chain_op = chain_op_t.LEARN;
            } else {
                meta.decision.event = EVENT_TRANSIT;
            }
        } else {
            meta.decision.event = EVENT_REPLY_PASSED;
            if (!meta.hearsay && hdr.netcraq.KV_OP != kv_op_t.READ_REPLY && hdr.netcraq.flags == STATUS_OK) {
                /* The tail sends no ACK on the reply's route. The reply is the ACK for this switch,
                 * and for the branches of the tree that the reply does not take. */
                meta.acknowledges = true;
                meta.acknowledge = meta.chain.ack_group != 0;
            }
            if (!meta.hearsay && (meta.is_member || meta.chain.role == role_t.SHADOW) && hdr.netcraq.version != 0 &&
                (hdr.netcraq.flags == STATUS_OK || hdr.netcraq.flags == STATUS_CAS_FAILED ||
                 hdr.netcraq.flags == STATUS_NOT_FOUND)) {
                if (meta.placed) {
                    meta.chain_op = chain_op_t.LEARN;
                }
            }
        }
    }
}

/* A WRITE or CAS on its way down the chain, stamped by the head with a version and an epoch. */
control DispatchStamped(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.netcraq.epoch != meta.chain.epoch) {
            meta.decision = { verdict_t.DROP, 0, EVENT_DROP_STALE_EPOCH };
        } else if (!meta.is_member) {
            meta.decision = { verdict_t.DROP, 0, EVENT_DROP_NOT_MEMBER };
        } else if (meta.chain.frozen == 1) {
            meta.decision = { verdict_t.DROP, 0, EVENT_DROP_FROZEN };
        } else if (hdr.netcraq.session >= SESSIONS) {
            meta.decision = { verdict_t.DROP, 0, EVENT_DROP_MALFORMED };
        } else if (!meta.placed) {
            meta.decision = { verdict_t.DROP, 0, EVENT_DROP_NO_SLOT };
        } else if (hdr.netcraq.KV_OP == kv_op_t.CAS) {
            if (meta.is_tail) {
                meta.chain_op = chain_op_t.FAIL;
            } else {
                meta.decision = { verdict_t.FORWARD_TO_NEXT, 0, EVENT_CAS_TO_TAIL };
            }
        } else if (meta.is_tail) {
            meta.chain_op = chain_op_t.COMMIT;
        } else {
            meta.chain_op = chain_op_t.STORE;
        }
    }
}

/* A client's READ, WRITE or CAS. Any member answers a READ; only the head decides on a WRITE or
 * CAS. */
control DispatchRequest(in headers_t hdr, inout metadata_t meta) {
    DispatchStamped() stamped;

    apply {
        if (meta.refusal != 0) {
            meta.decision = { verdict_t.ANSWER_FROM_HERE, meta.refusal, EVENT_BAD_SESSION };
        } else if (!meta.is_local) {
            meta.decision.event = EVENT_TRANSIT;
        } else if (!meta.chain.known) {
            meta.decision = { verdict_t.ANSWER_FROM_HERE, STATUS_NO_CHAIN, EVENT_NO_CHAIN };
        } else if (hdr.netcraq.KV_OP == kv_op_t.READ) {
            if (!meta.placed && meta.store_addr != 0) {
                meta.decision = { verdict_t.FORWARD_TO_STORE, 0, EVENT_READ_TO_STORE };
            } else {
                meta.chain_op = chain_op_t.READ;
            }
        } else if ((hdr.netcraq.flags & STAMPED) != 0) {
            stamped.apply(hdr, meta);
        } else if (!meta.is_head) {
            if ((hdr.netcraq.flags & TO_HEAD) != 0) {
                meta.decision = { verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING };
            } else {
                meta.decision = { verdict_t.FORWARD_TO_HEAD, TO_HEAD, EVENT_WRITE_TO_HEAD };
            }
        } else if (meta.chain.frozen == 1) {
            meta.decision = { verdict_t.ANSWER, STATUS_RETRY, EVENT_WRITE_FROZEN };
        } else if (hdr.netcraq.session >= SESSIONS) {
            meta.decision = { verdict_t.ANSWER, STATUS_BAD_SESSION, EVENT_BAD_SESSION };
        } else {
            meta.chain_op = chain_op_t.ASSIGN;
        }
    }
}

control Dispatch(inout headers_t hdr, inout metadata_t meta) {
    DispatchController() controller;
    DispatchLearning() learning;
    DispatchRequest() request;

    apply {
        meta.reply_op = kv_op_t.READ_REPLY;
        if (hdr.netcraq.KV_OP == kv_op_t.CAS ||
            (hdr.netcraq.KV_OP == kv_op_t.WRITE && (hdr.netcraq.flags & BY_CAS) != 0)) {
            meta.reply_op = kv_op_t.CAS_REPLY;
        } else if (hdr.netcraq.KV_OP == kv_op_t.WRITE) {
            meta.reply_op = kv_op_t.WRITE_REPLY;
        }
        if (meta.stranger) {
            meta.decision = { verdict_t.DROP, 0, EVENT_DROP_NOT_PEER };
        } else if (hdr.netcraq.KV_OP == kv_op_t.READ || hdr.netcraq.KV_OP == kv_op_t.WRITE ||
                   hdr.netcraq.KV_OP == kv_op_t.CAS) {
            request.apply(hdr, meta);
        } else if (hdr.netcraq.KV_OP == kv_op_t.LEASE || hdr.netcraq.KV_OP == kv_op_t.FETCH ||
                   hdr.netcraq.KV_OP == kv_op_t.SYNC) {
            controller.apply(hdr, meta);
        } else {
            learning.apply(hdr, meta);
        }
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 *                ┌── READ ───────────▶ ReadOutcome ─────┐
 *                ├── ASSIGN ─────────▶ AssignOutcome ───┤
 *   SlotWriter ──┼── STORE, COMMIT ──▶ WriteOutcome ────┼──▶ the decision, and which cell to read or fill ──▶ Objects
 *                ├── LEARN, FAIL ────▶ ChainOutcome ────┤
 *                └── FETCH, SESSION ─▶ RecordOutcome ───┘
 *
 * Decides the packet's outcome from all registers except the values, which come after this.
 */
#ifndef NETCRAQ_OUTCOME_P4
#define NETCRAQ_OUTCOME_P4

#include "headers.p4"
#include "events.p4"

/* The cell of a dirty version. */
#define DIRTY_CELL(VERSION) (1 + ((bit<32>)VERSION & (DIRTY_CELLS - 1)))

control ReadOutcome(inout headers_t hdr, inout metadata_t meta) {
    /* The number of READs that this switch answered, by slot. */
    @id(0x12EEBF8E) COUNTER(SLOTS) slot_reads;
    /* The number of READs that this switch forwarded to the tail, by slot. */
    @id(0x125B17CA) COUNTER(SLOTS) slot_forwards;

    apply {
        bool eventual = (hdr.netcraq.flags & EVENTUAL) != 0 && meta.is_member;
        bool serve = meta.is_member && (eventual || (meta.lease_live && (!meta.version.dirty || meta.is_tail)));
        bool read_newest = meta.version.dirty && (hdr.netcraq.flags & EVENTUAL) == 0;
        if (!serve) {
            if (meta.is_tail || (hdr.netcraq.flags & DIRTY_FORWARDED) != 0) {
                meta.decision = { verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING };
            } else {
                meta.decision = { verdict_t.FORWARD_TO_TAIL, DIRTY_FORWARDED, EVENT_READ_FORWARDED };
                if (meta.placed) {
                    COUNT(slot_forwards, meta.slot);
                }
            }
        } else if (!meta.placed) {
            hdr.netcraq.version = 0;
            hdr.netcraq.length = TOMBSTONE;
            meta.decision = { verdict_t.ANSWER, STATUS_NOT_FOUND, EVENT_READ_NOT_FOUND };
        } else {
            meta.object.used = true;
            if (read_newest) {
                meta.object.cell = DIRTY_CELL(meta.version.latest);
                hdr.netcraq.version = meta.version.latest;
                meta.decision = { verdict_t.ANSWER, STATUS_OK, EVENT_READ_DIRTY };
            } else {
                hdr.netcraq.version = meta.version.committed;
                meta.decision = { verdict_t.ANSWER, STATUS_OK, EVENT_READ_CLEAN };
            }
            COUNT(slot_reads, meta.slot);
        }
    }
}

/* At the head, a write that has its version. The head forwards it to the next member. In a chain of
 * one, the head has committed it. */
control AcceptedOutcome(inout headers_t hdr, inout metadata_t meta) {
    apply {
        hdr.netcraq.flags = STAMPED;
        if (hdr.netcraq.KV_OP == kv_op_t.CAS) {
            hdr.netcraq.flags = STAMPED | BY_CAS;
        }
        hdr.netcraq.KV_OP = kv_op_t.WRITE;
        hdr.netcraq.epoch = meta.chain.epoch;
        meta.object.used = meta.version.assigned;
        meta.object.fill = meta.version.assigned;
        if (!meta.is_tail) {
            meta.object.cell = DIRTY_CELL(hdr.netcraq.version);
            meta.decision = { verdict_t.FORWARD_TO_NEXT, 0, EVENT_WRITE_ASSIGNED };
            if (meta.session.retried) {
                meta.decision.event = EVENT_WRITE_RETRIED;
            }
        } else if (meta.session.retried && hdr.netcraq.version < meta.version.committed) {
            meta.decision = { verdict_t.ANSWER, STATUS_SUPERSEDED, EVENT_WRITE_SUPERSEDED };
        } else if (meta.session.retried) {
            /* Watchers get the value in the register, and not the one in the retried packet. */
            meta.object.used = hdr.netcraq.version == meta.version.committed;
            meta.acknowledge = meta.watched && meta.object.used;
            meta.decision = { verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_REPEATED };
        } else {
            meta.acknowledge = meta.watched;
            meta.decision = { verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_COMMITTED };
        }
    }
}

control AssignOutcome(inout headers_t hdr, inout metadata_t meta) {
    AcceptedOutcome() accepted;

    apply {
        if (!meta.placed || meta.session.far) {
            if (!meta.placed) {
                /* NOT_FOUND is a statement about the present, as a read's answer is, so it requires
                 * a lease. */
                hdr.netcraq.version = 0;
                hdr.netcraq.length = TOMBSTONE;
                meta.decision = { verdict_t.ANSWER, STATUS_NOT_FOUND, EVENT_WRITE_NOT_FOUND };
            } else {
                /* This answer is final for the session. A switch that may have lost its role must
                 * not give it, because its record may be of an earlier lease of the session. */
                meta.decision = { verdict_t.ANSWER, STATUS_BAD_SESSION, EVENT_BAD_SESSION };
            }
            if (!meta.lease_live || meta.version.outdated) {
                meta.decision = { verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING };
            }
        } else if (!meta.session.newer &&
                   (!meta.session.equal || (!meta.version.assigned && meta.session.used &&
                                            meta.session.version > meta.version.latest))) {
            meta.decision = { verdict_t.DROP, 0, EVENT_DROP_OLD_REQUEST };
        } else if (meta.version.assigned || meta.session.retried) {
            accepted.apply(hdr, meta);
        } else if (meta.version.outdated) {
            /* This switch has had a later configuration, and now has an earlier one. */
            meta.decision = { verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_OUTDATED };
        } else if (meta.version.full || hdr.netcraq.KV_OP == kv_op_t.WRITE) {
            meta.decision = { verdict_t.ANSWER, STATUS_FULL, EVENT_WRITE_FULL };
        } else if (meta.is_tail && meta.version.dirty) {
            meta.decision = { verdict_t.ANSWER, STATUS_RETRY, EVENT_CAS_RETRY };
        } else if (meta.is_tail) {
            meta.object.used = true;
            hdr.netcraq.version = meta.version.committed;
            meta.decision = { verdict_t.ANSWER, STATUS_CAS_FAILED, EVENT_CAS_FAILED };
        } else {
            /* The expected version is not the newest one here, so this head can never execute the
             * CAS. The tail may answer with what is committed. */
            hdr.netcraq.epoch = meta.chain.epoch;
            meta.decision = { verdict_t.FORWARD_TO_NEXT, STAMPED, EVENT_CAS_TO_TAIL };
        }
    }
}

control WriteOutcome(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.chain_op == chain_op_t.STORE) {
            meta.decision = { verdict_t.FORWARD_TO_NEXT, 0, EVENT_WRITE_PASSED };
            if (meta.version.newer) {
                meta.object.used = true;
                meta.object.fill = true;
                meta.object.cell = DIRTY_CELL(hdr.netcraq.version);
                meta.decision.event = EVENT_WRITE_STORED;
            }
        } else if (meta.version.newer || hdr.netcraq.version == meta.version.committed) {
            meta.object.used = true;
            meta.object.fill = meta.version.newer;
            if ((hdr.netcraq.flags & NO_REPLY) != 0) {
                meta.decision = { verdict_t.ACKNOWLEDGE, 0, EVENT_WRITE_REPEATED };
            } else {
                meta.acknowledge = meta.chain.ack_group != 0;
                meta.decision = { verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_REPEATED };
            }
            if (meta.version.newer) {
                meta.decision.event = EVENT_WRITE_COMMITTED;
            }
        } else if ((hdr.netcraq.flags & NO_REPLY) != 0) {
            meta.decision = { verdict_t.DROP, 0, EVENT_WRITE_SUPERSEDED };
        } else {
            meta.decision = { verdict_t.ANSWER, STATUS_SUPERSEDED, EVENT_WRITE_SUPERSEDED };
        }
    }
}

control ChainOutcome(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.chain_op == chain_op_t.LEARN) {
            meta.object.used = meta.version.newer;
            meta.object.fill = true;
            if (hdr.netcraq.KV_OP == kv_op_t.SYNC) {
                meta.decision = { verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_SYNC };
            } else if (hdr.netcraq.KV_OP == kv_op_t.ACK) {
                meta.decision.event = EVENT_ACK_OLD;
                if (meta.version.newer) {
                    meta.decision.event = EVENT_ACK_COMMITTED;
                }
            } else if (meta.version.newer) {
                meta.decision.event = EVENT_REPLY_REPAIRED;
            }
        } else if (meta.version.committed[63:48] > meta.chain.epoch) {
            /* A later chain may have executed the CAS, so this tail must not say that it failed. */
            meta.decision = { verdict_t.DROP, 0, EVENT_OUTDATED };
        } else if (meta.version.dirty || meta.version.committed == hdr.netcraq.version) {
            meta.decision = { verdict_t.ANSWER, STATUS_RETRY, EVENT_CAS_RETRY };
        } else {
            meta.object.used = true;
            hdr.netcraq.version = meta.version.committed;
            meta.decision = { verdict_t.ANSWER, STATUS_CAS_FAILED, EVENT_CAS_FAILED };
        }
    }
}

/* The controller copies a slot or a session's record. */
control RecordOutcome(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.chain_op == chain_op_t.FETCH) {
            meta.object.used = true;
            meta.decision = { verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_FETCH };
            hdr.netcraq.version = meta.version.committed;
            if (meta.version.dirty) {
                meta.decision.status = STATUS_DIRTY;
                if ((hdr.netcraq.flags & NEWEST) != 0) {
                    meta.object.cell = DIRTY_CELL(meta.version.latest);
                    hdr.netcraq.version = meta.version.latest;
                }
            }
        } else {
            meta.decision = { verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_SYNC };
            if (!meta.session.write) {
                hdr.netcraq.version = meta.session.version;
                meta.decision.event = EVENT_FETCH;
            }
            if (!meta.session.used) {
                meta.decision.status = STATUS_BAD_SESSION;
            }
        }
    }
}

control Outcome(inout headers_t hdr, inout metadata_t meta) {
    STAGE ReadOutcome() read;
    AssignOutcome() assign;
    WriteOutcome() write;
    ChainOutcome() chain;
    RecordOutcome() record;

    apply {
        if (meta.chain_op == chain_op_t.READ) {
            read.apply(hdr, meta);
        } else if (meta.chain_op == chain_op_t.ASSIGN) {
            assign.apply(hdr, meta);
        } else if (meta.chain_op == chain_op_t.STORE || meta.chain_op == chain_op_t.COMMIT) {
            write.apply(hdr, meta);
        } else if (meta.chain_op == chain_op_t.LEARN || meta.chain_op == chain_op_t.FAIL) {
            chain.apply(hdr, meta);
        } else if (meta.chain_op == chain_op_t.FETCH || meta.chain_op == chain_op_t.SESSION) {
            record.apply(hdr, meta);
        }
    }
}

#endif

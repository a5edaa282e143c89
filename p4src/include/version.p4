/* SPDX-License-Identifier: Apache-2.0
 *
 *                     ┌──────────┐ clean? newer?                     ┌─────────────┐ who wrote
 *   SessionRequest ──▶│ versions │ the head's new ──▶ … ────────────▶│ slot_writer │ the newest ──▶ Outcome
 *                     └──────────┘ version       SessionVersion      └─────────────┘
 *
 * CRAQ's order: a switch takes over a version only if it is newer than its own. A key is clean if
 * its latest version is committed.
 */
#ifndef NETCRAQ_VERSION_P4
#define NETCRAQ_VERSION_P4

#include "headers.p4"

control Version(inout headers_t hdr, inout metadata_t meta) {
    /* The committed version (64 bits) and the latest version (64), by slot. */
    @id(0x168D9867) REGISTER(bit<128>, SLOTS) versions;
    /* The number of writes that this switch accepted, by slot. */
    @id(0x12542DD9) COUNTER(SLOTS) slot_writes;

    apply {
        bool may_assign = meta.chain_op == chain_op_t.ASSIGN &&
                          (meta.session.newer || (meta.session.equal && hdr.netcraq.KV_OP == kv_op_t.CAS));
        if (meta.placed && meta.chain_op != chain_op_t.SESSION && meta.chain_op != chain_op_t.LEASE) {
            bit<128> pair;
            REGISTER_READ(versions, pair, meta.slot);
            meta.version.committed = pair[127:64];
            meta.version.latest = pair[63:0];
            meta.version.dirty = meta.version.committed != meta.version.latest;
            if (meta.chain_op == chain_op_t.ASSIGN) {
#ifdef PAPER_WRITE_BOUND
                meta.version.full = meta.version.latest[47:0] - meta.version.committed[47:0] >= DIRTY_CELLS;
#endif
                meta.version.outdated = meta.version.latest[63:48] > meta.chain.epoch;
                /* A CAS comes after the newest write, committed or not. So the head executes it if
                 * it expects the newest version, and a lost ACK does not delay it. */
                meta.version.assigned = may_assign && !meta.version.full &&
                                        (hdr.netcraq.KV_OP == kv_op_t.WRITE ||
                                         meta.version.latest == hdr.netcraq.version) &&
                                        !meta.version.outdated;
                if (meta.version.assigned) {
                    hdr.netcraq.version = meta.chain.epoch ++ (meta.version.latest[47:0] + 1);
                    meta.version.newer = true;
                    meta.version.newest = true;
                }
            } else if (meta.chain_op == chain_op_t.STORE) {
                meta.version.newer = hdr.netcraq.version > meta.version.latest;
                meta.version.newest = meta.version.newer;
            } else if (meta.chain_op == chain_op_t.COMMIT || meta.chain_op == chain_op_t.LEARN) {
                meta.version.newer = hdr.netcraq.version > meta.version.committed;
                meta.version.newest = hdr.netcraq.version > meta.version.latest;
                /* An ACK or reply commits only a version that this member has accepted, because a
                 * write passes all members before the tail commits it. A shadow takes over every
                 * newer version. Neither takes a version of a later epoch than its own
                 * configuration's. */
                if (meta.chain_op == chain_op_t.LEARN && meta.trust != trust_t.CONTROLLER &&
                    ((meta.is_member && meta.version.newest) ||
                     hdr.netcraq.version[63:48] > meta.chain.epoch)) {
                    meta.version.newer = false;
                    meta.version.newest = false;
                }
            }
            if (meta.version.newer) {
                if (meta.version.newest) {
                    pair[63:0] = hdr.netcraq.version;
                }
                if (meta.chain_op == chain_op_t.COMMIT || meta.chain_op == chain_op_t.LEARN || meta.is_tail) {
                    pair[127:64] = hdr.netcraq.version;
                }
                versions.write(meta.slot, pair);
                if (meta.chain_op != chain_op_t.LEARN) {
                    COUNT(slot_writes, meta.slot);
                }
            }
        }
    }
}

control SlotWriter(inout headers_t hdr, inout metadata_t meta) {
    /* The session (16 bits) and request number (32) of the newest accepted write, by slot. */
    @id(0x16F9D31D) REGISTER(bit<48>, SLOTS) slot_writer;

    apply {
        if (meta.version.newest) {
            bit<48> writer = hdr.netcraq.session ++ hdr.netcraq.request;
            if (meta.chain_op == chain_op_t.LEARN && hdr.netcraq.KV_OP != kv_op_t.ACK &&
                hdr.netcraq.KV_OP != kv_op_t.SYNC && !meta.acknowledges) {
                writer = 0;          // a reply to a reader does not name the writer
            }
            slot_writer.write(meta.slot, writer);
        } else if (meta.chain_op == chain_op_t.FETCH) {
            bit<48> writer;
            REGISTER_READ(slot_writer, writer, meta.slot);
            if ((hdr.netcraq.flags & NEWEST) != 0) {
                hdr.netcraq.session = writer[47:32];
                hdr.netcraq.request = writer[31:0];
            }
        }
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 *             ┌─────────────────┐  newer, retry, old,     ┌─────────────────┐ the version that
 *   Lease ───▶│ session_request │─ of another lease? ─ … ▶│ session_version │─ a retry was given ─▶ SlotWriter
 *             └─────────────────┘                Version  └─────────────────┘
 *
 * A session numbers its writes. Each member records the session's last request number and the
 * version that the head gave it. So a retry is recognised as the same write, by a later head, too.
 * The record is two registers with Version between them, because the head gives the version there.
 */
#ifndef NETCRAQ_SESSION_P4
#define NETCRAQ_SESSION_P4

#include "headers.p4"

control SessionRequest(inout headers_t hdr, inout metadata_t meta) {
    /* The number of the last request, by session. */
    @id(0x16E1CCC2) REGISTER(bit<32>, SESSIONS) session_request;

    apply {
        meta.session.write = (meta.chain_op == chain_op_t.ASSIGN && meta.placed) ||
                             meta.chain_op == chain_op_t.STORE || meta.chain_op == chain_op_t.COMMIT ||
                             (meta.chain_op == chain_op_t.LEARN &&
                              (hdr.netcraq.KV_OP == kv_op_t.ACK || meta.acknowledges)) ||
                             (meta.chain_op == chain_op_t.SESSION && hdr.netcraq.KV_OP == kv_op_t.SYNC);
        /* A SYNC with NEWEST starts a new lease of the session, and so a new record. A second copy
         * of the SYNC finds that the record belongs to this lease already. */
        meta.session.anew = meta.chain_op == chain_op_t.SESSION && (hdr.netcraq.flags & NEWEST) != 0;
        meta.session.newer = true;
        if (hdr.netcraq.session != 0 && hdr.netcraq.session < SESSIONS &&
            (meta.session.write || meta.chain_op == chain_op_t.SESSION)) {
            meta.session.used = true;
            bit<32> recorded;
            REGISTER_READ(session_request, recorded, (bit<32>)hdr.netcraq.session);
            meta.session.newer = hdr.netcraq.request > recorded;
            meta.session.equal = hdr.netcraq.request == recorded;
            if (meta.session.newer && recorded != 0 && hdr.netcraq.request - recorded > REQUEST_WINDOW) {
                meta.session.newer = false;
                meta.session.far = true;
            }
            if (recorded - hdr.netcraq.request <= REQUEST_WINDOW) {
                meta.session.anew = false;
            }
            if (meta.session.write && (meta.session.newer || meta.session.anew)) {
                session_request.write((bit<32>)hdr.netcraq.session, hdr.netcraq.request);
            }
            if (!meta.session.write) {
                hdr.netcraq.request = recorded;
            }
        }
    }
}

control SessionVersion(inout headers_t hdr, inout metadata_t meta) {
    /* The version that a session's last request got, by session. It is 0 if that request was not
     * executed. */
    @id(0x16F47132) REGISTER(bit<64>, SESSIONS) session_version;

    apply {
        if (meta.session.used && (meta.session.newer || meta.session.equal || !meta.session.write ||
                                  meta.session.anew)) {
            REGISTER_READ(session_version, meta.session.version, (bit<32>)hdr.netcraq.session);
            bit<64> given = hdr.netcraq.version;
            if ((meta.chain_op == chain_op_t.ASSIGN && !meta.version.assigned) ||
                (meta.chain_op == chain_op_t.SESSION && given == 0 && !meta.session.anew)) {
                given = 0;
                /* The same request may already have a version, from an earlier copy or since the
                 * controller fetched this record. Keep that version. */
                if (meta.session.equal) {
                    given = meta.session.version;
                }
            }
            if (meta.session.write) {
                session_version.write((bit<32>)hdr.netcraq.session, given);
            }
        }
        /* A retry gets the version that a head gave the request before. An outdated head repeats no
         * version. No head repeats a version above its slot's latest: in that case another client
         * has used the session. */
        meta.session.retried = meta.chain_op == chain_op_t.ASSIGN && meta.session.used && meta.session.equal &&
                               !meta.version.assigned && meta.session.version != 0 && !meta.version.outdated &&
                               meta.session.version <= meta.version.latest;
        if (meta.session.retried) {
            hdr.netcraq.version = meta.session.version;
        }
    }
}

#endif

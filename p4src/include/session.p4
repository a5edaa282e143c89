/* SPDX-License-Identifier: Apache-2.0
 *
 *             ┌─────────────────┐  newer, a retry,         ┌─────────────────┐ the version
 *   Lease ───▶│ session_request │─ old, or of another ─ … ▶│ session_version │─ that a retry ─▶ SlotWriter
 *             └─────────────────┘  lease?       Version    └─────────────────┘  was given
 *
 * Writes are numbered by their session, and every member records the last number that it has seen
 * and the version that it was given: so a retry is the same write, also at the head of tomorrow.
 * Two registers with Version between them, since the head gives the version there.
 */
#ifndef NETCRAQ_SESSION_P4
#define NETCRAQ_SESSION_P4

#include "headers.p4"

control SessionRequest(inout headers_t hdr, inout metadata_t meta) {
    /* By session: its last request. */
    @id(0x16E1CCC2) REGISTER(bit<32>, SESSIONS) session_request;

    apply {
        meta.session.write = (meta.chain_op == chain_op_t.ASSIGN && meta.placed) ||
                             meta.chain_op == chain_op_t.STORE || meta.chain_op == chain_op_t.COMMIT ||
                             (meta.chain_op == chain_op_t.LEARN &&
                              (hdr.netcraq.KV_OP == kv_op_t.ACK || meta.acknowledges)) ||
                             (meta.chain_op == chain_op_t.SESSION && hdr.netcraq.KV_OP == kv_op_t.SYNC);
        /* The record of a session that is leased anew begins anew; a second copy of the word finds
         * that it is of this lease already. */
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
    /* By session: the version that its last request was given; 0: it was not executed. */
    @id(0x16F47132) REGISTER(bit<64>, SESSIONS) session_version;

    apply {
        if (meta.session.used && (meta.session.newer || meta.session.equal || !meta.session.write ||
                                  meta.session.anew)) {
            REGISTER_READ(session_version, meta.session.version, (bit<32>)hdr.netcraq.session);
            bit<64> given = hdr.netcraq.version;
            if ((meta.chain_op == chain_op_t.ASSIGN && !meta.version.assigned) ||
                (meta.chain_op == chain_op_t.SESSION && given == 0 && !meta.session.anew)) {
                given = 0;
                /* The same request may have been given its version since: at another try, or since
                 * this record was fetched. */
                if (meta.session.equal) {
                    given = meta.session.version;
                }
            }
            if (meta.session.write) {
                session_version.write((bit<32>)hdr.netcraq.session, given);
            }
        }
        /* A request keeps the version that a head has given it. A head that is outdated repeats
         * nothing, and no head a version that its slot has never had: somebody else has used the
         * session. */
        meta.session.retried = meta.chain_op == chain_op_t.ASSIGN && meta.session.used && meta.session.equal &&
                               !meta.version.assigned && meta.session.version != 0 && !meta.version.outdated &&
                               meta.session.version <= meta.version.latest;
        if (meta.session.retried) {
            hdr.netcraq.version = meta.session.version;
        }
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 *               ┌──────────────┐
 *   Access ────▶│ lease_expiry │────▶ lease_live ────▶ SessionRequest
 *   READ, ASSIGN└──────────────┘
 *   LEASE: changes lease_expiry; the answer says how much of the lease is left
 *
 * Checks whether this switch may answer for the present state. A switch without a live lease may
 * have been replaced.
 */
#ifndef NETCRAQ_LEASE_P4
#define NETCRAQ_LEASE_P4

#include "headers.p4"
#include "events.p4"

control Lease(inout headers_t hdr, inout metadata_t meta) {
    /* The end of this switch's permission to answer reads, on its own clock, by chain. */
    @id(0x165F2899) REGISTER(bit<64>, 256) lease_expiry;

    apply {
        if (meta.chain_op == chain_op_t.READ || meta.chain_op == chain_op_t.LEASE ||
            meta.chain_op == chain_op_t.ASSIGN) {
            bit<64> expiry;
            bit<32> lease_index = (bit<32>)hdr.netcraq.KEY_ID[31:24];
            REGISTER_READ(lease_expiry, expiry, lease_index);
            if (meta.chain_op == chain_op_t.LEASE) {
                if (meta.chain.known && hdr.netcraq.epoch == meta.chain.epoch) {
                    /* The lease starts at a time of this switch's clock that the controller read
                     * earlier. So, however late this packet is, the lease ends no later than the
                     * controller assumes. */
                    if (hdr.netcraq.request == 0) {
                        expiry = 0;
                    } else if (hdr.netcraq.version + (bit<64>)hdr.netcraq.request > expiry) {
                        expiry = hdr.netcraq.version + (bit<64>)hdr.netcraq.request;
                    }
                    lease_expiry.write(lease_index, expiry);
                    meta.decision = { verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_LEASE_RENEWED };
                } else {
                    meta.decision = { verdict_t.ANSWER_CONTROLLER, STATUS_NOT_SERVING, EVENT_LEASE_REFUSED };
                }
                hdr.netcraq.request = 0;
                if (expiry > meta.now) {
                    hdr.netcraq.request = (bit<32>)(expiry - meta.now);
                }
                hdr.netcraq.version = meta.now;
            }
            meta.lease_live = meta.chain.lease_required == 0 || meta.now < expiry;
        }
    }
}

#endif

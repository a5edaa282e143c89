/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's Access, Lease and SessionRequest, which stand in one stage: what the principal may do,
 * whether this switch may answer, and the session's last request.
 *
 * A register of the same stage cannot wait for Access. So session_request looks at what Access
 * looks at, and is not accessed where the packet is denied.
 */
#ifndef NETCRAQ_CHIP_PERMIT_P4
#define NETCRAQ_CHIP_PERMIT_P4

#include "metadata.p4"
#include "../events.p4"

/* What the two tables of the stage before permit say: the principal's rights, and whether this
 * switch has processed packets of a later configuration of the chain than its own. A head or a tail
 * that has was given another part since, and must not decide. */
control ChipAccess(in headers_t hdr, inout chip_metadata_t meta) {
    @id(0x01FD75B8)
    action grant(bit<1> read, bit<1> write) {
        meta.may_read = read;
        meta.may_write = write;
    }
    @id(0x02E00EEF)
    table access {
        key = {
            meta.principal: exact @name("principal");
            meta.realm: exact @name("realm");
        }
        actions = { grant; }
        default_action = grant(0, 0);
        size = 4096;
    }
    @hidden action grant_all() {
        meta.may_read = 1;
        meta.may_write = 1;
    }

    CHIP_REGISTER(bit<16>, bit<8>, 256) newest_epoch;
    STATEFUL(compare_epoch, newest_epoch, bit<16>, bit<8>, bit<8>, meta.outdated, hdr.netcraq.KEY_ID[31:24], ,
             rv = PREDICATE(v > meta.epoch, v < meta.epoch);
             if (v < meta.epoch) { v = meta.epoch; })

    /* What a CAS that passes is given: the sequence begins anew with an epoch. */
    @hidden action of_this_epoch() {
        meta.version = MAXIMUM(meta.version, meta.fresh);
    }
    @hidden action use_watch_groups() {
        meta.ack_group = meta.watch_ack_group;
        meta.reply_group = meta.watch_reply_group;
    }
    @hidden action unwatch() {
        meta.watched = 0;
    }

    apply {
        if (meta.principal == meta.realm) {
            grant_all();
        } else {
            access.apply();
        }
        if (meta.known == 1) {
            compare_epoch();
        }
        if (hdr.netcraq.KV_OP == kv_op_t.CAS) {
            of_this_epoch();
        }
        if (meta.watched == 1) {
            if (meta.watch_epoch == meta.epoch) {
                use_watch_groups();
            } else {
                unwatch();
            }
        }
    }
}

#define PERMIT_KEYS \
            meta.op: ternary; \
            meta.outdated: ternary; \
            meta.placed: ternary; \
            meta.principal: ternary; \
            meta.realm: ternary; \
            meta.may_read: ternary; \
            meta.may_write: ternary; \
            meta.closed: ternary;

control ChipPermit(inout headers_t hdr, inout chip_metadata_t meta) {
    @hidden action deny(chip_verdict_t verdict, bit<8> status, bit<8> event) {
        meta.op = chip_op_t.NONE;
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
    }
    @hidden action permitted() {
    }
    @hidden table permit {
        key = { PERMIT_KEYS }
        actions = { deny; permitted; }
        const entries = {
            (chip_op_t.ASSIGN, 2 &&& 2, _, _, _, _, _, _):
                deny(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_OUTDATED);
            (chip_op_t.CAS, 2 &&& 2, _, _, _, _, _, _): deny(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_OUTDATED);
            (chip_op_t.FAIL, 2 &&& 2, _, _, _, _, _, _): deny(chip_verdict_t.DROP, 0, EVENT_OUTDATED);
            (chip_op_t.READ, _, 0, _, _, _, _, _): permitted();
            (chip_op_t.READ, _, _, CONTROLLER, _, _, _, _): permitted();
            (chip_op_t.ASSIGN, _, 0, _, _, _, _, _): permitted();
            (chip_op_t.ASSIGN, _, _, CONTROLLER, _, _, _, _): permitted();
            (chip_op_t.CAS, _, 0, _, _, _, _, _): permitted();
            (chip_op_t.CAS, _, _, CONTROLLER, _, _, _, _): permitted();
            (chip_op_t.COMMIT, _, _, CONTROLLER, _, _, _, _): permitted();
            (chip_op_t.FAIL, _, _, CONTROLLER, _, _, _, _): permitted();
            (chip_op_t.READ, _, _, _, _, 0, _, _): deny(chip_verdict_t.ANSWER, STATUS_DENIED, EVENT_DENIED);
            (chip_op_t.ASSIGN, _, _, _, _, _, 0, _): deny(chip_verdict_t.ANSWER, STATUS_DENIED, EVENT_DENIED);
            (chip_op_t.CAS, _, _, _, _, 0, _, _): deny(chip_verdict_t.ANSWER, STATUS_DENIED, EVENT_DENIED);
            (chip_op_t.CAS, _, _, _, _, _, 0, _): deny(chip_verdict_t.ANSWER, STATUS_DENIED, EVENT_DENIED);
            (chip_op_t.COMMIT, _, _, _, HIDDEN, _, _, _): deny(chip_verdict_t.DROP, 0, EVENT_DENIED);
            (chip_op_t.FAIL, _, _, _, HIDDEN, _, _, _): deny(chip_verdict_t.DROP, 0, EVENT_DENIED);
            (chip_op_t.COMMIT, _, _, _, _, _, 0, _): deny(chip_verdict_t.DROP, 0, EVENT_DENIED);
            (chip_op_t.FAIL, _, _, _, _, 0, _, _): deny(chip_verdict_t.DROP, 0, EVENT_DENIED);
            (chip_op_t.FAIL, _, _, _, _, _, 0, _): deny(chip_verdict_t.DROP, 0, EVENT_DENIED);
            (chip_op_t.ASSIGN, _, _, _, _, _, _, 1): deny(chip_verdict_t.ANSWER, STATUS_RETRY, EVENT_WRITE_FROZEN);
            (chip_op_t.CAS, _, _, _, _, _, _, 1): deny(chip_verdict_t.ANSWER, STATUS_RETRY, EVENT_WRITE_FROZEN);
        }
        const default_action = permitted();
    }

    /* By session: its last request. */
    CHIP_REGISTER(bit<32>, bit<16>, SESSIONS) session_request;
    STATEFUL(record_request, session_request, bit<32>, bit<16>, bit<8>, meta.request_state, hdr.netcraq.session, ,
             rv = PREDICATE(v < hdr.netcraq.request, v >= meta.window);
             if (v < hdr.netcraq.request && v >= meta.window) { v = hdr.netcraq.request; })
    /* A CAS may be executed again under its number: it cannot pass twice. */
    STATEFUL(record_request_again, session_request, bit<32>, bit<16>, bit<8>, meta.request_state, hdr.netcraq.session, ,
             rv = PREDICATE(v <= hdr.netcraq.request, v >= meta.window);
             if (v <= hdr.netcraq.request && v >= meta.window) { v = hdr.netcraq.request; })
    STATEFUL(read_request, session_request, bit<32>, bit<16>, bit<32>, hdr.netcraq.request, hdr.netcraq.session, ,
             rv = v;)
    /* The session is leased anew. A record from the request to the end of the window is of this lease
     * already, and stays: the predicate is neither. */
    STATEFUL(record_anew, session_request, bit<32>, bit<16>, bit<8>, meta.request_state, hdr.netcraq.session, ,
             rv = PREDICATE(v < hdr.netcraq.request, v > meta.window);
             if (v < hdr.netcraq.request || v > meta.window) { v = hdr.netcraq.request; })
    @hidden action no_request(bit<8> request_state) {
        meta.request_state = request_state;
    }
    @hidden table session_of_request {
        key = {
            PERMIT_KEYS
            meta.session_class: ternary;
        }
        actions = { record_request; record_request_again; read_request; record_anew; no_request; }
        const entries = {
            (chip_op_t.ASSIGN, 2 &&& 2, _, _, _, _, _, _, _): no_request(REQUEST_DENIED);
            (chip_op_t.CAS, 2 &&& 2, _, _, _, _, _, _, _): no_request(REQUEST_DENIED);
            (chip_op_t.ASSIGN, _, 0, _, _, _, _, _, _): no_request(REQUEST_NEW);
            (chip_op_t.CAS, _, 0, _, _, _, _, _, _): no_request(REQUEST_NEW);
            (chip_op_t.ASSIGN, _, _, CONTROLLER, _, _, _, _, SESSION_CONTROLLER): record_request();
            (chip_op_t.ASSIGN, _, _, CONTROLLER, _, _, _, _, SESSION_CLIENT): record_request();
            (chip_op_t.ASSIGN, _, _, CONTROLLER, _, _, _, _, _): no_request(REQUEST_NEW);
            (chip_op_t.CAS, _, _, CONTROLLER, _, _, _, _, SESSION_CONTROLLER): record_request_again();
            (chip_op_t.CAS, _, _, CONTROLLER, _, _, _, _, SESSION_CLIENT): record_request_again();
            (chip_op_t.CAS, _, _, CONTROLLER, _, _, _, _, _): no_request(REQUEST_NEW);
            (chip_op_t.COMMIT, _, _, CONTROLLER, _, _, _, _, SESSION_CONTROLLER): record_request();
            (chip_op_t.COMMIT, _, _, CONTROLLER, _, _, _, _, SESSION_CLIENT): record_request();
            (chip_op_t.COMMIT, _, _, CONTROLLER, _, _, _, _, _): no_request(REQUEST_NEW);
            (chip_op_t.ASSIGN, _, _, _, _, _, 0, _, _): no_request(REQUEST_DENIED);
            (chip_op_t.CAS, _, _, _, _, 0, _, _, _): no_request(REQUEST_DENIED);
            (chip_op_t.CAS, _, _, _, _, _, 0, _, _): no_request(REQUEST_DENIED);
            (chip_op_t.COMMIT, _, _, _, HIDDEN, _, _, _, _): no_request(REQUEST_DENIED);
            (chip_op_t.COMMIT, _, _, _, _, _, 0, _, _): no_request(REQUEST_DENIED);
            (chip_op_t.ASSIGN, _, _, _, _, _, _, 1, _): no_request(REQUEST_DENIED);
            (chip_op_t.CAS, _, _, _, _, _, _, 1, _): no_request(REQUEST_DENIED);
            (chip_op_t.ASSIGN, _, _, _, _, _, _, _, SESSION_CONTROLLER): record_request();
            (chip_op_t.ASSIGN, _, _, _, _, _, _, _, SESSION_CLIENT): record_request();
            (chip_op_t.CAS, _, _, _, _, _, _, _, SESSION_CONTROLLER): record_request_again();
            (chip_op_t.CAS, _, _, _, _, _, _, _, SESSION_CLIENT): record_request_again();
            (chip_op_t.STORE, _, _, _, _, _, _, _, SESSION_CONTROLLER): record_request();
            (chip_op_t.STORE, _, _, _, _, _, _, _, SESSION_CLIENT): record_request();
            (chip_op_t.COMMIT, _, _, _, _, _, _, _, SESSION_CONTROLLER): record_request();
            (chip_op_t.COMMIT, _, _, _, _, _, _, _, SESSION_CLIENT): record_request();
            (chip_op_t.ACK, _, _, _, _, _, _, _, SESSION_CONTROLLER): record_request();
            (chip_op_t.ACK, _, _, _, _, _, _, _, SESSION_CLIENT): record_request();
            (chip_op_t.RECORD, _, _, _, _, _, _, _, SESSION_CONTROLLER): record_request();
            (chip_op_t.RECORD, _, _, _, _, _, _, _, SESSION_CLIENT): record_request();
            (chip_op_t.SYNC_SESSION, _, _, _, _, _, _, _, SESSION_CONTROLLER): record_request();
            (chip_op_t.SYNC_SESSION, _, _, _, _, _, _, _, SESSION_CLIENT): record_request();
            (chip_op_t.SESSION_ANEW, _, _, _, _, _, _, _, SESSION_CONTROLLER): record_anew();
            (chip_op_t.SESSION_ANEW, _, _, _, _, _, _, _, SESSION_CLIENT): record_anew();
            (chip_op_t.FETCH_SESSION, _, _, _, _, _, _, _, SESSION_CONTROLLER): read_request();
            (chip_op_t.FETCH_SESSION, _, _, _, _, _, _, _, SESSION_CLIENT): read_request();
        }
        const default_action = no_request(REQUEST_NEW);
    }

    /* By chain: until when this switch may answer reads, in units of its clock. A packet that finds
     * a lease over sets it to 0, since the clock begins again and would reach its end once more. */
    CHIP_REGISTER(bit<32>, bit<8>, 256) lease_expiry;
    STATEFUL(check_lease, lease_expiry, bit<32>, bit<8>, bit<32>, meta.expiry, hdr.netcraq.KEY_ID[31:24], ,
             if (v > meta.now && v <= meta.horizon) { rv = v; } else { v = 0; rv = 0; })
    STATEFUL(renew_lease, lease_expiry, bit<32>, bit<8>, bit<32>, meta.expiry, hdr.netcraq.KEY_ID[31:24], ,
             if (v < meta.until || v > meta.horizon) { v = meta.until; }
             rv = v;)
    STATEFUL(end_lease, lease_expiry, bit<32>, bit<8>, bit<32>, meta.expiry, hdr.netcraq.KEY_ID[31:24], ,
             v = 0;
             rv = 0;)
    @hidden table lease {
        key = {
            meta.op: ternary;
            hdr.netcraq.request: ternary;
        }
        actions = { check_lease; renew_lease; end_lease; NoAction; }
        const entries = {
            (chip_op_t.READ, _): check_lease();
            (chip_op_t.ASSIGN, _): check_lease();
            (chip_op_t.CAS, _): check_lease();
            (chip_op_t.LEASE_OTHER, _): check_lease();
            (chip_op_t.LEASE, 0): end_lease();
            (chip_op_t.LEASE, _): renew_lease();
        }
        const default_action = NoAction();
    }

    apply {
        lease.apply();
        session_of_request.apply();
        permit.apply();
    }
}

#endif

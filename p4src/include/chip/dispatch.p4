/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's Dispatch: which operation is the packet for this switch, given its role? Packets that
 * need no register are decided here. The entries are in the order of dispatch.p4; the first that
 * matches counts.
 */
#ifndef NETCRAQ_CHIP_DISPATCH_P4
#define NETCRAQ_CHIP_DISPATCH_P4

#include "metadata.p4"
#include "../events.p4"

control ChipDispatch(inout headers_t hdr, inout chip_metadata_t meta) {
    @hidden action operate(chip_op_t op, kv_op_t reply_op) {
        meta.op = op;
        meta.reply_op = reply_op;
    }
    /* A hidden key: as if there were no entry. */
    @hidden action operate_without_slot(chip_op_t op, kv_op_t reply_op) {
        meta.op = op;
        meta.reply_op = reply_op;
        meta.placed = 0;
    }
    /* Another switch's word commits only what this one has accepted, so it raises nothing. */
    @hidden action operate_accepted(chip_op_t op, bit<1> acknowledge) {
        meta.op = op;
        meta.raise = 0;
        meta.acknowledge = acknowledge;
    }
    @hidden action operate_acknowledgement(chip_op_t op) {
        meta.op = op;
        meta.raise = 0;
        meta.acknowledge = 1;
        meta.event = EVENT_REPLY_PASSED;
    }
    @hidden action operate_acknowledgement_of_shadow() {
        meta.op = chip_op_t.ACK;
        meta.acknowledge = 1;
        meta.event = EVENT_REPLY_PASSED;
    }
    @hidden action pass_acknowledgement() {
        meta.acknowledge = 1;
        meta.event = EVENT_REPLY_PASSED;
    }
    /* Records are of this lease from `request` to the end of the window. */
    @hidden action operate_session_anew(kv_op_t reply_op) {
        meta.op = chip_op_t.SESSION_ANEW;
        meta.reply_op = reply_op;
        meta.window = hdr.netcraq.request |+| REQUEST_WINDOW;
    }
    @hidden action decide(chip_verdict_t verdict, bit<8> status, bit<8> event, kv_op_t reply_op) {
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
        meta.reply_op = reply_op;
    }
    @hidden action decide_absent(bit<8> status, bit<8> event, kv_op_t reply_op) {
        meta.verdict = chip_verdict_t.ANSWER_CONTROLLER;
        meta.status = status;
        meta.event = event;
        meta.reply_op = reply_op;
        hdr.netcraq.length = TOMBSTONE;
    }
    @hidden table dispatch {
        key = {
            hdr.netcraq.KV_OP: ternary;
            hdr.netcraq.flags: ternary;
            meta.trust: ternary;
            meta.session_class: ternary;
            meta.leased: ternary;
            meta.any_session: ternary;
            meta.is_local: ternary;
            meta.known: ternary;
            meta.role: ternary;
            meta.frozen: ternary;
            meta.placed: ternary;
            meta.realm: ternary;
            meta.has_store: ternary;
            meta.principal: ternary;
            meta.epoch_difference: ternary;
            meta.room: ternary;
            meta.service_difference: ternary;
            meta.from_tail: ternary;
            meta.again: ternary;
        }
        actions = { operate; operate_without_slot; operate_accepted; operate_acknowledgement;
                    operate_acknowledgement_of_shadow; pass_acknowledgement; operate_session_anew; decide;
                    decide_absent; NoAction; }
        const entries = {
            /* A host's request under a session that is not leased to its port. */
            (kv_op_t.WRITE, _, TRUST_HOST, SESSION_CONTROLLER, 0, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_FROM_HERE, STATUS_BAD_SESSION, EVENT_BAD_SESSION, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, TRUST_HOST, 2 &&& 2, 0, 0, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_FROM_HERE, STATUS_BAD_SESSION, EVENT_BAD_SESSION, kv_op_t.WRITE_REPLY);
            (kv_op_t.CAS, _, TRUST_HOST, SESSION_CONTROLLER, 0, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_FROM_HERE, STATUS_BAD_SESSION, EVENT_BAD_SESSION, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, TRUST_HOST, 2 &&& 2, 0, 0, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_FROM_HERE, STATUS_BAD_SESSION, EVENT_BAD_SESSION, kv_op_t.CAS_REPLY);
            /* Requests to another switch, and of a chain that is not known. */
            (kv_op_t.READ, _, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_TRANSIT, kv_op_t.READ_REPLY);
            (kv_op_t.READ, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_FROM_HERE, STATUS_NO_CHAIN, EVENT_NO_CHAIN, kv_op_t.READ_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_TRANSIT, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_FROM_HERE, STATUS_NO_CHAIN, EVENT_NO_CHAIN, kv_op_t.WRITE_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_TRANSIT, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_FROM_HERE, STATUS_NO_CHAIN, EVENT_NO_CHAIN, kv_op_t.CAS_REPLY);
            /* READ. A client's finds no hidden key. */
            (kv_op_t.READ, _, _, _, _, _, _, _, _, _, 0, _, 1, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_STORE, 0, EVENT_READ_TO_STORE, kv_op_t.READ_REPLY);
            (kv_op_t.READ, _, _, _, _, _, _, _, _, _, 1, HIDDEN, _, CONTROLLER, _, _, _, _, _):
                operate(chip_op_t.READ, kv_op_t.READ_REPLY);
            (kv_op_t.READ, _, _, _, _, _, _, _, _, _, 1, HIDDEN, _, _, _, _, _, _, _):
                operate_without_slot(chip_op_t.READ, kv_op_t.READ_REPLY);
            (kv_op_t.READ, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.READ, kv_op_t.READ_REPLY);
            /* A second pass of a CAS, at the tail of a chain of one. */
            (kv_op_t.CAS, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 1):
                operate(chip_op_t.FAIL, kv_op_t.CAS_REPLY);
            /* STAMPED, of this configuration. */
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, _, _, _, _, _, 0, _, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_NOT_MEMBER, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, _, _, _, _, _, 5, _, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_NOT_MEMBER, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, _, _, _, _, _, _, 1, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_FROZEN, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, SESSION_BEYOND, _, _, _, _, _, _, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_MALFORMED, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, _, _, _, _, _, _, _, 0, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_NO_SLOT, kv_op_t.WRITE_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, _, _, _, _, _, 0, _, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_NOT_MEMBER, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, _, _, _, _, _, 5, _, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_NOT_MEMBER, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, _, _, _, _, _, _, 1, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_FROZEN, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, SESSION_BEYOND, _, _, _, _, _, _, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_MALFORMED, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, _, _, _, _, _, _, _, 0, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_NO_SLOT, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, _, _, _, _, _, 3, _, _, _, _, _, 0, _, _, _, _):
                operate(chip_op_t.FAIL, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, _, _, _, _, _, 4, _, _, _, _, _, 0, _, _, _, _):
                operate(chip_op_t.FAIL, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_NEXT, 0, EVENT_CAS_TO_TAIL, kv_op_t.CAS_REPLY);
            (kv_op_t.WRITE, STAMPED | BY_CAS &&& STAMPED | BY_CAS, _, _, _, _, _, _, 3, _, _, _, _, _, 0, _, _, _, _):
                operate(chip_op_t.COMMIT, kv_op_t.CAS_REPLY);
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, _, _, _, _, _, 3, _, _, _, _, _, 0, _, _, _, _):
                operate(chip_op_t.COMMIT, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, STAMPED | BY_CAS &&& STAMPED | BY_CAS, _, _, _, _, _, _, 4, _, _, _, _, _, 0, _, _, _, _):
                operate(chip_op_t.COMMIT, kv_op_t.CAS_REPLY);
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, _, _, _, _, _, 4, _, _, _, _, _, 0, _, _, _, _):
                operate(chip_op_t.COMMIT, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _, _, _):
                operate(chip_op_t.STORE, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, STAMPED &&& STAMPED, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_STALE_EPOCH, kv_op_t.WRITE_REPLY);
            (kv_op_t.CAS, STAMPED &&& STAMPED, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_STALE_EPOCH, kv_op_t.CAS_REPLY);
            /* Unstamped: only the head decides. */
            (kv_op_t.WRITE, TO_HEAD &&& TO_HEAD, _, _, _, _, _, _, 0 &&& 6, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, _, _, 0 &&& 6, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_HEAD, TO_HEAD, EVENT_WRITE_TO_HEAD, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, TO_HEAD &&& TO_HEAD, _, _, _, _, _, _, 3, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, _, _, 3, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_HEAD, TO_HEAD, EVENT_WRITE_TO_HEAD, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, TO_HEAD &&& TO_HEAD, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_HEAD, TO_HEAD, EVENT_WRITE_TO_HEAD, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, _, _, _, 1, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_RETRY, EVENT_WRITE_FROZEN, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, SESSION_BEYOND, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_BAD_SESSION, EVENT_BAD_SESSION, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, _, _, _, _, 1, HIDDEN, _, CONTROLLER, _, _, _, _, _):
                operate(chip_op_t.ASSIGN, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, _, _, _, _, 1, HIDDEN, _, _, _, _, _, _, _):
                operate_without_slot(chip_op_t.ASSIGN, kv_op_t.WRITE_REPLY);
            (kv_op_t.WRITE, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.ASSIGN, kv_op_t.WRITE_REPLY);
            (kv_op_t.CAS, TO_HEAD &&& TO_HEAD, _, _, _, _, _, _, 0 &&& 6, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, _, 0 &&& 6, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_HEAD, TO_HEAD, EVENT_WRITE_TO_HEAD, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, TO_HEAD &&& TO_HEAD, _, _, _, _, _, _, 3, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, _, 3, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_HEAD, TO_HEAD, EVENT_WRITE_TO_HEAD, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, TO_HEAD &&& TO_HEAD, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_HEAD, TO_HEAD, EVENT_WRITE_TO_HEAD, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, _, _, 1, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_RETRY, EVENT_WRITE_FROZEN, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, SESSION_BEYOND, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_BAD_SESSION, EVENT_BAD_SESSION, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_OUTDATED, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, _, _, _, 1, HIDDEN, _, CONTROLLER, _, _, _, _, _):
                operate(chip_op_t.CAS, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, _, _, _, 1, HIDDEN, _, _, _, _, _, _, _):
                operate_without_slot(chip_op_t.CAS, kv_op_t.CAS_REPLY);
            (kv_op_t.CAS, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.CAS, kv_op_t.CAS_REPLY);
            /* From the controller. */
            (kv_op_t.LEASE, _, _, _, _, _, _, 1, _, _, _, _, _, _, 0, _, _, _, _):
                operate(chip_op_t.LEASE, kv_op_t.LEASE_REPLY);
            (kv_op_t.LEASE, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.LEASE_OTHER, kv_op_t.LEASE_REPLY);
            (kv_op_t.FETCH, SESSION &&& SESSION, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.FETCH_SESSION, kv_op_t.FETCH_REPLY);
            (kv_op_t.FETCH, _, _, _, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, _):
                decide_absent(STATUS_NOT_FOUND, EVENT_FETCH, kv_op_t.FETCH_REPLY);
            (kv_op_t.FETCH, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.FETCH, kv_op_t.FETCH_REPLY);
            (kv_op_t.SYNC, SESSION | NEWEST &&& SESSION | NEWEST, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate_session_anew(kv_op_t.SYNC_REPLY);
            (kv_op_t.SYNC, SESSION &&& SESSION, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.SYNC_SESSION, kv_op_t.SYNC_REPLY);
            (kv_op_t.SYNC, _, _, _, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, _):
                decide_absent(STATUS_NOT_FOUND, EVENT_SYNC, kv_op_t.SYNC_REPLY);
            (kv_op_t.SYNC, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.LEARN, kv_op_t.SYNC_REPLY);
            /* ACK. A shadow and the controller's word take what is new; a member only what it has accepted. */
            (kv_op_t.ACK, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_NOT_MEMBER, kv_op_t.READ_REPLY);
            (kv_op_t.ACK, _, _, _, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_TRANSIT, kv_op_t.READ_REPLY);
            (kv_op_t.ACK, _, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_TRANSIT, kv_op_t.READ_REPLY);
            (kv_op_t.ACK, _, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.ACK, kv_op_t.READ_REPLY);
            (kv_op_t.ACK, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _, _):
                operate(chip_op_t.RECORD, kv_op_t.READ_REPLY);
            (kv_op_t.ACK, _, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, _, _, _):
                operate(chip_op_t.ACK, kv_op_t.READ_REPLY);
            (kv_op_t.ACK, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): operate_accepted(chip_op_t.ACK, 0);
            /* A reply on its way. Nobody learns from one that is not the tail's. */
            (kv_op_t.WRITE_REPLY, _, TRUST_FABRIC, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.WRITE_REPLY, _, TRUST_FABRIC, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.WRITE_REPLY, STATUS_OK, _, _, _, _, _, _, _, _, 0, _, _, _, _, _, 0, _, _):
                pass_acknowledgement();
            (kv_op_t.WRITE_REPLY, STATUS_OK, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, 0, _, _):
                pass_acknowledgement();
            (kv_op_t.WRITE_REPLY, STATUS_OK, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, 0, _, _):
                operate_acknowledgement(chip_op_t.RECORD);
            (kv_op_t.WRITE_REPLY, STATUS_OK, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, 0, _, _):
                operate_acknowledgement_of_shadow();
            (kv_op_t.WRITE_REPLY, STATUS_OK, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _):
                operate_acknowledgement(chip_op_t.ACK);
            (kv_op_t.WRITE_REPLY, _, _, _, _, _, _, _, _, _, 0, _, _, _, _, _, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.WRITE_REPLY, _, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.WRITE_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.WRITE_REPLY, STATUS_NOT_FOUND, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, 0, _, _):
                operate(chip_op_t.LEARN, kv_op_t.READ_REPLY);
            (kv_op_t.WRITE_REPLY, STATUS_NOT_FOUND, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _):
                operate_accepted(chip_op_t.LEARN, 0);
            (kv_op_t.WRITE_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.CAS_REPLY, _, TRUST_FABRIC, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.CAS_REPLY, _, TRUST_FABRIC, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.CAS_REPLY, STATUS_OK, _, _, _, _, _, _, _, _, 0, _, _, _, _, _, 0, _, _): pass_acknowledgement();
            (kv_op_t.CAS_REPLY, STATUS_OK, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, 0, _, _): pass_acknowledgement();
            (kv_op_t.CAS_REPLY, STATUS_OK, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, 0, _, _):
                operate_acknowledgement(chip_op_t.RECORD);
            (kv_op_t.CAS_REPLY, STATUS_OK, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, 0, _, _):
                operate_acknowledgement_of_shadow();
            (kv_op_t.CAS_REPLY, STATUS_OK, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _):
                operate_acknowledgement(chip_op_t.ACK);
            (kv_op_t.CAS_REPLY, _, _, _, _, _, _, _, _, _, 0, _, _, _, _, _, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.CAS_REPLY, _, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.CAS_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.CAS_REPLY, STATUS_CAS_FAILED, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, 0, _, _):
                operate(chip_op_t.LEARN, kv_op_t.READ_REPLY);
            (kv_op_t.CAS_REPLY, STATUS_CAS_FAILED, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _):
                operate_accepted(chip_op_t.LEARN, 0);
            (kv_op_t.CAS_REPLY, STATUS_NOT_FOUND, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, 0, _, _):
                operate(chip_op_t.LEARN, kv_op_t.READ_REPLY);
            (kv_op_t.CAS_REPLY, STATUS_NOT_FOUND, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _):
                operate_accepted(chip_op_t.LEARN, 0);
            (kv_op_t.CAS_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.READ_REPLY, _, TRUST_FABRIC, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.READ_REPLY, _, TRUST_FABRIC, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, _, _, _, 0, _, _, _, _, _, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, _, 0, _, _, _, _, _, _, _, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, 0, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
            (kv_op_t.READ_REPLY, STATUS_OK, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, 0, _, _):
                operate(chip_op_t.LEARN, kv_op_t.READ_REPLY);
            (kv_op_t.READ_REPLY, STATUS_OK, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _):
                operate_accepted(chip_op_t.LEARN, 0);
            (kv_op_t.READ_REPLY, STATUS_NOT_FOUND, _, _, _, _, _, _, 5, _, _, _, _, _, _, _, 0, _, _):
                operate(chip_op_t.LEARN, kv_op_t.READ_REPLY);
            (kv_op_t.READ_REPLY, STATUS_NOT_FOUND, _, _, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _):
                operate_accepted(chip_op_t.LEARN, 0);
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED, kv_op_t.READ_REPLY);
        }
        const default_action = NoAction();
    }

    apply {
        dispatch.apply();
    }
}

#endif

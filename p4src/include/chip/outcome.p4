/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's Outcome: what the registers say about the packet. The entries are those of outcome.p4,
 * one for each way through it; the first that matches counts.
 *
 *   is what is committed here also the latest? ── yes ──▶ outcome_clean
 *                                              ── no, or that does not matter ──▶ outcome
 */
#ifndef NETCRAQ_CHIP_OUTCOME_P4
#define NETCRAQ_CHIP_OUTCOME_P4

#include "metadata.p4"
#include "../events.p4"

control ChipOutcome(inout headers_t hdr, inout chip_metadata_t meta) {
    @hidden action decide(chip_verdict_t verdict, bit<8> status, bit<8> event) {
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
    }
    @hidden action read(chip_verdict_t verdict, bit<8> status, bit<8> event) {
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
        meta.cell_op = CELL_READ;
        COMMITTED_CELL;
        hdr.netcraq.version = meta.committed;
    }
    @hidden action read_newest(chip_verdict_t verdict, bit<8> status, bit<8> event) {
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
        meta.cell_op = CELL_READ;
        DIRTY_CELL_OF(meta.latest);
        hdr.netcraq.version = meta.latest;
    }
    @hidden action absent(bit<8> status, bit<8> event) {
        meta.verdict = chip_verdict_t.ANSWER;
        meta.status = status;
        meta.event = event;
        hdr.netcraq.version = 0;
        hdr.netcraq.length = TOMBSTONE;
    }
    /* A write that has its version: on to the next member. */
    @hidden action assign(bit<8> flags) {
        meta.verdict = chip_verdict_t.FORWARD_TO_NEXT;
        meta.status = 0;
        meta.event = EVENT_WRITE_ASSIGNED;
        meta.cell_op = CELL_FILL;
        DIRTY_CELL_OF(meta.version);
        hdr.netcraq.version = meta.version;
        hdr.netcraq.flags = flags;
        hdr.netcraq.KV_OP = kv_op_t.WRITE;
        hdr.netcraq.epoch = meta.epoch;
    }
    /* ... or, in a chain of one, committed. */
    @hidden action assign_committed(bit<1> acknowledge) {
        meta.verdict = chip_verdict_t.ANSWER;
        meta.status = STATUS_OK;
        meta.event = EVENT_WRITE_COMMITTED;
        meta.acknowledge = acknowledge;
        meta.cell_op = CELL_FILL;
        COMMITTED_CELL;
        hdr.netcraq.version = meta.version;
    }
    @hidden action assign_again(bit<8> flags) {
        meta.verdict = chip_verdict_t.FORWARD_TO_NEXT;
        meta.status = 0;
        meta.event = EVENT_WRITE_RETRIED;
        hdr.netcraq.version = meta.latest;
        hdr.netcraq.flags = flags;
        hdr.netcraq.KV_OP = kv_op_t.WRITE;
        hdr.netcraq.epoch = meta.epoch;
    }
    @hidden action answer_given(chip_verdict_t verdict, bit<8> status, bit<8> event) {
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
        hdr.netcraq.version = meta.latest;
    }
    @hidden action repeat(chip_verdict_t verdict, bit<8> status, bit<8> event, bit<1> acknowledge) {
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
        meta.acknowledge = acknowledge;
        meta.cell_op = CELL_READ;
        COMMITTED_CELL;
        hdr.netcraq.version = meta.latest;
    }
    /* The version that it expects is not the newest here, so this head can never execute it. */
    @hidden action fail_at_tail() {
        meta.verdict = chip_verdict_t.FORWARD_TO_NEXT;
        meta.status = STAMPED;
        meta.event = EVENT_CAS_TO_TAIL;
        hdr.netcraq.epoch = meta.epoch;
    }
    @hidden action store(bit<8> event) {
        meta.verdict = chip_verdict_t.FORWARD_TO_NEXT;
        meta.status = 0;
        meta.event = event;
        meta.cell_op = CELL_FILL;
        DIRTY_CELL_OF(hdr.netcraq.version);
    }
    @hidden action fill(chip_verdict_t verdict, bit<8> status, bit<8> event, bit<1> acknowledge) {
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
        meta.acknowledge = acknowledge;
        meta.cell_op = CELL_FILL;
        COMMITTED_CELL;
    }
    @hidden action read_same(chip_verdict_t verdict, bit<8> status, bit<8> event, bit<1> acknowledge) {
        meta.verdict = verdict;
        meta.status = status;
        meta.event = event;
        meta.acknowledge = acknowledge;
        meta.cell_op = CELL_READ;
        COMMITTED_CELL;
    }
    @hidden action learn(bit<8> event) {
        meta.event = event;
        meta.cell_op = CELL_FILL;
        COMMITTED_CELL;
    }
    @hidden action no_record() {
        meta.verdict = chip_verdict_t.ANSWER_CONTROLLER;
        meta.status = STATUS_BAD_SESSION;
        meta.event = EVENT_FETCH;
        hdr.netcraq.version = 0;
    }
    @hidden action lease_left(bit<8> status, bit<8> event) {
        meta.verdict = chip_verdict_t.ANSWER_CONTROLLER;
        meta.status = status;
        meta.event = event;
        hdr.netcraq.request = meta.expiry |-| meta.now;
        hdr.netcraq.version = meta.now;
    }

    @hidden table outcome_clean {
        key = {
            meta.op: ternary;
            meta.role: ternary;
            hdr.netcraq.flags: ternary;
            meta.lease_required: ternary;
            meta.expiry: ternary;
            meta.latest: ternary;
            meta.watched: ternary;
        }
        actions = { decide; read; repeat; NoAction; }
        const entries = {
            /* READ of a clean slot. */
            (chip_op_t.READ, 0, DIRTY_FORWARDED &&& DIRTY_FORWARDED, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, 0, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_TAIL, DIRTY_FORWARDED, EVENT_READ_FORWARDED);
            (chip_op_t.READ, 5, DIRTY_FORWARDED &&& DIRTY_FORWARDED, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, 5, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_TAIL, DIRTY_FORWARDED, EVENT_READ_FORWARDED);
            (chip_op_t.READ, _, EVENTUAL &&& EVENTUAL, _, _, _, _):
                read(chip_verdict_t.ANSWER, STATUS_OK, EVENT_READ_CLEAN);
            (chip_op_t.READ, 3, _, 1, 0, _, _): decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, 4, _, 1, 0, _, _): decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, _, DIRTY_FORWARDED &&& DIRTY_FORWARDED, 1, 0, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, _, _, 1, 0, _, _):
                decide(chip_verdict_t.FORWARD_TO_TAIL, DIRTY_FORWARDED, EVENT_READ_FORWARDED);
            (chip_op_t.READ, _, _, _, _, _, _): read(chip_verdict_t.ANSWER, STATUS_OK, EVENT_READ_CLEAN);
            /* What the controller fetches, and a CAS that has failed. */
            (chip_op_t.FETCH, _, _, _, _, _, _): read(chip_verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_FETCH);
            (chip_op_t.FAIL, _, _, _, _, _, _): read(chip_verdict_t.ANSWER, STATUS_CAS_FAILED, EVENT_CAS_FAILED);
            /* In a chain of one, a retry of what is committed; or of nothing. */
            (chip_op_t.ASSIGN, _, _, _, _, 0, _): decide(chip_verdict_t.DROP, 0, EVENT_DROP_OLD_REQUEST);
            (chip_op_t.ASSIGN, _, _, _, _, _, 1): repeat(chip_verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_REPEATED, 1);
            (chip_op_t.ASSIGN, _, _, _, _, _, _): repeat(chip_verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_REPEATED, 0);
            (chip_op_t.CAS, _, _, _, _, 0, _): decide(chip_verdict_t.AGAIN, 0, EVENT_NONE);
            (chip_op_t.CAS, _, _, _, _, _, 1): repeat(chip_verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_REPEATED, 1);
            (chip_op_t.CAS, _, _, _, _, _, _): repeat(chip_verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_REPEATED, 0);
        }
        const default_action = NoAction();
    }
    @hidden table outcome {
        key = {
            meta.op: ternary;
            meta.role: ternary;
            meta.placed: ternary;
            hdr.netcraq.flags: ternary;
            hdr.netcraq.KV_OP: ternary;
            meta.lease_required: ternary;
            meta.expiry: ternary;
            meta.latest_state: ternary;
            meta.committed_state: ternary;
            meta.request_state: ternary;
            meta.version: ternary;
            meta.latest: ternary;
            meta.watched: ternary;
            meta.session_class: ternary;
        }
        actions = { decide; read; read_newest; absent; assign; assign_committed; assign_again; answer_given;
                    fail_at_tail; store; fill; read_same; learn; no_record; lease_left; NoAction; }
        const entries = {
            /* READ without a slot, and of a dirty one. */
            (chip_op_t.READ, 0, _, DIRTY_FORWARDED &&& DIRTY_FORWARDED, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, 0, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_TAIL, DIRTY_FORWARDED, EVENT_READ_FORWARDED);
            (chip_op_t.READ, 5, _, DIRTY_FORWARDED &&& DIRTY_FORWARDED, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, 5, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_TAIL, DIRTY_FORWARDED, EVENT_READ_FORWARDED);
            (chip_op_t.READ, _, 0, EVENTUAL &&& EVENTUAL, _, _, _, _, _, _, _, _, _, _):
                absent(STATUS_NOT_FOUND, EVENT_READ_NOT_FOUND);
            (chip_op_t.READ, _, _, EVENTUAL &&& EVENTUAL, _, _, _, _, _, _, _, _, _, _):
                read(chip_verdict_t.ANSWER, STATUS_OK, EVENT_READ_CLEAN);
            (chip_op_t.READ, 3, _, _, _, 1, 0, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, 4, _, _, _, 1, 0, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, _, _, DIRTY_FORWARDED &&& DIRTY_FORWARDED, _, 1, 0, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, _, _, _, _, 1, 0, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_TAIL, DIRTY_FORWARDED, EVENT_READ_FORWARDED);
            (chip_op_t.READ, _, 0, _, _, _, _, _, _, _, _, _, _, _): absent(STATUS_NOT_FOUND, EVENT_READ_NOT_FOUND);
            (chip_op_t.READ, 3, _, _, _, _, _, _, _, _, _, _, _, _):
                read_newest(chip_verdict_t.ANSWER, STATUS_OK, EVENT_READ_DIRTY);
            (chip_op_t.READ, 4, _, _, _, _, _, _, _, _, _, _, _, _):
                read_newest(chip_verdict_t.ANSWER, STATUS_OK, EVENT_READ_DIRTY);
            (chip_op_t.READ, _, _, DIRTY_FORWARDED &&& DIRTY_FORWARDED, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.READ, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_TAIL, DIRTY_FORWARDED, EVENT_READ_FORWARDED);
            /* At the head: nothing to write, or of another lease of the session. */
            (chip_op_t.ASSIGN, _, 0, _, _, 1, 0, _, _, _, _, _, _, _): absent(STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.ASSIGN, _, 0, _, _, _, _, _, _, _, _, _, _, _):
                absent(STATUS_NOT_FOUND, EVENT_WRITE_NOT_FOUND);
            (chip_op_t.ASSIGN, _, _, _, _, 1, 0, _, _, REQUEST_FAR, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.ASSIGN, _, _, _, _, _, _, _, _, REQUEST_FAR, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_BAD_SESSION, EVENT_BAD_SESSION);
            (chip_op_t.CAS, _, 0, _, _, 1, 0, _, _, _, _, _, _, _): absent(STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.CAS, _, 0, _, _, _, _, _, _, _, _, _, _, _): absent(STATUS_NOT_FOUND, EVENT_WRITE_NOT_FOUND);
            (chip_op_t.CAS, _, _, _, _, 1, 0, _, _, REQUEST_FAR, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
            (chip_op_t.CAS, _, _, _, _, _, _, _, _, REQUEST_FAR, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_BAD_SESSION, EVENT_BAD_SESSION);
            /* A WRITE that is new, in a chain and in a chain of one. */
            (chip_op_t.ASSIGN, _, _, _, _, _, _, _, _, REQUEST_NEW, 0, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_NOT_SERVING, EVENT_OUTDATED);
            (chip_op_t.ASSIGN, 2, _, _, _, _, _, _, _, REQUEST_NEW, _, _, _, _): assign(STAMPED);
            (chip_op_t.ASSIGN, _, _, _, _, _, _, _, _, REQUEST_NEW, _, _, 1, _): assign_committed(1);
            (chip_op_t.ASSIGN, _, _, _, _, _, _, _, _, REQUEST_NEW, _, _, _, _): assign_committed(0);
            /* A retry. */
            (chip_op_t.ASSIGN, _, _, _, _, _, _, _, _, _, _, 0, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_OLD_REQUEST);
            (chip_op_t.ASSIGN, 2, _, _, _, _, _, _, _, _, _, _, _, _): assign_again(STAMPED);
            (chip_op_t.ASSIGN, _, _, _, _, _, _, _, _, _, _, _, _, _):
                answer_given(chip_verdict_t.ANSWER, STATUS_SUPERSEDED, EVENT_WRITE_SUPERSEDED);
            /* A CAS that passes, is a retry, or fails. */
            (chip_op_t.CAS, _, _, _, _, _, _, _, _, REQUEST_OLD, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_DROP_OLD_REQUEST);
            (chip_op_t.CAS, 2, _, _, _, _, _, CAS_PASSED, _, _, _, _, _, _): assign(STAMPED | BY_CAS);
            (chip_op_t.CAS, _, _, _, _, _, _, CAS_PASSED, _, _, _, _, 1, _): assign_committed(1);
            (chip_op_t.CAS, _, _, _, _, _, _, CAS_PASSED, _, _, _, _, _, _): assign_committed(0);
            (chip_op_t.CAS, 2, _, _, _, _, _, _, _, _, _, 0, _, _): fail_at_tail();
            (chip_op_t.CAS, _, _, _, _, _, _, _, _, _, _, 0, _, _): decide(chip_verdict_t.AGAIN, 0, EVENT_NONE);
            (chip_op_t.CAS, 2, _, _, _, _, _, _, _, _, _, _, _, _): assign_again(STAMPED | BY_CAS);
            (chip_op_t.CAS, _, _, _, _, _, _, _, _, _, _, _, _, _):
                answer_given(chip_verdict_t.ANSWER, STATUS_SUPERSEDED, EVENT_WRITE_SUPERSEDED);
            /* STAMPED, before the tail and at it. */
            (chip_op_t.STORE, _, _, _, _, _, _, LATEST_RAISED, _, _, _, _, _, _): store(EVENT_WRITE_STORED);
            (chip_op_t.STORE, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.FORWARD_TO_NEXT, 0, EVENT_WRITE_PASSED);
            (chip_op_t.COMMIT, _, _, NO_REPLY &&& NO_REPLY, _, _, _, _, COMMITTED_NEWER, _, _, _, _, _):
                fill(chip_verdict_t.ACKNOWLEDGE, STATUS_OK, EVENT_WRITE_COMMITTED, 0);
            (chip_op_t.COMMIT, _, _, _, _, _, _, _, COMMITTED_NEWER, _, _, _, _, _):
                fill(chip_verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_COMMITTED, 1);
            (chip_op_t.COMMIT, _, _, NO_REPLY &&& NO_REPLY, _, _, _, _, COMMITTED_SAME, _, _, _, _, _):
                read_same(chip_verdict_t.ACKNOWLEDGE, STATUS_OK, EVENT_WRITE_REPEATED, 0);
            (chip_op_t.COMMIT, _, _, _, _, _, _, _, COMMITTED_SAME, _, _, _, _, _):
                read_same(chip_verdict_t.ANSWER, STATUS_OK, EVENT_WRITE_REPEATED, 1);
            (chip_op_t.COMMIT, _, _, NO_REPLY &&& NO_REPLY, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.DROP, 0, EVENT_WRITE_SUPERSEDED);
            (chip_op_t.COMMIT, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_SUPERSEDED, EVENT_WRITE_SUPERSEDED);
            (chip_op_t.FAIL, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER, STATUS_RETRY, EVENT_CAS_RETRY);
            /* What is committed elsewhere. */
            (chip_op_t.LEARN, _, _, _, kv_op_t.SYNC, _, _, _, COMMITTED_NEWER, _, _, _, _, _):
                fill(chip_verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_SYNC, 0);
            (chip_op_t.LEARN, _, _, _, kv_op_t.SYNC, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_SYNC);
            (chip_op_t.LEARN, _, _, _, _, _, _, _, COMMITTED_NEWER, _, _, _, _, _): learn(EVENT_REPLY_REPAIRED);
            (chip_op_t.LEARN, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_REPLY_PASSED);
            (chip_op_t.ACK, _, _, _, kv_op_t.ACK, _, _, _, COMMITTED_NEWER, _, _, _, _, _):
                learn(EVENT_ACK_COMMITTED);
            (chip_op_t.ACK, _, _, _, kv_op_t.ACK, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_ACK_OLD);
            (chip_op_t.ACK, _, _, _, _, _, _, _, COMMITTED_NEWER, _, _, _, _, _): learn(EVENT_REPLY_REPAIRED);
            (chip_op_t.RECORD, _, _, _, kv_op_t.ACK, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.PASS, 0, EVENT_ACK_OLD);
            /* What the controller copies. */
            (chip_op_t.FETCH, _, _, NEWEST &&& NEWEST, _, _, _, _, _, _, _, _, _, _):
                read_newest(chip_verdict_t.ANSWER_CONTROLLER, STATUS_DIRTY, EVENT_FETCH);
            (chip_op_t.FETCH, _, _, _, _, _, _, _, _, _, _, _, _, _):
                read(chip_verdict_t.ANSWER_CONTROLLER, STATUS_DIRTY, EVENT_FETCH);
            (chip_op_t.FETCH_SESSION, _, _, _, _, _, _, _, _, _, _, _, _, SESSION_NONE): no_record();
            (chip_op_t.FETCH_SESSION, _, _, _, _, _, _, _, _, _, _, _, _, SESSION_BEYOND): no_record();
            (chip_op_t.FETCH_SESSION, _, _, _, _, _, _, _, _, _, _, _, _, _):
                answer_given(chip_verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_FETCH);
            (chip_op_t.SYNC_SESSION, _, _, _, _, _, _, _, _, _, _, _, _, SESSION_NONE):
                decide(chip_verdict_t.ANSWER_CONTROLLER, STATUS_BAD_SESSION, EVENT_SYNC);
            (chip_op_t.SYNC_SESSION, _, _, _, _, _, _, _, _, _, _, _, _, SESSION_BEYOND):
                decide(chip_verdict_t.ANSWER_CONTROLLER, STATUS_BAD_SESSION, EVENT_SYNC);
            (chip_op_t.SYNC_SESSION, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_SYNC);
            (chip_op_t.SESSION_ANEW, _, _, _, _, _, _, _, _, _, _, _, _, SESSION_NONE):
                decide(chip_verdict_t.ANSWER_CONTROLLER, STATUS_BAD_SESSION, EVENT_SYNC);
            (chip_op_t.SESSION_ANEW, _, _, _, _, _, _, _, _, _, _, _, _, SESSION_BEYOND):
                decide(chip_verdict_t.ANSWER_CONTROLLER, STATUS_BAD_SESSION, EVENT_SYNC);
            (chip_op_t.SESSION_ANEW, _, _, _, _, _, _, _, _, _, _, _, _, _):
                decide(chip_verdict_t.ANSWER_CONTROLLER, STATUS_OK, EVENT_SYNC);
            (chip_op_t.LEASE, _, _, _, _, _, _, _, _, _, _, _, _, _): lease_left(STATUS_OK, EVENT_LEASE_RENEWED);
            (chip_op_t.LEASE_OTHER, _, _, _, _, _, _, _, _, _, _, _, _, _):
                lease_left(STATUS_NOT_SERVING, EVENT_LEASE_REFUSED);
        }
        const default_action = NoAction();
    }

    apply {
        if (meta.compares == 1 && meta.committed == meta.latest) {
            outcome_clean.apply();
        } else {
            outcome.apply();
        }
    }
}

#endif

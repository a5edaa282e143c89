/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's Version, SessionVersion and SlotWriter, in two stages: `latest_version`, and after it
 * all that depends on it.
 *
 *   latest_version ──▶ committed_version, session_version, writer_request, writer_session
 *
 * netcraq.p4 has the committed and the latest version in one register. A chip returns 32 bits of an
 * access, so they are two here. The latest version comes first: then a chain of one commits what it
 * has just assigned, and a member commits only what it has accepted.
 */
#ifndef NETCRAQ_CHIP_VERSION_P4
#define NETCRAQ_CHIP_VERSION_P4

#include "metadata.p4"

control ChipLatest(in headers_t hdr, inout chip_metadata_t meta) {
    /* By slot: the newest version that was accepted. */
    CHIP_REGISTER(bit<32>, slot_t, SLOTS) latest_version;
    STATEFUL(read_latest, latest_version, bit<32>, slot_t, bit<32>, meta.latest, meta.slot, ,
             rv = v;)
    STATEFUL(raise_latest, latest_version, bit<32>, slot_t, bit<8>, meta.latest_state, meta.slot, ,
             rv = PREDICATE(v < hdr.netcraq.version, v < meta.raise);
             if (v < meta.raise) { v = meta.raise; })
    /* The next version. The sequence begins anew with an epoch. At its end, and where the slot has a
     * version of a later epoch, the result is 0: no version. */
    STATEFUL(assign_latest, latest_version, bit<32>, slot_t, bit<32>, meta.version, meta.slot, ,
             if (v >= meta.last) { rv = 0; }
             else if (v < meta.fresh) { v = meta.fresh; rv = v; }
             else { v = v + 1; rv = v; })
    STATEFUL(compare_latest, latest_version, bit<32>, slot_t, bit<8>, meta.latest_state, meta.slot, ,
             rv = PREDICATE(v == hdr.netcraq.version, v > hdr.netcraq.version);
             if (v == hdr.netcraq.version) { v = meta.version; })
    @hidden action no_latest() {
        meta.latest = 0xFFFFFFFF;
    }
    @hidden table latest {
        key = {
            meta.op: ternary;
            meta.placed: ternary;
            meta.request_state: ternary;
        }
        actions = { read_latest; raise_latest; assign_latest; compare_latest; no_latest; NoAction; }
        const entries = {
            (chip_op_t.FETCH_SESSION, _, _): no_latest();
            (_, 0, _): NoAction();
            (chip_op_t.READ, _, _): read_latest();
            (chip_op_t.FETCH, _, _): read_latest();
            (chip_op_t.FAIL, _, _): read_latest();
            (chip_op_t.ASSIGN, _, REQUEST_NEW): assign_latest();
            (chip_op_t.ASSIGN, _, REQUEST_OLD): read_latest();
            (chip_op_t.CAS, _, REQUEST_NEW): compare_latest();
            (chip_op_t.STORE, _, _): raise_latest();
            (chip_op_t.COMMIT, _, _): raise_latest();
            (chip_op_t.LEARN, _, _): raise_latest();
            (chip_op_t.ACK, _, _): raise_latest();
        }
        const default_action = NoAction();
    }

    apply {
        latest.apply();
    }
}

control ChipVersion(inout headers_t hdr, inout chip_metadata_t meta) {
    SLOT_COUNTER(slot_writes);

    /* By slot: the newest version that is known to be committed. */
    CHIP_REGISTER(bit<32>, slot_t, SLOTS) committed_version;
    STATEFUL(read_committed, committed_version, bit<32>, slot_t, bit<32>, meta.committed, meta.slot,
             meta.compares = 1;,
             rv = v;)
    /* A CAS that was to fail, but expects the committed version, or finds one of a later configuration
     * than this tail's: then it is not decided. So that is as if the slot were dirty. */
    STATEFUL(read_other_committed, committed_version, bit<32>, slot_t, bit<32>, meta.committed, meta.slot,
             meta.compares = 1;,
             if (v == hdr.netcraq.version || v > meta.last) { rv = 0xFFFFFFFF; } else { rv = v; })
    STATEFUL(raise_committed, committed_version, bit<32>, slot_t, bit<8>, meta.committed_state, meta.slot, ,
             rv = PREDICATE(v < hdr.netcraq.version, v == hdr.netcraq.version);
             if (v < hdr.netcraq.version) { v = hdr.netcraq.version; })
    STATEFUL_WRITE(set_committed, committed_version, bit<32>, slot_t, meta.slot,
                   v = meta.version;)
    @hidden table committed {
        key = {
            meta.op: ternary;
            meta.placed: ternary;
            meta.role: ternary;
            meta.request_state: ternary;
            meta.latest_state: ternary;
            meta.version: ternary;
        }
        actions = { read_committed; read_other_committed; raise_committed; set_committed; NoAction; }
        const entries = {
            (_, 0, _, _, _, _): NoAction();
            (chip_op_t.READ, _, _, _, _, _): read_committed();
            (chip_op_t.FETCH, _, _, _, _, _): read_committed();
            (chip_op_t.FAIL, _, _, _, _, _): read_other_committed();
            (chip_op_t.ASSIGN, _, 4, REQUEST_OLD, _, _): read_committed();
            (chip_op_t.ASSIGN, _, 4, REQUEST_NEW, _, 0): NoAction();
            (chip_op_t.ASSIGN, _, 4, REQUEST_NEW, _, _): set_committed();
            (chip_op_t.CAS, _, 4, REQUEST_NEW, CAS_PASSED, _): set_committed();
            (chip_op_t.CAS, _, 4, REQUEST_NEW, _, _): read_committed();
            (chip_op_t.COMMIT, _, _, _, _, _): raise_committed();
            (chip_op_t.LEARN, _, _, _, LATEST_BELOW, _): NoAction();
            (chip_op_t.LEARN, _, _, _, _, _): raise_committed();
            (chip_op_t.ACK, _, _, _, LATEST_BELOW, _): NoAction();
            (chip_op_t.ACK, _, _, _, _, _): raise_committed();
        }
        const default_action = NoAction();
    }

    /* By session: the version that its last request was given, 0 if none, and that request once more:
     * so this register tells a retry from an older request. */
    CHIP_REGISTER(pair_t, bit<16>, SESSIONS) session_version;
    STATEFUL_WRITE(put_given, session_version, pair_t, bit<16>, hdr.netcraq.session,
                   LOW(v) = meta.version;
                   HIGH(v) = hdr.netcraq.request;)
    /* ... if the slot has ever had it: another client may have used the session. */
    STATEFUL(get_given, session_version, pair_t, bit<16>, bit<32>, meta.latest, hdr.netcraq.session, ,
             if (HIGH(v) == hdr.netcraq.request && LOW(v) <= meta.latest) { rv = LOW(v); } else { rv = 0; })
    STATEFUL_WRITE(learn_given, session_version, pair_t, bit<16>, hdr.netcraq.session,
                   if (HIGH(v) == hdr.netcraq.request) { LOW(v) = meta.version; })
    /* A CAS that did not pass: its number is spent, unless it passed at another try. */
    STATEFUL(spend_given, session_version, pair_t, bit<16>, bit<32>, meta.latest, hdr.netcraq.session, ,
             if (HIGH(v) == hdr.netcraq.request) { rv = LOW(v); }
             else { rv = 0; LOW(v) = 0; HIGH(v) = hdr.netcraq.request; })
    @hidden action none_given() {
        meta.latest = 0;
    }
    @hidden table given {
        key = {
            meta.op: ternary;
            meta.placed: ternary;
            meta.session_class: ternary;
            meta.request_state: ternary;
            meta.latest_state: ternary;
            meta.version: ternary;
        }
        actions = { put_given; get_given; learn_given; spend_given; none_given; NoAction; }
        const entries = {
            (chip_op_t.ASSIGN, 0, _, _, _, _): NoAction();
            (chip_op_t.CAS, 0, _, _, _, _): NoAction();
            (chip_op_t.ASSIGN, _, SESSION_NONE, _, _, _): none_given();
            (chip_op_t.CAS, _, SESSION_NONE, _, _, _): none_given();
            (chip_op_t.STORE, _, SESSION_NONE, _, _, _): NoAction();
            (chip_op_t.COMMIT, _, SESSION_NONE, _, _, _): NoAction();
            (chip_op_t.ACK, _, SESSION_NONE, _, _, _): NoAction();
            (chip_op_t.ACK, _, SESSION_BEYOND, _, _, _): NoAction();
            (chip_op_t.RECORD, _, SESSION_NONE, _, _, _): NoAction();
            (chip_op_t.RECORD, _, SESSION_BEYOND, _, _, _): NoAction();
            (chip_op_t.SYNC_SESSION, _, SESSION_NONE, _, _, _): NoAction();
            (chip_op_t.SYNC_SESSION, _, SESSION_BEYOND, _, _, _): NoAction();
            (chip_op_t.SESSION_ANEW, _, SESSION_NONE, _, _, _): NoAction();
            (chip_op_t.SESSION_ANEW, _, SESSION_BEYOND, _, _, _): NoAction();
            (chip_op_t.FETCH_SESSION, _, SESSION_NONE, _, _, _): NoAction();
            (chip_op_t.FETCH_SESSION, _, SESSION_BEYOND, _, _, _): NoAction();
            (chip_op_t.ASSIGN, _, _, REQUEST_NEW, _, _): put_given();
            (chip_op_t.ASSIGN, _, _, REQUEST_OLD, _, _): get_given();
            (chip_op_t.CAS, _, _, REQUEST_NEW, CAS_PASSED, _): put_given();
            (chip_op_t.CAS, _, _, REQUEST_NEW, _, _): spend_given();
            (chip_op_t.STORE, _, _, REQUEST_NEW, _, _): put_given();
            (chip_op_t.STORE, _, _, REQUEST_OLD, _, _): learn_given();
            (chip_op_t.COMMIT, _, _, REQUEST_NEW, _, _): put_given();
            (chip_op_t.COMMIT, _, _, REQUEST_OLD, _, _): learn_given();
            (chip_op_t.ACK, _, _, REQUEST_NEW, _, _): put_given();
            (chip_op_t.ACK, _, _, REQUEST_OLD, _, _): learn_given();
            (chip_op_t.RECORD, _, _, REQUEST_NEW, _, _): put_given();
            (chip_op_t.RECORD, _, _, REQUEST_OLD, _, _): learn_given();
            (chip_op_t.SYNC_SESSION, _, _, REQUEST_NEW, _, _): put_given();
            (chip_op_t.SYNC_SESSION, _, _, REQUEST_OLD, _, 0): NoAction();
            (chip_op_t.SYNC_SESSION, _, _, REQUEST_OLD, _, _): learn_given();
            (chip_op_t.SESSION_ANEW, _, _, 2, _, _): put_given();
            (chip_op_t.SESSION_ANEW, _, _, 4, _, _): put_given();
            (chip_op_t.FETCH_SESSION, _, _, _, _, _): get_given();
        }
        const default_action = NoAction();
    }

    /* By slot: the request and the session of the newest accepted write. */
    CHIP_REGISTER(bit<32>, slot_t, SLOTS) writer_request;
    STATEFUL_WRITE(put_writer_request, writer_request, bit<32>, slot_t, meta.slot, v = hdr.netcraq.request;)
    STATEFUL_WRITE(clear_writer_request, writer_request, bit<32>, slot_t, meta.slot, v = 0;)
    STATEFUL(get_writer_request, writer_request, bit<32>, slot_t, bit<32>, hdr.netcraq.request, meta.slot, , rv = v;)
    CHIP_REGISTER(bit<16>, slot_t, SLOTS) writer_session;
    STATEFUL_WRITE(put_writer_session, writer_session, bit<16>, slot_t, meta.slot, v = hdr.netcraq.session;)
    STATEFUL_WRITE(clear_writer_session, writer_session, bit<16>, slot_t, meta.slot, v = 0;)
    STATEFUL(get_writer_session, writer_session, bit<16>, slot_t, bit<16>, hdr.netcraq.session, meta.slot, , rv = v;)

#define WRITER_KEYS \
            meta.op: ternary; \
            meta.placed: ternary; \
            hdr.netcraq.KV_OP: ternary; \
            hdr.netcraq.flags: ternary; \
            meta.request_state: ternary; \
            meta.latest_state: ternary; \
            meta.version: ternary;
/* A reply to a reader does not say who wrote. */
#define WRITER_ENTRIES(PUT, CLEAR, GET) \
            (_, 0, _, _, _, _, _): NoAction(); \
            (chip_op_t.ASSIGN, _, _, _, REQUEST_NEW, _, 0): NoAction(); \
            (chip_op_t.ASSIGN, _, _, _, REQUEST_NEW, _, _): PUT(); \
            (chip_op_t.CAS, _, _, _, REQUEST_NEW, CAS_PASSED, _): PUT(); \
            (chip_op_t.STORE, _, _, _, _, LATEST_RAISED, _): PUT(); \
            (chip_op_t.COMMIT, _, _, _, _, LATEST_RAISED, _): PUT(); \
            (chip_op_t.ACK, _, _, _, _, LATEST_RAISED, _): PUT(); \
            (chip_op_t.LEARN, _, kv_op_t.SYNC, _, _, LATEST_RAISED, _): PUT(); \
            (chip_op_t.LEARN, _, _, _, _, LATEST_RAISED, _): CLEAR(); \
            (chip_op_t.FETCH, _, _, NEWEST &&& NEWEST, _, _, _): GET();
    @hidden table writer_of_request {
        key = { WRITER_KEYS }
        actions = { put_writer_request; clear_writer_request; get_writer_request; NoAction; }
        const entries = { WRITER_ENTRIES(put_writer_request, clear_writer_request, get_writer_request) }
        const default_action = NoAction();
    }
    @hidden table writer_of_session {
        key = { WRITER_KEYS }
        actions = { put_writer_session; clear_writer_session; get_writer_session; NoAction; }
        const entries = { WRITER_ENTRIES(put_writer_session, clear_writer_session, get_writer_session) }
        const default_action = NoAction();
    }
    @hidden action count_write() {
        COUNT_SLOT(slot_writes);
    }
    @hidden table count_writes {
        key = {
            meta.op: ternary;
            meta.request_state: ternary;
            meta.latest_state: ternary;
            meta.version: ternary;
        }
        actions = { count_write; NoAction; }
        const entries = {
            (chip_op_t.ASSIGN, REQUEST_NEW, _, 0): NoAction();
            (chip_op_t.ASSIGN, REQUEST_NEW, _, _): count_write();
            (chip_op_t.CAS, REQUEST_NEW, CAS_PASSED, _): count_write();
            (chip_op_t.STORE, _, LATEST_RAISED, _): count_write();
            (chip_op_t.COMMIT, _, LATEST_RAISED, _): count_write();
        }
        const default_action = NoAction();
    }

    apply {
        committed.apply();
        given.apply();
        writer_of_request.apply();
        writer_of_session.apply();
        count_writes.apply();
    }
}

#endif

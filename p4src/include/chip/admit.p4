/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's Admission and Peer: may the packet come in by this port, and does its chain send such
 * a message this way? One table says both, since all that it must know is there after the first
 * stage. Its entries are in the order of admission.p4 and peer.p4; the first that matches counts.
 */
#ifndef NETCRAQ_CHIP_ADMIT_P4
#define NETCRAQ_CHIP_ADMIT_P4

#include "metadata.p4"
#include "../events.p4"

control ChipAdmit(in headers_t hdr, inout chip_metadata_t meta) {
    @hidden action refuse(bit<8> why) {
        meta.refused = why;
    }
    @hidden action admit() {
    }

    @hidden table admission {
        key = {
            hdr.netcraq.KV_OP: ternary;
            meta.trust: ternary;
            meta.colour: ternary;
            meta.sound: ternary;
            meta.ports: ternary;
            hdr.netcraq.flags: ternary;
            meta.session_class: ternary;
            meta.principal: ternary;
            meta.known: ternary;
            meta.service_difference: ternary;
            meta.placed: ternary;
            meta.has_store: ternary;
            meta.store_difference: ternary;
            meta.from_predecessor: ternary;
            meta.from_tail: ternary;
            meta.from_member: ternary;
        }
        actions = { refuse; admit; }
        const entries = {
            /* Any packet. */
            (_, TRUST_CLOSED, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_CLOSED_PORT);
            (_, TRUST_HOST, RED, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_RATE);
            (_, _, _, 0, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            /* READ. */
            (kv_op_t.READ, _, _, _, 0 &&& 2, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.READ, TRUST_HOST, _, _, _, 0 &&& ~EVENTUAL, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.READ, TRUST_HOST, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.READ, TRUST_FABRIC, _, _, _, 0 &&& ~(EVENTUAL | DIRTY_FORWARDED), _, CONTROLLER, _,
             _, _, _, _, _, _, 0):
                refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.READ, _, _, _, _, 0 &&& ~(EVENTUAL | DIRTY_FORWARDED), _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.READ, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            /* WRITE. */
            (kv_op_t.WRITE, _, _, _, 0 &&& 2, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.WRITE, TRUST_HOST, _, _, _, 0, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.WRITE, TRUST_HOST, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.WRITE, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.WRITE, _, _, _, _, STAMPED &&& STAMPED, _, _, _, _, _, _, _, 0, _, _): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.WRITE, _, _, _, _, STAMPED &&& STAMPED, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.WRITE, _, _, _, _, 0 &&& ~TO_HEAD, _, CONTROLLER, _, _, _, _, _, _, _, 0):
                refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.WRITE, _, _, _, _, 0 &&& ~TO_HEAD, _, CONTROLLER, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.WRITE, _, _, _, _, 0 &&& ~TO_HEAD, SESSION_CONTROLLER, _, _, _, _, _, _, _, _, _):
                refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.WRITE, _, _, _, _, 0 &&& ~TO_HEAD, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.WRITE, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            /* CAS. */
            (kv_op_t.CAS, _, _, _, 0 &&& 2, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.CAS, TRUST_HOST, _, _, _, 0, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.CAS, TRUST_HOST, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.CAS, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.CAS, _, _, _, _, STAMPED &&& STAMPED, _, _, _, _, _, _, _, 0, _, _): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.CAS, _, _, _, _, STAMPED &&& STAMPED, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.CAS, _, _, _, _, 0 &&& ~TO_HEAD, _, CONTROLLER, _, _, _, _, _, _, _, 0):
                refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.CAS, _, _, _, _, 0 &&& ~TO_HEAD, _, CONTROLLER, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.CAS, _, _, _, _, 0 &&& ~TO_HEAD, SESSION_CONTROLLER, _, _, _, _, _, _, _, _, _):
                refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.CAS, _, _, _, _, 0 &&& ~TO_HEAD, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.CAS, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            /* READ_REPLY. */
            (kv_op_t.READ_REPLY, _, _, _, 0 &&& 1, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.READ_REPLY, TRUST_HOST, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.READ_REPLY, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, CONTROLLER, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, _, 1, 0, _, _, _, _, _, 0): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, _, 1, 0, _, _, _, _, _, _): admit();
            (kv_op_t.READ_REPLY, _, _, _, _, STATUS_NO_CHAIN, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, _, _, _, 0, 1, 0, _, _, _): admit();
            (kv_op_t.READ_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_NOT_PEER);
            /* WRITE_REPLY. */
            (kv_op_t.WRITE_REPLY, _, _, _, 0 &&& 1, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.WRITE_REPLY, TRUST_HOST, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.WRITE_REPLY, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.WRITE_REPLY, _, _, _, _, _, _, CONTROLLER, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.WRITE_REPLY, _, _, _, _, _, _, _, 1, 0, _, _, _, _, _, 0): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.WRITE_REPLY, _, _, _, _, _, _, _, 1, 0, _, _, _, _, _, _): admit();
            (kv_op_t.WRITE_REPLY, _, _, _, _, STATUS_NO_CHAIN, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.WRITE_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_NOT_PEER);
            /* CAS_REPLY. */
            (kv_op_t.CAS_REPLY, _, _, _, 0 &&& 1, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.CAS_REPLY, TRUST_HOST, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.CAS_REPLY, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.CAS_REPLY, _, _, _, _, _, _, CONTROLLER, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.CAS_REPLY, _, _, _, _, _, _, _, 1, 0, _, _, _, _, _, 0): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.CAS_REPLY, _, _, _, _, _, _, _, 1, 0, _, _, _, _, _, _): admit();
            (kv_op_t.CAS_REPLY, _, _, _, _, STATUS_NO_CHAIN, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.CAS_REPLY, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_NOT_PEER);
            /* ACK. */
            (kv_op_t.ACK, _, _, _, 0 &&& 2, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.ACK, TRUST_HOST, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.ACK, TRUST_FABRIC, _, _, _, _, _, _, _, _, _, _, _, _, 0, _): refuse(EVENT_DROP_NOT_PEER);
            (kv_op_t.ACK, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            /* What only the controller sends. */
            (kv_op_t.SYNC, _, _, _, 0 &&& 2, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.SYNC, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.SYNC, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.LEASE, _, _, _, 0 &&& 2, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.LEASE, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.LEASE, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
            (kv_op_t.FETCH, _, _, _, 0 &&& 2, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_MALFORMED);
            (kv_op_t.FETCH, TRUST_CONTROLLER, _, _, _, _, _, _, _, _, _, _, _, _, _, _): admit();
            (kv_op_t.FETCH, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(EVENT_DROP_UNTRUSTED);
        }
        const default_action = refuse(EVENT_DROP_UNKNOWN_OP);
    }
    @hidden action wrong_source() {
        meta.refused = EVENT_DROP_SOURCE;
    }

    apply {
        if (meta.source_difference != 0) {
            wrong_source();
        } else {
            admission.apply();
        }
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's Reply: the packet is made what the stages before have decided that it is.
 */
#ifndef NETCRAQ_CHIP_REPLY_P4
#define NETCRAQ_CHIP_REPLY_P4

#include "metadata.p4"
#include "../events.p4"

control ChipReply(inout headers_t hdr, inout chip_metadata_t meta, TRAFFIC_PARAMETERS) {
    SLOT_COUNTER(slot_reads);
    SLOT_COUNTER(slot_forwards);

#define BECOME_ANSWER \
        hdr.netcraq.KV_OP = meta.reply_op; \
        hdr.netcraq.flags = meta.status; \
        hdr.netcraq.epoch = meta.epoch; \
        hdr.udp.dst_port = hdr.udp.src_port; \
        hdr.udp.src_port = NETCRAQ_PORT; \
        hdr.udp.checksum = 0; \
        hdr.ipv4.ttl = 64;
#define FORWARD_TO(ADDRESS) \
        hdr.ipv4.dst = ADDRESS; \
        hdr.netcraq.flags = hdr.netcraq.flags | meta.status; \
        hdr.udp.checksum = 0;

    @hidden action answer() {
        BECOME_ANSWER
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = meta.service_addr;
    }
    @hidden action answer_from_here() {
        BECOME_ANSWER
        ipv4_addr_t asked = hdr.ipv4.dst;
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = asked;
    }
    @hidden action answer_controller() {
        BECOME_ANSWER
        TM_PORT = CPU_PORT;
        meta.routed = 1;
    }
    @hidden action forward_to_head() {
        FORWARD_TO(meta.head_addr)
    }
    @hidden action forward_to_next() {
        FORWARD_TO(meta.next_addr)
    }
    @hidden action forward_to_tail() {
        FORWARD_TO(meta.tail_addr)
    }
    @hidden action forward_to_store() {
        FORWARD_TO(meta.store_addr)
    }
    @hidden action drop() {
        TM_DROP = TM_DROPPED;
        meta.routed = 1;
    }
    @hidden action again() {
        TM_RESUBMIT = TM_RESUBMITTED;
        meta.again = 1;
        meta.routed = 1;
    }
    @hidden action acknowledge() {
        hdr.netcraq.KV_OP = kv_op_t.ACK;
        hdr.netcraq.flags = 0;
        hdr.ipv4.dst = meta.service_addr;
        hdr.udp.checksum = 0;
        TM_GROUP = meta.ack_group;
        hdr.ipv4.ttl = hdr.ipv4.ttl |-| ACK_HOP;
        meta.routed = 1;
        meta.passes_ack = 1;
    }
    /* An ACK goes on down the tree. reply.p4 says why a hop of another configuration costs more. */
    @hidden action pass_ack() {
        TM_GROUP = meta.ack_group;
        hdr.ipv4.ttl = hdr.ipv4.ttl |-| ACK_HOP;
        meta.routed = 1;
        meta.passes_ack = 1;
    }
    @hidden action pass_ack_of_another_epoch() {
        TM_GROUP = meta.ack_group;
        hdr.ipv4.ttl = hdr.ipv4.ttl |-| ACK_HOP_OF_ANOTHER_EPOCH;
        meta.routed = 1;
        meta.passes_ack = 1;
    }
    @hidden table reply {
        key = {
            meta.verdict: ternary;
            hdr.netcraq.KV_OP: ternary;
            meta.epoch_difference: ternary;
        }
        actions = { answer; answer_from_here; answer_controller; forward_to_head; forward_to_next; forward_to_tail;
                    forward_to_store; drop; again; acknowledge; pass_ack; pass_ack_of_another_epoch; NoAction; }
        const entries = {
            (chip_verdict_t.ANSWER, _, _): answer();
            (chip_verdict_t.ANSWER_FROM_HERE, _, _): answer_from_here();
            (chip_verdict_t.ANSWER_CONTROLLER, _, _): answer_controller();
            (chip_verdict_t.FORWARD_TO_HEAD, _, _): forward_to_head();
            (chip_verdict_t.FORWARD_TO_NEXT, _, _): forward_to_next();
            (chip_verdict_t.FORWARD_TO_TAIL, _, _): forward_to_tail();
            (chip_verdict_t.FORWARD_TO_STORE, _, _): forward_to_store();
            (chip_verdict_t.DROP, _, _): drop();
            (chip_verdict_t.AGAIN, _, _): again();
            (chip_verdict_t.ACKNOWLEDGE, _, _): acknowledge();
            (chip_verdict_t.PASS, kv_op_t.ACK, 0): pass_ack();
            (chip_verdict_t.PASS, kv_op_t.ACK, _): pass_ack_of_another_epoch();
        }
        const default_action = NoAction();
    }

    /* A slot that was never written and a deleted one hold no value. */
    @hidden action hold_nothing() {
        hdr.netcraq.length = TOMBSTONE;
    }
    @hidden action find_nothing() {
        hdr.netcraq.length = TOMBSTONE;
        hdr.netcraq.flags = STATUS_NOT_FOUND;
        meta.event = EVENT_READ_NOT_FOUND;
    }
    @hidden table tombstone {
        key = {
            meta.cell_op: exact;
            meta.op: ternary;
            hdr.netcraq.version: ternary;
            hdr.netcraq.length: ternary;
        }
        actions = { hold_nothing; find_nothing; NoAction; }
        const entries = {
            (CELL_READ, chip_op_t.READ, 0, _): find_nothing();
            (CELL_READ, chip_op_t.READ, _, TOMBSTONE): find_nothing();
            (CELL_READ, _, 0, _): hold_nothing();
        }
        const default_action = NoAction();
    }

    @hidden action count_read() {
        COUNT_SLOT(slot_reads);
    }
    @hidden table count_reads {
        key = {
            meta.op: exact;
            meta.cell_op: exact;
        }
        actions = { count_read; NoAction; }
        const entries = { (chip_op_t.READ, CELL_READ): count_read(); }
        const default_action = NoAction();
    }
    @hidden action count_forward() {
        COUNT_SLOT(slot_forwards);
    }
    @hidden table count_forwards {
        key = {
            meta.op: exact;
            meta.placed: exact;
            meta.verdict: exact;
        }
        actions = { count_forward; NoAction; }
        const entries = { (chip_op_t.READ, 1, chip_verdict_t.FORWARD_TO_TAIL): count_forward(); }
        const default_action = NoAction();
    }

    apply {
        reply.apply();
        tombstone.apply();
        count_reads.apply();
        count_forwards.apply();
    }
}

#endif

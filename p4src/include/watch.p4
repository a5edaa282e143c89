/* SPDX-License-Identifier: Apache-2.0
 *
 *                     ┌───────────────┐  epoch matches  ┌─────────────┐
 *   ACK, write reply, │ watched_chain │────────────────▶│ watched_key │──▶ the tree that also reaches watchers
 *   commit ──────────▶└───────────────┘                 └─────────────┘
 *                          otherwise: the chain's own tree
 *
 * A chain with watchers has a second ACK tree, which reaches the watchers' switches as well as the
 * members. Acknowledgements of watched keys take the second tree. Each switch decides that from its
 * own tables. If the tables of two switches differ, a watcher may miss a notification, and finds
 * the change by reading. Members miss no ACK, because both trees reach them. A key without watchers
 * costs no packet, and a chain without watchers costs one table lookup.
 */
#ifndef NETCRAQ_WATCH_P4
#define NETCRAQ_WATCH_P4

#include "headers.p4"

control Watch(in headers_t hdr, inout metadata_t meta) {
    bool of_this_epoch = false;
    bit<16> ack_group = 0;
    bit<16> reply_group = 0;

    @id(0x0172D8B5)
    @action_restriction("watch_ack_group != 0 && watch_ack_group < 32768 && watch_reply_group < 32768")
    action watch_groups(@id(1) bit<16> epoch, @id(2) bit<16> watch_ack_group, @id(3) bit<16> watch_reply_group) {
        of_this_epoch = epoch == meta.chain.epoch;
        ack_group = watch_ack_group;
        reply_group = watch_reply_group;
    }
    @id(0x01C95E02)
    action no_watch() {
    }
    /* The multicast groups of a chain's second tree. They count only while their epoch is the one
     * in chain_config, so the two tables need not change together. */
    @id(0x026F40A3)
    table watched_chain {
        key = {
            CHAIN_OF(hdr.netcraq.KEY_ID): exact @id(1) @name("chain");
        }
        actions = {
            watch_groups;
            @defaultonly no_watch;
        }
        const default_action = no_watch();
        size = 256;
    }

    @id(0x018A1B3E)
    action watched() {
        meta.watched = true;
        meta.chain.ack_group = ack_group;
        meta.chain.reply_group = reply_group;
    }
    @id(0x0135F7C8)
    action unwatched() {
    }
    @id(0x0254E80D)
    table watched_key {
        key = {
            hdr.netcraq.KEY_ID: exact @id(1) @name("KEY_ID");
        }
        actions = {
            watched;
            @defaultonly unwatched;
        }
        const default_action = unwatched();
        size = 16384;
    }

    apply {
        bool commits = meta.is_local && meta.is_tail &&
                       (hdr.netcraq.KV_OP == kv_op_t.WRITE || hdr.netcraq.KV_OP == kv_op_t.CAS);
        if (meta.chain.known && !meta.hearsay && (commits || hdr.netcraq.KV_OP == kv_op_t.ACK ||
                                 hdr.netcraq.KV_OP == kv_op_t.WRITE_REPLY ||
                                 hdr.netcraq.KV_OP == kv_op_t.CAS_REPLY)) {
            watched_chain.apply();
            if (of_this_epoch) {
                watched_key.apply();
            }
        }
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 *                     ┌───────────────┐  this epoch's groups  ┌─────────────┐
 *   ACK, write reply, │ watched_chain │──────────────────────▶│ watched_key │──▶ the tree that reaches those who watch, too
 *   commit ──────────▶└───────────────┘                       └─────────────┘
 *                          no: the chain's own tree, as for a key that nobody watches
 *
 * A chain that somebody watches has a second tree, which reaches the switches of watchers beside
 * the members. Acknowledgements of watched keys go down that one, at each switch by itself: what
 * one knows of watches and another does not is lost to watchers, who find it by reading, and never
 * to members, which both trees reach. Keys that nobody watches cost no packet, and chains that
 * nobody watches one look.
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
    /* The groups of an epoch stand for its tree: beside chain_config's of another they count for
     * nothing. So the two need not change together. */
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

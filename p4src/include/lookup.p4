/* SPDX-License-Identifier: Apache-2.0
 *
 *   ┌───────────────┐  for this switch?  ┌──────────────┐   ┌───────────┐
 *   │ local_address │───────────────────▶│ chain_config │──▶│ key_index │──▶ Peer
 *   └───────────────┘                    └──────────────┘   └───────────┘
 *                      requests to other switches skip chain_config and key_index
 *
 * Looks up the control plane's entries for the packet's address, chain and key.
 */
#ifndef NETCRAQ_LOOKUP_P4
#define NETCRAQ_LOOKUP_P4

#include "headers.p4"

control Lookup(in headers_t hdr, inout metadata_t meta) {
    @id(0x01DE2FCF)
    action set_local() {
        meta.is_local = true;
    }
    @id(0x01E2C8EE)
    action pass_through() {
    }
    /* This switch's own address, and the service addresses of the chains it is a member of. */
    @id(0x02FA372A)
    @entry_restriction("ipv4_dst != 0")
    table local_address {
        key = {
            hdr.ipv4.dst: exact @id(1) @name("ipv4_dst") @format(IPV4_ADDRESS);
        }
        actions = {
            set_local;
            pass_through;
        }
        const default_action = pass_through();
        size = 512;
    }

    /* An address or group that the chain does not have is 0. BMv2 reserves groups from 32768 on. */
    @id(0x0151E379)
    @action_restriction("role <= 5 && ack_group < 32768 && reply_group < 32768")
    action set_chain(@id(1) role_t role,
                     @id(2) bit<1> frozen,
                     @id(3) bit<1> lease_required,
                     @id(4) bit<16> epoch,
                     @id(5) @format(IPV4_ADDRESS) ipv4_addr_t head_addr,
                     @id(6) @format(IPV4_ADDRESS) ipv4_addr_t next_addr,
                     @id(7) @format(IPV4_ADDRESS) ipv4_addr_t tail_addr,
                     @id(8) @format(IPV4_ADDRESS) ipv4_addr_t service_addr,
                     @id(9) bit<16> ack_group,
                     @id(10) bit<16> reply_group) {
        meta.chain.known = true;
        meta.chain.role = role;
        meta.chain.frozen = frozen;
        meta.chain.lease_required = lease_required;
        meta.chain.epoch = epoch;
        meta.chain.head_addr = head_addr;
        meta.chain.next_addr = next_addr;
        meta.chain.tail_addr = tail_addr;
        meta.chain.service_addr = service_addr;
        meta.chain.ack_group = ack_group;
        meta.chain.reply_group = reply_group;
    }
    @id(0x01FF1463)
    action no_chain() {
        meta.chain.known = false;
    }
    /* This switch's configuration for each chain. One entry holds all of it, so the switch changes
     * to a new configuration between two packets. A switch that is not a member has an entry with
     * role NONE: it sends reads to the tail and writes to the head, and passes acknowledgements on
     * if the tree leads through it. */
    @id(0x02872F65)
    table chain_config {
        key = {
            CHAIN_OF(hdr.netcraq.KEY_ID): exact @id(1) @name("chain");
        }
        actions = {
            set_chain;
            no_chain;
        }
        const default_action = no_chain();
        size = 256;
    }

    @id(0x01C27C08)
    @action_restriction(TEXT_OF(slot < SLOTS && realm != 0))
    action set_slot(@id(1) bit<32> slot, @id(2) principal_t realm) {
        meta.placed = true;
        meta.slot = slot;
        meta.realm = realm & REALM;
        meta.closed = realm[15:15];
    }
    @id(0x017CC0DF)
    action not_placed() {
    }
    @id(0x01CE01C3)
    @action_restriction("addr != 0")
    action backing_store(@id(1) @format(IPV4_ADDRESS) ipv4_addr_t addr) {
        meta.store_addr = addr;
    }
    /* The slot of each key; a slot has one key. The highest bit of `realm` marks the key as closed.
     * The value 0x8000, closed and without a realm, hides the key. The default action may name a
     * backing store, which gets READs of all other keys. */
    @id(0x0207D580)
    table key_index {
        key = {
            hdr.netcraq.KEY_ID: exact @id(1) @name("KEY_ID");
        }
        actions = {
            set_slot;
            @defaultonly not_placed;
            @defaultonly backing_store;
        }
        default_action = not_placed();
        size = SLOTS;
    }

    apply {
        local_address.apply();
        bool request = hdr.netcraq.KV_OP == kv_op_t.READ || hdr.netcraq.KV_OP == kv_op_t.WRITE ||
                       hdr.netcraq.KV_OP == kv_op_t.CAS;
        /* A request to another switch only passes, so this switch's entries for its key do not
         * matter. */
        if (meta.is_local || !request) {
            chain_config.apply();
            key_index.apply();
        }
        meta.is_head = meta.chain.role == role_t.HEAD || meta.chain.role == role_t.HEAD_TAIL;
        meta.is_tail = meta.chain.role == role_t.TAIL || meta.chain.role == role_t.HEAD_TAIL;
        meta.is_member = meta.is_head || meta.is_tail || meta.chain.role == role_t.REPLICA;
    }
}

#endif

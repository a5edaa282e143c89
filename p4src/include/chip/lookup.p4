/* SPDX-License-Identifier: Apache-2.0
 *
 * The chip's first stage: all that is looked up by the packet only, and, by exclusive or with what
 * a table says, what it differs in. The entries are those of admission.p4, lookup.p4, peer.p4 and
 * watch.p4; docs/reference/hardware.md says which parameters are more.
 */
#ifndef NETCRAQ_CHIP_LOOKUP_P4
#define NETCRAQ_CHIP_LOOKUP_P4

#include "metadata.p4"

/* Who is behind the port, and may it use the session? */
control ChipPort(in headers_t hdr, inout chip_metadata_t meta) {
    @id(0x14B2FC52) METER(512) host_rate;

    @id(0x0142FD43)
    action closed_port() {
        meta.trust = TRUST_CLOSED;
    }
    @id(0x010AC89C)
    action host_port(principal_t principal, @format(IPV4_ADDRESS) ipv4_addr_t address) {
        meta.trust = TRUST_HOST;
        meta.principal = principal;
        meta.source_difference = hdr.ipv4.src ^ address;
    }
    @id(0x014DAEA7)
    action open_host_port(principal_t principal, @format(IPV4_ADDRESS) ipv4_addr_t address) {
        meta.trust = TRUST_HOST;
        meta.any_session = 1;
        meta.principal = principal;
        meta.source_difference = hdr.ipv4.src ^ address;
    }
    /* A host whose address is not known. */
    @id(0x01F3A7B1)
    action host_port_of_any_address(principal_t principal) {
        meta.trust = TRUST_HOST;
        meta.principal = principal;
    }
    @id(0x0184C2D9)
    action open_host_port_of_any_address(principal_t principal) {
        meta.trust = TRUST_HOST;
        meta.any_session = 1;
        meta.principal = principal;
    }
    @id(0x01DF5671)
    action fabric_port() {
        meta.trust = TRUST_FABRIC;
        meta.principal = hdr.ipv4.identification;
    }
    @id(0x0236A5E3)
    table port_trust {
        key = { meta.ingress_port: exact @name("ingress_port"); }
        actions = { closed_port; host_port; open_host_port; host_port_of_any_address; open_host_port_of_any_address;
                    fabric_port; }
        const default_action = closed_port();
        size = 512;
    }
    @hidden action controller_port() {
        meta.trust = TRUST_CONTROLLER;
        meta.principal = CONTROLLER;
    }

    @id(0x01B111EF)
    action leased_to() {
        meta.leased = 1;
    }
    @id(0x021640B4)
    table session_lease {
        key = {
            hdr.netcraq.session: exact @name("session");
            meta.ingress_port: exact @name("port");
        }
        actions = { leased_to; NoAction; }
        const default_action = NoAction();
        size = SESSIONS;
    }

    @hidden action session_is(session_class_t class) {
        meta.session_class = class;
    }
    @hidden table session_class {
        key = { hdr.netcraq.session: ternary; }
        actions = { session_is; }
        const entries = {
            0: session_is(SESSION_NONE);
            CONTROLLER_SESSIONS: session_is(SESSION_CONTROLLER);
            0 &&& ~(CONTROLLER_SESSIONS - 1): session_is(SESSION_CONTROLLER);
            0 &&& ~((bit<16>)SESSIONS - 1): session_is(SESSION_CLIENT);
        }
        const default_action = session_is(SESSION_BEYOND);
    }

    apply {
        if (meta.ingress_port == CPU_PORT) {
            controller_port();
        } else {
            port_trust.apply();
        }
        if (hdr.netcraq.isValid()) {
            METER_COLOUR(host_rate, meta.ingress_port, meta.colour);
            session_lease.apply();
            session_class.apply();
        }
    }
}

control ChipLookup(in headers_t hdr, inout chip_metadata_t meta) {
    @id(0x01DE2FCF)
    action set_local() {
        meta.is_local = 1;
    }
    @id(0x02FA372A)
    table local_address {
        key = { hdr.ipv4.dst: exact @name("ipv4_dst"); }
        actions = { set_local; NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    /* `fresh` and `last` are the first and the last version of the epoch. */
    @id(0x0151E379)
    action set_chain(bit<3> role, bit<1> frozen, bit<1> lease_required, bit<16> epoch,
                     @format(IPV4_ADDRESS) ipv4_addr_t head_addr, @format(IPV4_ADDRESS) ipv4_addr_t next_addr,
                     @format(IPV4_ADDRESS) ipv4_addr_t tail_addr, @format(IPV4_ADDRESS) ipv4_addr_t service_addr,
                     MulticastGroupId_t ack_group, MulticastGroupId_t reply_group, bit<32> fresh, bit<32> last) {
        meta.known = 1;
        meta.role = role;
        meta.frozen = frozen;
        meta.lease_required = lease_required;
        meta.epoch = epoch;
        meta.epoch_difference = hdr.netcraq.epoch ^ epoch;
        meta.head_addr = head_addr;
        meta.next_addr = next_addr;
        meta.tail_addr = tail_addr;
        meta.service_addr = service_addr;
        meta.service_difference = hdr.ipv4.src ^ service_addr;
        meta.ack_group = ack_group;
        meta.reply_group = reply_group;
        meta.fresh = fresh;
        meta.last = last;
        meta.room = last |-| hdr.netcraq.version;
    }
    @id(0x02872F65)
    table chain_config {
        key = { hdr.netcraq.KEY_ID[31:24]: exact @name("chain"); }
        actions = { set_chain; NoAction; }
        const default_action = NoAction();
        size = 256;
    }

    @id(0x01A94C17)
    action peer(bit<1> predecessor, bit<1> tail, bit<1> member) {
        meta.from_predecessor = predecessor;
        meta.from_tail = tail;
        meta.from_member = member;
    }
    @id(0x02B35E6D)
    table chain_peer {
        key = {
            hdr.netcraq.KEY_ID[31:24]: exact @name("chain");
            meta.ingress_port: exact @name("ingress_port");
        }
        actions = { peer; }
        default_action = peer(1, 1, 1);
        size = 4096;
    }

    @id(0x01C27C08)
    action set_slot(slot_t slot, principal_t realm, bit<1> closed) {
        meta.placed = 1;
        meta.slot = slot;
        SET_DIRTY_SLOT(slot);
        meta.realm = realm;
        meta.closed = closed;
    }
    @id(0x017CC0DF)
    action not_placed() {
    }
    @id(0x01CE01C3)
    action backing_store(@format(IPV4_ADDRESS) ipv4_addr_t addr) {
        meta.has_store = 1;
        meta.store_addr = addr;
        meta.store_difference = hdr.ipv4.src ^ addr;
    }
    @id(0x0207D580)
    table key_index {
        key = { hdr.netcraq.KEY_ID: exact @name("KEY_ID"); }
        actions = { set_slot; @defaultonly not_placed; @defaultonly backing_store; }
        default_action = not_placed();
        size = SLOTS;
    }

    @id(0x0172D8B5)
    action watch_groups(bit<16> epoch, MulticastGroupId_t watch_ack_group, MulticastGroupId_t watch_reply_group) {
        meta.watch_epoch = epoch;
        meta.watch_ack_group = watch_ack_group;
        meta.watch_reply_group = watch_reply_group;
    }
    @id(0x026F40A3)
    table watched_chain {
        key = { hdr.netcraq.KEY_ID[31:24]: exact @name("chain"); }
        actions = { watch_groups; NoAction; }
        const default_action = NoAction();
        size = 256;
    }
    @id(0x018A1B3E)
    action watched() {
        meta.watched = 1;
    }
    @id(0x0254E80D)
    table watched_key {
        key = { hdr.netcraq.KEY_ID: exact @name("KEY_ID"); }
        actions = { watched; NoAction; }
        const default_action = NoAction();
        size = 16384;
    }

    apply {
        local_address.apply();
        chain_config.apply();
        chain_peer.apply();
        key_index.apply();
        watched_chain.apply();
        watched_key.apply();
        /* A CAS that passes is given the version after the one that it expects. */
        if (hdr.netcraq.KV_OP == kv_op_t.CAS) {
            meta.version = hdr.netcraq.version + 1;
        } else {
            meta.version = hdr.netcraq.version;
        }
        meta.raise = hdr.netcraq.version;
        meta.window = hdr.netcraq.request |-| REQUEST_WINDOW;
        meta.horizon = meta.now + LEASE_HORIZON;
        meta.until = hdr.netcraq.version + hdr.netcraq.request;
    }
}

#endif

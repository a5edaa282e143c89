/* SPDX-License-Identifier: Apache-2.0
 *
 * CRAQ on registers: what this switch does with a NetCRAQ packet, given its role in the packet's chain (docs/protocol.md says it in words).
 *
 *   ┌───────────────┐  ┌──────────────┐  ┌───────────┐
 *   │ local_address │─▶│ chain_config │─▶│ key_index │─▶ the work to do: READ, ASSIGN, STORE, COMMIT, ...
 *   └───────────────┘  └──────────────┘  └───────────┘          │   (requests to other switches: routed on from the first)
 *   ┌───────────────────────────────────────────────────────────┘
 *   ▼
 *   access: may its principal do that in the key's realm? Else the request is answered DENIED, before it touches a register
 *   ┌───────────────────────────────────────────────────────────┘
 *   ▼
 *   lease_expiry ─▶ session_request ─▶ versions ─▶ session_version ─▶ slot_writer ─▶ objects_store
 *   may this        retry? old?        clean?      the version a      who wrote      the value
 *   switch answer?                     newer?      retry had          the newest
 *   ┌───────────────────────────────────────────────────────────┐
 *   ▼                                                           │
 *   answer, send on to next / head / tail, acknowledge ◀────────┘
 *
 * Each register is read and written at most once by a packet, at one index, and no register waits for a later one: each can be one stateful operation of one
 * stage of a switch chip. That is why a CAS compares versions: `versions` alone says whether it passes, and its expected version is gone once it has,
 * so trying it again does no harm.
 */
#ifndef NETCRAQ_CHAIN_P4
#define NETCRAQ_CHAIN_P4

#include "headers.p4"
#include "events.p4"
#include "objects.p4"

/* The work that a packet asks of the registers. */
enum bit<8> work_t {
    NONE    = 0,
    READ    = 1,
    ASSIGN  = 2,     // at the head: an unstamped WRITE or CAS
    STORE   = 3,     // before the tail: a stamped WRITE
    COMMIT  = 4,     // at the tail: a stamped WRITE
    LEARN   = 5,     // ACK, SYNC, or a reply on its way through: commit if newer
    FAIL    = 6,     // at the tail: a stamped CAS, which the head has found to fail
    FETCH   = 7,
    SESSION = 8,     // FETCH and SYNC of a session record
    LEASE   = 9
}

control Chain(inout headers_t hdr, inout metadata_t meta) {
    REGISTER(bit<64>, 256) lease_expiry;               // by chain: until when this switch may answer reads, on its own clock
    REGISTER(bit<32>, SESSIONS) session_request;       // by session: its last request ...
    REGISTER(bit<64>, SESSIONS) session_version;       // ... and the version it was given; 0: it was not executed
    REGISTER(bit<128>, SLOTS) versions;                // by slot: committed (64), latest (64)
    REGISTER(bit<48>, SLOTS) slot_writer;              // by slot: session (16) and request (32) of the newest accepted write
    Objects() objects;

    COUNTER(SLOTS) slot_reads;                         // READs answered here
    COUNTER(SLOTS) slot_forwards;                      // READs sent on to the tail
    COUNTER(SLOTS) slot_writes;                        // versions accepted here

    /* The packet's view of the registers. */
    work_t  work = work_t.NONE;
    bool    lease_live = false;
    bool    use_session = false;
    bool    request_newer = false;
    bool    request_equal = false;
    bit<64> recorded_version = 0;
    bit<64> committed = 0;
    bit<64> latest = 0;
    bool    clean = true;
    bool    newer = false;           // the packet's version is taken over here
    bool    newest = false;          // ... and is the newest that was seen here
    bool    assigned = false;        // the head has given it a new version
    bool    is_head = false;
    bool    is_tail = false;
    bool    is_member = false;
    bool    acknowledges = false;    // a reply that is the ACK, too, on the way that it goes
    bool    touch_object = false;
    bool    fill_object = false;
    bit<32> cell = 0;
    bit<32> read_index = 0;
    bit<32> write_index = 0;
    ipv4_addr_t store_addr = 0;

    action take() {
        meta.taken = true;
    }
    action pass_through() {
    }
    /* This switch's own address, and the service addresses of the chains it is a member of. */
    table local_address {
        key = { hdr.ipv4.dst: exact @name("ipv4_dst"); }
        actions = { take; pass_through; }
        const default_action = pass_through();
        size = 512;
    }

    action set_chain(role_t role, bit<1> frozen, bit<1> lease_required, bit<16> epoch, ipv4_addr_t head_addr, ipv4_addr_t next_addr,
                     ipv4_addr_t tail_addr, ipv4_addr_t service_addr, bit<16> ack_group, bit<16> reply_group) {
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
    action no_chain() {
        meta.chain.known = false;
    }
    /* A whole configuration is one entry, so a switch changes from one to the next between two packets. Switches that are not members have an entry with
     * role NONE: they send reads to the tail and writes to the head, and pass acknowledgements on where the tree runs through them. */
    table chain_config {
        key = { hdr.netcraq.KEY_ID[31:24]: exact @name("chain"); }
        actions = { set_chain; no_chain; }
        const default_action = no_chain();
        size = 256;
    }

    action set_slot(bit<32> slot, principal_t realm) {
        meta.placed = true;
        meta.slot = slot;
        meta.realm = realm & REALM;
        meta.closed = realm[15:15];
    }
    action not_placed() {
    }
    action backing_store(ipv4_addr_t addr) {
        store_addr = addr;
    }
    /* Slots below SLOTS, each for one key; realms are not 0, and have the highest bit set while the key is closed. The default may name a store that READs of other keys are sent to. */
    table key_index {
        key = { hdr.netcraq.KEY_ID: exact @name("KEY_ID"); }
        actions = { set_slot; @defaultonly not_placed; @defaultonly backing_store; }
        default_action = not_placed();
        size = SLOTS;
    }

    bit<1> may_read = 0;
    bit<1> may_write = 0;
    action grant(bit<1> read, bit<1> write) {
        may_read = read;
        may_write = write;
    }
    /* What principals may do in realms other than their own: nothing without an entry. In the realm of its own number a principal may do everything, and nobody has to look. */
    table access {
        key = {
            hdr.ipv4.identification: exact @name("principal");
            meta.realm: exact @name("realm");
        }
        actions = { grant; }
        default_action = grant(0, 0);
        size = 4096;
    }

    @hidden action refuse(bit<8> why) {
        meta.event = why;
        meta.forwarding.drop = true;
    }
    /* Sends the packet on to another member, as the same request. */
    @hidden action send_on(ipv4_addr_t addr, bit<8> flag, bit<8> event) {
        hdr.ipv4.dst = addr;
        hdr.netcraq.flags = hdr.netcraq.flags | flag;
        hdr.udp.checksum = 0;
        meta.event = event;
    }
    /* Makes the packet its own answer. */
    @hidden action answer(kv_op_t op, bit<8> status, bit<8> event) {
        hdr.netcraq.KV_OP = op;
        hdr.netcraq.flags = status;
        hdr.netcraq.epoch = meta.chain.epoch;
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = NETCRAQ_PORT;
        hdr.udp.checksum = 0;
        hdr.ipv4.ttl = 64;
        meta.event = event;
    }
    @hidden action answer_from_service() {
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = meta.chain.service_addr;
    }
    @hidden action answer_from_here() {
        ipv4_addr_t asked = hdr.ipv4.dst;
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = asked;
    }
    @hidden action answer_controller(kv_op_t op, bit<8> status, bit<8> event) {
        answer(op, status, event);
        meta.forwarding.egress_port = CPU_PORT;
        meta.forwarding.routed = true;
    }
    /* The op of the answer to this request. */
    kv_op_t reply_op = kv_op_t.READ_REPLY;

    apply {
        local_address.apply();
        bool request = hdr.netcraq.KV_OP == kv_op_t.READ || hdr.netcraq.KV_OP == kv_op_t.WRITE || hdr.netcraq.KV_OP == kv_op_t.CAS;
        if (meta.taken || !request) {       // a request to another switch only passes: what this one knows of its key does not matter
            chain_config.apply();
            key_index.apply();
        }
        is_head = meta.chain.role == role_t.HEAD || meta.chain.role == role_t.HEAD_TAIL;
        is_tail = meta.chain.role == role_t.TAIL || meta.chain.role == role_t.HEAD_TAIL;
        is_member = is_head || is_tail || meta.chain.role == role_t.REPLICA;
        if (hdr.netcraq.KV_OP == kv_op_t.WRITE) {
            reply_op = kv_op_t.WRITE_REPLY;
        } else if (hdr.netcraq.KV_OP == kv_op_t.CAS) {
            reply_op = kv_op_t.CAS_REPLY;
        }
        if ((hdr.netcraq.flags & BY_CAS) != 0) {
            reply_op = kv_op_t.CAS_REPLY;
        }

        /* ---- Which work? Packets that need no register are answered, sent on or dropped right here. ---- */

        if (hdr.netcraq.KV_OP == kv_op_t.LEASE || hdr.netcraq.KV_OP == kv_op_t.FETCH || hdr.netcraq.KV_OP == kv_op_t.SYNC) {
            /* From the controller (Admission), to this switch whatever the address. */
            if (hdr.netcraq.KV_OP == kv_op_t.LEASE) {
                work = work_t.LEASE;
            } else if ((hdr.netcraq.flags & SESSION) != 0) {
                work = work_t.SESSION;
            } else if (!meta.placed) {
                hdr.netcraq.length = TOMBSTONE;
                if (hdr.netcraq.KV_OP == kv_op_t.FETCH) {
                    answer_controller(kv_op_t.FETCH_REPLY, STATUS_NOT_FOUND, EVENT_FETCH);
                } else {
                    answer_controller(kv_op_t.SYNC_REPLY, STATUS_NOT_FOUND, EVENT_SYNC);
                }
            } else if (hdr.netcraq.KV_OP == kv_op_t.FETCH) {
                work = work_t.FETCH;
            } else {
                work = work_t.LEARN;
            }
        } else if (hdr.netcraq.KV_OP == kv_op_t.ACK) {
            if (!meta.chain.known) {
                refuse(EVENT_DROP_NOT_MEMBER);
            } else if ((is_member || meta.chain.role == role_t.SHADOW) && meta.placed) {
                work = work_t.LEARN;
            } else {
                meta.event = EVENT_TRANSIT;
            }
        } else if (hdr.netcraq.KV_OP == kv_op_t.READ_REPLY || hdr.netcraq.KV_OP == kv_op_t.WRITE_REPLY || hdr.netcraq.KV_OP == kv_op_t.CAS_REPLY) {
            /* Replies on their way to the client: the committed state that they carry is news to a member that missed the ACK. */
            meta.event = EVENT_REPLY_PASSED;
            if (hdr.netcraq.KV_OP != kv_op_t.READ_REPLY && hdr.netcraq.flags == STATUS_OK) {
                /* The tail has sent no ACK the way that this goes: it is the ACK, for this switch and for the branches of the tree that it does not go down. */
                acknowledges = true;
                meta.acknowledge = meta.chain.ack_group != 0;
            }
            if ((is_member || meta.chain.role == role_t.SHADOW) && hdr.netcraq.version != 0 &&
                (hdr.netcraq.flags == STATUS_OK || hdr.netcraq.flags == STATUS_CAS_FAILED || hdr.netcraq.flags == STATUS_NOT_FOUND)) {
                if (meta.placed) {
                    work = work_t.LEARN;
                }
            }
        } else if (meta.refusal != 0) {
            answer(reply_op, meta.refusal, EVENT_BAD_SESSION);
            answer_from_here();
        } else if (!meta.taken) {
            meta.event = EVENT_TRANSIT;
        } else if (!meta.chain.known) {
            answer(reply_op, STATUS_NO_CHAIN, EVENT_NO_CHAIN);
            answer_from_here();
        } else if (hdr.netcraq.KV_OP == kv_op_t.READ) {
            if (!meta.placed && store_addr != 0) {
                send_on(store_addr, 0, EVENT_READ_TO_STORE);
            } else {
                work = work_t.READ;
            }
        } else if ((hdr.netcraq.flags & STAMPED) != 0) {
            if (hdr.netcraq.epoch != meta.chain.epoch) {
                refuse(EVENT_DROP_STALE_EPOCH);
            } else if (!is_member) {
                refuse(EVENT_DROP_NOT_MEMBER);
            } else if (meta.chain.frozen == 1) {
                refuse(EVENT_DROP_FROZEN);
            } else if (hdr.netcraq.session >= SESSIONS) {
                refuse(EVENT_DROP_MALFORMED);
            } else {
                if (!meta.placed) {
                    refuse(EVENT_DROP_NO_SLOT);
                } else if (hdr.netcraq.KV_OP == kv_op_t.CAS) {
                    if (is_tail) {
                        work = work_t.FAIL;
                    } else {
                        send_on(meta.chain.next_addr, 0, EVENT_CAS_TO_TAIL);
                    }
                } else if (is_tail) {
                    work = work_t.COMMIT;
                } else {
                    work = work_t.STORE;
                }
            }
        } else if (!is_head) {
            if ((hdr.netcraq.flags & TO_HEAD) != 0) {
                answer(reply_op, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
                answer_from_service();
            } else {
                send_on(meta.chain.head_addr, TO_HEAD, EVENT_WRITE_TO_HEAD);
            }
        } else if (meta.chain.frozen == 1) {
            answer(reply_op, STATUS_RETRY, EVENT_WRITE_FROZEN);
            answer_from_service();
        } else if (hdr.netcraq.session >= SESSIONS) {
            answer(reply_op, STATUS_BAD_SESSION, EVENT_BAD_SESSION);
            answer_from_service();
        } else {
            work = work_t.ASSIGN;
        }

        /* ---- May this principal? Asked by whoever gives the answer: the head of a write, a member of a read, and again the tail of what comes down to it. ---- */

        if (meta.placed && hdr.ipv4.identification != meta.realm && hdr.ipv4.identification != CONTROLLER &&
            (work == work_t.READ || work == work_t.ASSIGN || work == work_t.COMMIT || work == work_t.FAIL)) {
            access.apply();
            /* A CAS that fails tells the value. */
            bool allowed = (may_read == 1 || hdr.netcraq.KV_OP == kv_op_t.WRITE) && (may_write == 1 || hdr.netcraq.KV_OP == kv_op_t.READ);
            if (!allowed && (work == work_t.READ || work == work_t.ASSIGN)) {
                answer(reply_op, STATUS_DENIED, EVENT_DENIED);
                answer_from_service();
            } else if (!allowed) {
                refuse(EVENT_DENIED);    // the head has let it in: whoever sent it is not told that it is not executed, since a later tail may do it
            }
            if (!allowed) {
                work = work_t.NONE;
            }
        }

        /* While a key is taken out, its deletion is the last write: what came after it would be found at members whose entries are there yet when others have said that there is none. */
        if (work == work_t.ASSIGN && meta.placed && meta.closed == 1 && hdr.ipv4.identification != CONTROLLER) {
            answer(reply_op, STATUS_RETRY, EVENT_WRITE_FROZEN);
            answer_from_service();
            work = work_t.NONE;
        }

        if (work != work_t.NONE) {
            /* ---- lease_expiry ---- */

            if (work == work_t.READ || work == work_t.LEASE || work == work_t.ASSIGN) {
                bit<64> expiry;
                bit<32> lease_index = (bit<32>)hdr.netcraq.KEY_ID[31:24];
                REGISTER_READ(lease_expiry, expiry, lease_index);
                if (work == work_t.LEASE) {
                    if (meta.chain.known && hdr.netcraq.epoch == meta.chain.epoch) {
                        /* Counted from a moment of our own clock that the controller heard from us: however late the packet is, the lease ends when the
                         * controller thinks that it does. */
                        if (hdr.netcraq.request == 0) {
                            expiry = 0;
                        } else if (hdr.netcraq.version + (bit<64>)hdr.netcraq.request > expiry) {
                            expiry = hdr.netcraq.version + (bit<64>)hdr.netcraq.request;
                        }
                        lease_expiry.write(lease_index, expiry);
                        answer_controller(kv_op_t.LEASE_REPLY, STATUS_OK, EVENT_LEASE_RENEWED);
                    } else {
                        answer_controller(kv_op_t.LEASE_REPLY, STATUS_NOT_SERVING, EVENT_LEASE_REFUSED);
                    }
                    hdr.netcraq.request = 0;
                    if (expiry > meta.now) {
                        hdr.netcraq.request = (bit<32>)(expiry - meta.now);
                    }
                    hdr.netcraq.version = meta.now;
                }
                lease_live = meta.chain.lease_required == 0 || meta.now < expiry;
            }

            /* ---- session_request ---- */

            bool session_write = (work == work_t.ASSIGN && meta.placed) || work == work_t.STORE || work == work_t.COMMIT ||
                                 (work == work_t.LEARN && (hdr.netcraq.KV_OP == kv_op_t.ACK || acknowledges)) ||
                                 (work == work_t.SESSION && hdr.netcraq.KV_OP == kv_op_t.SYNC);
            /* The record of a session that is leased anew begins anew; a second copy of the word finds that it is of this lease already. */
            bool anew = work == work_t.SESSION && (hdr.netcraq.flags & NEWEST) != 0;
            bool request_far = false;        // of another lease of the session: neither newer nor a retry
            request_newer = true;
            if (hdr.netcraq.session != 0 && hdr.netcraq.session < SESSIONS && (session_write || work == work_t.SESSION)) {
                use_session = true;
                bit<32> recorded;
                REGISTER_READ(session_request, recorded, (bit<32>)hdr.netcraq.session);
                request_newer = hdr.netcraq.request > recorded;
                request_equal = hdr.netcraq.request == recorded;
                if (request_newer && recorded != 0 && hdr.netcraq.request - recorded > REQUEST_WINDOW) {
                    request_newer = false;
                    request_far = true;
                }
                if (recorded - hdr.netcraq.request <= REQUEST_WINDOW) {
                    anew = false;
                }
                if (session_write && (request_newer || anew)) {
                    session_request.write((bit<32>)hdr.netcraq.session, hdr.netcraq.request);
                }
                if (!session_write) {
                    hdr.netcraq.request = recorded;
                }
            }
            bool request_old = !request_newer && !request_equal;

            /* ---- versions ---- */

            bool may_assign = work == work_t.ASSIGN && (request_newer || (request_equal && hdr.netcraq.KV_OP == kv_op_t.CAS));
            bool full = false;
            if (meta.placed && work != work_t.SESSION && work != work_t.LEASE) {
                bit<128> pair;
                REGISTER_READ(versions, pair, meta.slot);
                committed = pair[127:64];
                latest = pair[63:0];
                clean = committed == latest;
                if (work == work_t.ASSIGN) {
#ifdef PAPER_WRITE_BOUND
                    full = latest[47:0] - committed[47:0] >= DIRTY_CELLS;
#endif
                    assigned = may_assign && !full && (hdr.netcraq.KV_OP == kv_op_t.WRITE || (clean && committed == hdr.netcraq.version));
                    if (assigned) {
                        hdr.netcraq.version = meta.chain.epoch ++ (latest[47:0] + 1);
                        newer = true;
                        newest = true;
                    }
                } else if (work == work_t.STORE) {
                    newer = hdr.netcraq.version > latest;
                    newest = newer;
                } else if (work == work_t.COMMIT || work == work_t.LEARN) {
                    newer = hdr.netcraq.version > committed;
                    newest = hdr.netcraq.version > latest;
                }
                if (newer) {
                    if (newest) {
                        pair[63:0] = hdr.netcraq.version;
                    }
                    if (work == work_t.COMMIT || work == work_t.LEARN || is_tail) {
                        pair[127:64] = hdr.netcraq.version;
                    }
                    versions.write(meta.slot, pair);
                }
            }

            /* ---- session_version ---- */

            if (use_session && (!request_old || !session_write || anew)) {
                REGISTER_READ(session_version, recorded_version, (bit<32>)hdr.netcraq.session);
                bit<64> given = hdr.netcraq.version;
                if ((work == work_t.ASSIGN && !assigned) || (work == work_t.SESSION && given == 0 && !anew)) {
                    given = 0;           // the same request may have been given its version since: at another try, or since this record was fetched
                    if (request_equal) {
                        given = recorded_version;
                    }
                }
                if (session_write) {
                    session_version.write((bit<32>)hdr.netcraq.session, given);
                }
            }

            /* ---- What the head does with a write that it gave no new version ---- */

            bool retried = work == work_t.ASSIGN && use_session && request_equal && !assigned && recorded_version != 0;
            if (retried) {
                hdr.netcraq.version = recorded_version;
            }

            /* ---- slot_writer ---- */

            if (newest) {
                bit<48> writer = hdr.netcraq.session ++ hdr.netcraq.request;
                if (work == work_t.LEARN && hdr.netcraq.KV_OP != kv_op_t.ACK && hdr.netcraq.KV_OP != kv_op_t.SYNC && !acknowledges) {
                    writer = 0;          // a reply to a reader does not say who wrote
                }
                slot_writer.write(meta.slot, writer);
            } else if (work == work_t.FETCH) {
                bit<48> writer;
                REGISTER_READ(slot_writer, writer, meta.slot);
                if ((hdr.netcraq.flags & NEWEST) != 0) {
                    hdr.netcraq.session = writer[47:32];
                    hdr.netcraq.request = writer[31:0];
                }
            }

            /* ---- objects_store ---- */

            bool read_newest = (work == work_t.READ && !clean && (hdr.netcraq.flags & EVENTUAL) == 0) ||
                               (work == work_t.FETCH && !clean && (hdr.netcraq.flags & NEWEST) != 0);
            write_index = 1 + ((bit<32>)hdr.netcraq.version & (DIRTY_CELLS - 1));
            if (read_newest) {
                read_index = 1 + ((bit<32>)latest & (DIRTY_CELLS - 1));
            }
            if (work == work_t.READ) {
                bool eventual = (hdr.netcraq.flags & EVENTUAL) != 0 && is_member;
                bool serve = is_member && (eventual || (lease_live && (clean || is_tail)));
                if (!serve) {
                    if (is_tail || (hdr.netcraq.flags & DIRTY_FORWARDED) != 0) {
                        answer(reply_op, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
                        answer_from_service();
                    } else {
                        send_on(meta.chain.tail_addr, DIRTY_FORWARDED, EVENT_READ_FORWARDED);
                        if (meta.placed) {
                            COUNT(slot_forwards, meta.slot);
                        }
                    }
                } else if (!meta.placed) {
                    hdr.netcraq.version = 0;
                    hdr.netcraq.length = TOMBSTONE;
                    answer(reply_op, STATUS_NOT_FOUND, EVENT_READ_NOT_FOUND);
                    answer_from_service();
                } else {
                    touch_object = true;
                    cell = read_index;
                    hdr.netcraq.version = committed;
                    if (read_newest) {
                        hdr.netcraq.version = latest;
                        answer(reply_op, STATUS_OK, EVENT_READ_DIRTY);
                    } else {
                        answer(reply_op, STATUS_OK, EVENT_READ_CLEAN);
                    }
                    answer_from_service();
                    COUNT(slot_reads, meta.slot);
                }
            } else if (work == work_t.ASSIGN) {
                if (!meta.placed) {
                    /* That a key is not here is an answer about the present, like a read's: it takes a lease. */
                    hdr.netcraq.version = 0;
                    hdr.netcraq.length = TOMBSTONE;
                    if (lease_live) {
                        answer(reply_op, STATUS_NOT_FOUND, EVENT_WRITE_NOT_FOUND);
                    } else {
                        answer(reply_op, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
                    }
                    answer_from_service();
                } else if (request_far) {
                    /* Final for the session, so a head that may be one no more must not say it: its record may be of the lease before. */
                    if (lease_live) {
                        answer(reply_op, STATUS_BAD_SESSION, EVENT_BAD_SESSION);
                    } else {
                        answer(reply_op, STATUS_NOT_SERVING, EVENT_NOT_SERVING);
                    }
                    answer_from_service();
                } else if (request_old) {
                    refuse(EVENT_DROP_OLD_REQUEST);
                } else if (assigned || retried) {
                    if (hdr.netcraq.KV_OP == kv_op_t.CAS) {
                        hdr.netcraq.flags = STAMPED | BY_CAS;
                    } else {
                        hdr.netcraq.flags = STAMPED;
                    }
                    hdr.netcraq.KV_OP = kv_op_t.WRITE;
                    hdr.netcraq.epoch = meta.chain.epoch;
                    touch_object = assigned;
                    fill_object = assigned;
                    if (is_tail) {
                        /* A chain of one: what is accepted is committed. */
                        if (retried && hdr.netcraq.version < committed) {
                            answer(reply_op, STATUS_SUPERSEDED, EVENT_WRITE_SUPERSEDED);
                        } else if (retried) {
                            touch_object = hdr.netcraq.version == committed;
                            answer(reply_op, STATUS_OK, EVENT_WRITE_REPEATED);
                        } else {
                            answer(reply_op, STATUS_OK, EVENT_WRITE_COMMITTED);
                        }
                        answer_from_service();
                    } else {
                        cell = write_index;
                        send_on(meta.chain.next_addr, 0, EVENT_WRITE_ASSIGNED);
                        if (retried) {
                            meta.event = EVENT_WRITE_RETRIED;
                        }
                    }
                    if (assigned) {
                        COUNT(slot_writes, meta.slot);
                    }
                } else if (full || (hdr.netcraq.KV_OP == kv_op_t.WRITE)) {
                    answer(reply_op, STATUS_FULL, EVENT_WRITE_FULL);
                    answer_from_service();
                } else if (!clean) {
                    answer(reply_op, STATUS_RETRY, EVENT_CAS_RETRY);
                    answer_from_service();
                } else if (is_tail) {
                    touch_object = true;
                    hdr.netcraq.version = committed;
                    answer(reply_op, STATUS_CAS_FAILED, EVENT_CAS_FAILED);
                    answer_from_service();
                } else {
                    hdr.netcraq.epoch = meta.chain.epoch;
                    send_on(meta.chain.next_addr, STAMPED, EVENT_CAS_TO_TAIL);
                }
            } else if (work == work_t.STORE) {
                send_on(meta.chain.next_addr, 0, EVENT_WRITE_PASSED);
                if (newer) {
                    touch_object = true;
                    fill_object = true;
                    cell = write_index;
                    meta.event = EVENT_WRITE_STORED;
                    COUNT(slot_writes, meta.slot);
                }
            } else if (work == work_t.COMMIT) {
                if (newer || hdr.netcraq.version == committed) {
                    touch_object = true;
                    fill_object = newer;
                    meta.acknowledge = meta.chain.ack_group != 0;
                    if ((hdr.netcraq.flags & NO_REPLY) != 0) {
                        hdr.netcraq.KV_OP = kv_op_t.ACK;
                        hdr.netcraq.flags = 0;
                        hdr.ipv4.dst = meta.chain.service_addr;
                        hdr.udp.checksum = 0;
                        meta.acknowledge = false;
                        meta.event = EVENT_WRITE_REPEATED;
                    } else {
                        answer(reply_op, STATUS_OK, EVENT_WRITE_REPEATED);
                        answer_from_service();
                    }
                    if (newer) {
                        meta.event = EVENT_WRITE_COMMITTED;
                        COUNT(slot_writes, meta.slot);
                    }
                } else if ((hdr.netcraq.flags & NO_REPLY) != 0) {
                    refuse(EVENT_WRITE_SUPERSEDED);
                } else {
                    answer(reply_op, STATUS_SUPERSEDED, EVENT_WRITE_SUPERSEDED);
                    answer_from_service();
                }
            } else if (work == work_t.LEARN) {
                touch_object = newer;
                fill_object = true;
                if (hdr.netcraq.KV_OP == kv_op_t.SYNC) {
                    answer_controller(kv_op_t.SYNC_REPLY, STATUS_OK, EVENT_SYNC);
                } else if (hdr.netcraq.KV_OP == kv_op_t.ACK) {
                    meta.event = EVENT_ACK_OLD;
                    if (newer) {
                        meta.event = EVENT_ACK_COMMITTED;
                    }
                } else if (newer) {
                    meta.event = EVENT_REPLY_REPAIRED;
                }
            } else if (work == work_t.FAIL) {
                if (!clean || committed == hdr.netcraq.version) {
                    answer(reply_op, STATUS_RETRY, EVENT_CAS_RETRY);
                } else {
                    touch_object = true;
                    hdr.netcraq.version = committed;
                    answer(reply_op, STATUS_CAS_FAILED, EVENT_CAS_FAILED);
                }
                answer_from_service();
            } else if (work == work_t.FETCH) {
                touch_object = true;
                cell = read_index;
                hdr.netcraq.version = committed;
                if (read_newest) {
                    hdr.netcraq.version = latest;
                }
                if (clean) {
                    answer_controller(kv_op_t.FETCH_REPLY, STATUS_OK, EVENT_FETCH);
                } else {
                    answer_controller(kv_op_t.FETCH_REPLY, STATUS_DIRTY, EVENT_FETCH);
                }
            } else if (work == work_t.SESSION) {
                if (session_write) {
                    answer_controller(kv_op_t.SYNC_REPLY, STATUS_OK, EVENT_SYNC);
                } else {
                    hdr.netcraq.version = recorded_version;
                    answer_controller(kv_op_t.FETCH_REPLY, STATUS_OK, EVENT_FETCH);
                }
                if (!use_session) {
                    hdr.netcraq.flags = STATUS_BAD_SESSION;
                }
            }

            if (touch_object) {
                objects.apply(hdr, meta.slot, fill_object, cell);
                /* A slot that was never written and a deleted one hold no value. */
                if (!fill_object && (hdr.netcraq.version == 0 || hdr.netcraq.length == TOMBSTONE)) {
                    hdr.netcraq.length = TOMBSTONE;
                    if (hdr.netcraq.KV_OP == kv_op_t.READ_REPLY) {
                        hdr.netcraq.flags = STATUS_NOT_FOUND;
                        meta.event = EVENT_READ_NOT_FOUND;
                    }
                }
            }
        }

        /* An ACK goes on down the tree. At a leaf it ends, and has counted as what it did here.
         * While a chain changes, trees of two configurations, with different tails, can send it round and multiply it each time. Each round has a
         * switch of another configuration than the ACK's, because one tree alone has no circles; such a hop costs so much that there are few of them. */
        if (hdr.netcraq.KV_OP == kv_op_t.ACK && !meta.forwarding.drop) {
            bit<8> hop = ACK_HOP;
            if (meta.chain.epoch != hdr.netcraq.epoch) {
                hop = ACK_HOP_OF_ANOTHER_EPOCH;
            }
            meta.forwarding.multicast_group = meta.chain.ack_group;
            if (meta.chain.ack_group == 0 || hdr.ipv4.ttl <= hop) {
                meta.forwarding.drop = true;
            } else {
                hdr.ipv4.ttl = hdr.ipv4.ttl - hop;
            }
        }
    }
}

#endif

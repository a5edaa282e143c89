/* SPDX-License-Identifier: Apache-2.0
 *
 * What the chip's controls share of a packet. A field is as narrow as it may be: a chip has few
 * containers. A condition of the chip is a key of a ternary table, so two values that must be equal
 * are there as their difference (exclusive or), which is 0.
 */
#ifndef NETCRAQ_CHIP_METADATA_P4
#define NETCRAQ_CHIP_METADATA_P4

#include "../headers.p4"

typedef bit<SLOT_BITS> slot_t;

/* The cells of a slot. The dirty cells of all slots come first, then the committed ones, so that
 * the index of a cell is bits side by side and nothing is added. */
#if DIRTY_BITS == 2
typedef bit<(SLOT_BITS + 3)> cell_t;
#define CELLS ((4 << SLOT_BITS) + SLOTS)
#define SET_DIRTY_SLOT(SLOT) meta.cell[SLOT_BITS + 1:2] = SLOT[SLOT_BITS - 1:0]
#define COMMITTED_CELL meta.cell = 1w1 ++ 2w0 ++ meta.slot
#define DIRTY_CELL_OF(VERSION) meta.cell[1:0] = VERSION[1:0]
#elif DIRTY_BITS == 0
typedef bit<(SLOT_BITS + 1)> cell_t;
#define CELLS (2 * SLOTS)
#define SET_DIRTY_SLOT(SLOT) meta.cell = 1w0 ++ SLOT[SLOT_BITS - 1:0]
#define COMMITTED_CELL meta.cell = 1w1 ++ meta.slot
#define DIRTY_CELL_OF(VERSION)
#else
#error "DIRTY_BITS of a chip's program must be 0 or 2"
#endif

/* Who is behind the ingress port, as trust_t says it. */
typedef bit<2> chip_trust_t;
const chip_trust_t TRUST_HOST       = 0;
const chip_trust_t TRUST_FABRIC     = 1;
const chip_trust_t TRUST_CONTROLLER = 2;
const chip_trust_t TRUST_CLOSED     = 3;

/* What kind of session a request names. */
typedef bit<2> session_class_t;
const session_class_t SESSION_NONE       = 0;
const session_class_t SESSION_CONTROLLER = 1;
const session_class_t SESSION_CLIENT     = 2;
const session_class_t SESSION_BEYOND     = 3;    // more than the switch has records of

/* What the packet asks of the registers, as chain_op_t says it, but with all that they must know. */
enum bit<4> chip_op_t {
    NONE        = 0,
    READ        = 1,
    ASSIGN      = 2,     // at the head: an unstamped WRITE
    CAS         = 3,     // at the head: an unstamped CAS
    STORE       = 4,
    COMMIT      = 5,
    LEARN       = 6,     // SYNC, or a reply that is not the ACK
    ACK         = 7,     // an ACK, or a reply that is it
    FAIL        = 8,
    FETCH       = 9,
    FETCH_SESSION = 10,
    SYNC_SESSION  = 11,
    SESSION_ANEW  = 12,
    LEASE       = 13,
    LEASE_OTHER = 14,    // of another epoch: it is answered, and moves nothing
    RECORD      = 15     // as ACK, of a later configuration: only the session is recorded
}

enum bit<4> chip_verdict_t {
    PASS              = 0,
    DROP              = 1,
    FORWARD_TO_HEAD   = 2,
    FORWARD_TO_NEXT   = 3,
    FORWARD_TO_TAIL   = 4,
    FORWARD_TO_STORE  = 5,
    ANSWER            = 6,
    ANSWER_FROM_HERE  = 7,
    ANSWER_CONTROLLER = 8,
    ACKNOWLEDGE       = 9,
    AGAIN             = 10    // through ingress again, as it was received: a CAS that a chain of one fails
}

/* What is done with the cell of the value. */
typedef bit<2> cell_op_t;
const cell_op_t CELL_NONE = 0;
const cell_op_t CELL_READ = 1;
const cell_op_t CELL_FILL = 2;

/* Where the route of a packet leads to. */
typedef bit<2> route_t;
const route_t ROUTE_NOT        = 0;    // none was looked up
const route_t ROUTE_PORT       = 1;
const route_t ROUTE_CONTROLLER = 2;
const route_t ROUTE_NONE       = 3;

/* No lease lasts longer than this, in units of the clock: 68 seconds. An end that is farther away is
 * one of before the clock began again, which it does every 78 hours. */
const bit<32> LEASE_HORIZON = 1 << 20;

struct chip_metadata_t {
    /* By the parser. */
    @field_list(0)
    bit<9>          ingress_port;
    bit<32>         now;              // this switch's clock in units of 65,536 ns
    bit<1>          checksum_error;
    bit<2>          ports;            // 2: the destination port is ours; 1: the source port is
    bit<1>          sound;            // the lengths are right, and value has been extracted
    @field_list(0)
    bit<1>          again;            // its second pass through ingress
    bit<1>          options;          // the IPv4 header has options
    /* By the first tables. */
    chip_trust_t    trust;
    bit<1>          any_session;
    bit<1>          leased;
    session_class_t session_class;
    colour_t        colour;
    principal_t     principal;
    bit<32>         source_difference;    // from the address of the host behind the port
    bit<1>          is_local;
    bit<1>          known;
    bit<3>          role;
    bit<1>          frozen;
    bit<1>          lease_required;
    bit<16>         epoch;
    bit<16>         epoch_difference;     // from the packet's
    bit<32>         service_difference;   // of the packet's source
    bit<32>         room;                 // 0: the packet's version is the last of this epoch, or of a later one
    bit<32>         fresh;                // the first version of this epoch
    bit<32>         last;                 // the last version of it
    bit<32>         head_addr;
    bit<32>         next_addr;
    bit<32>         tail_addr;
    bit<32>         service_addr;
    MulticastGroupId_t ack_group;
    MulticastGroupId_t reply_group;
    bit<1>          from_predecessor;
    bit<1>          from_tail;
    bit<1>          from_member;
    bit<1>          placed;
    slot_t          slot;
    principal_t     realm;                // 0 where placed: the key is hidden
    bit<1>          closed;
    bit<1>          has_store;
    bit<32>         store_addr;
    bit<32>         store_difference;     // of the packet's source
    bit<1>          watched;
    bit<16>         watch_epoch;
    MulticastGroupId_t watch_ack_group;
    MulticastGroupId_t watch_reply_group;
    bit<32>         window;               // the oldest request from which the packet's is of the same lease
    bit<32>         horizon;              // no lease ends later
    bit<32>         until;                // the end of the lease that a LEASE asks for
    /* By the tables of the second stage. */
    bit<8>          refused;              // not 0: why Admission drops the packet
    chip_op_t       op;
    kv_op_t         reply_op;
    bit<32>         raise;                // `latest` becomes at least this
    bit<1>          may_read;
    bit<1>          may_write;
    bit<8>          outdated;             // 2: the switch has processed packets of a later configuration
    /* By the registers. */
    bit<32>         expiry;               // 0: the lease is over
    bit<8>          request_state;        // of session_request: see REQUEST_NEW
    bit<32>         version;              // the packet's, or the one that the head has given it
    bit<8>          latest_state;         // of `latest`: see LATEST_OLDER
    bit<32>         latest;               // ... or the version that the request was given before
    bit<8>          committed_state;
    bit<32>         committed;
    bit<1>          compares;             // committed and latest are there to be compared
    /* The decision. */
    chip_verdict_t  verdict;
    bit<8>          status;
    bit<8>          event;
    bit<1>          acknowledge;
    cell_op_t       cell_op;
    cell_t          cell;
    bit<1>          leaves;               // it is not dropped on the way in
    bit<1>          routed;               // no route is looked up
    route_t         route;
    bit<16>         route_port;
    bit<1>          is_netcraq;
    bit<1>          passes_ack;           // the packet goes down the chain's tree as an ACK
}

/* Predicates of session_request: the packet's request is above the recorded one (1), and the
 * recorded one is within the window (2). */
const bit<8> REQUEST_DENIED = 0;     // the register was not accessed, since the request is refused
const bit<8> REQUEST_OLD    = 4;     // not newer: a retry, or older
const bit<8> REQUEST_FAR    = 2;     // of another lease of the session
const bit<8> REQUEST_NEW    = 8;
/* Predicates of latest: it is below the packet's version (1), and below `raise` (2). */
const bit<8> LATEST_REACHED = 1;     // neither: the version was accepted here before
const bit<8> LATEST_BELOW   = 2;     // the version is news, and stays it
const bit<8> LATEST_RAISED  = 8;
/* A CAS: latest is the version that it expects (1). */
const bit<8> CAS_PASSED     = 2;
/* Predicates of committed: it is below the packet's version (1), or is that version (2). */
const bit<8> COMMITTED_NEWER = 2;
const bit<8> COMMITTED_SAME  = 4;

#endif

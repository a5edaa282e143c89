/* SPDX-License-Identifier: Apache-2.0
 *
 * The headers on the wire (docs/protocol.md is their normative description) and the metadata that
 * the controls share. Names in capitals are the paper's.
 */
#ifndef NETCRAQ_HEADERS_P4
#define NETCRAQ_HEADERS_P4

#include "profile.p4"

/* What a stage of Chain is called in P4Info: tables, registers and counters are the chain's, in
 * whichever file they stand. */
#define STAGE @name(".NetcraqIngress.pipeline.chain")

typedef bit<48> mac_addr_t;
typedef bit<32> ipv4_addr_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8>  PROTOCOL_UDP   = 17;
const bit<16> NETCRAQ_PORT   = 20035;     // 0x4E43, "NC"
const bit<16> TOMBSTONE      = 0xFFFF;    // in netcraq.length: no value

enum bit<8> kv_op_t {
    READ        = 1,
    READ_REPLY  = 2,
    WRITE       = 3,
    WRITE_REPLY = 4,
    ACK         = 5,
    CAS         = 6,
    CAS_REPLY   = 7,
    SYNC        = 8,
    LEASE       = 9,
    LEASE_REPLY = 10,
    FETCH       = 11,
    FETCH_REPLY = 12,
    SYNC_REPLY  = 13,
    NOTIFY      = 14
}

/* Flags of requests and chain packets; the same byte is the status in replies. */
const bit<8> EVENTUAL        = 0x01;
const bit<8> DIRTY_FORWARDED = 0x02;
const bit<8> TO_HEAD         = 0x04;
const bit<8> STAMPED         = 0x08;
const bit<8> BY_CAS          = 0x10;
const bit<8> NO_REPLY        = 0x20;
const bit<8> NEWEST          = 0x40;
const bit<8> SESSION         = 0x80;

const bit<8> STATUS_OK          = 0;
const bit<8> STATUS_NOT_FOUND   = 1;
const bit<8> STATUS_CAS_FAILED  = 2;
const bit<8> STATUS_RETRY       = 3;
const bit<8> STATUS_NOT_SERVING = 4;
const bit<8> STATUS_SUPERSEDED  = 5;
const bit<8> STATUS_NO_CHAIN    = 6;
const bit<8> STATUS_BAD_SESSION = 7;
const bit<8> STATUS_FULL        = 8;
const bit<8> STATUS_DIRTY       = 9;
const bit<8> STATUS_DENIED      = 10;

enum bit<8> role_t {
    NONE      = 0,
    REPLICA   = 1,
    HEAD      = 2,
    TAIL      = 3,
    HEAD_TAIL = 4,      // a chain of one
    SHADOW    = 5       // fills up behind the tail: takes ACK and SYNC, serves nothing
}

/* Who is behind the port that a packet came by. A port that the controller has said nothing about
 * is a host's, and closed: its NetCRAQ packets are dropped. */
enum bit<8> trust_t {
    HOST       = 0,
    FABRIC     = 1,
    CONTROLLER = 2,
    CLOSED     = 3
}

/* Whom a request is from: a namespace, a service account, a host of a lab network. The first switch
 * writes it into the request, and fabric ports carry it on. It travels in IPv4's identification,
 * which says nothing in a packet that is never a fragment (RFC 6864), because it has to stay with a
 * write down to the tail: `epoch`, which is free in a client's request, is the fence of a STAMPED
 * one. */
typedef bit<16> principal_t;
const principal_t CONTROLLER = 0xFFFF;    // what comes in by the CPU port; it may do everything. No port's is this or 0
/* The bits of a key's realm in key_index, and so of principals. The bit above them says that the
 * key is closed. */
const principal_t REALM = 0x7FFF;
/* The realm of a key whose first write is on its way: only the controller and the chain find it. */
const principal_t HIDDEN = 0;

/* Sessions 1 to this one are the controller's own. */
const bit<16> CONTROLLER_SESSIONS = 64;

/* How far a session's next request may be above the one that is recorded. What is farther away is
 * of another lease of the session. */
const bit<32> REQUEST_WINDOW = 1 << 28;

/* The instance (egress_rid) of a copy that the tail's multicast makes. */
const bit<16> INSTANCE_ACK    = 1;
const bit<16> INSTANCE_REPLY  = 2;
const bit<16> INSTANCE_NOTIFY = 3;

/* What of its time to live (64 at the tail) an ACK spends at a switch of its own configuration, and
 * at one of another. */
const bit<8> ACK_HOP                  = 1;
const bit<8> ACK_HOP_OF_ANOTHER_EPOCH = 16;

@id(0x04E091F5) @controller_header("packet_in")
header packet_in_header_t {
    @id(1) bit<9> ingress_port;
    @id(2) bit<7> padding;
}

@id(0x04923187) @controller_header("packet_out")
header packet_out_header_t {
    @id(1) bit<9> egress_port;           // where to send it, if it is not submitted
    @id(2) bit<1> submit_to_ingress;     // 1: through the pipeline, as received from the controller
    @id(3) bit<6> padding;
}

header ethernet_t {
    mac_addr_t dst;
    mac_addr_t src;
    bit<16>    ether_type;
}

header ipv4_t {
    bit<4>      version;
    bit<4>      ihl;
    bit<8>      tos;
    bit<16>     total_length;
    bit<16>     identification;
    bit<3>      flags;
    bit<13>     fragment_offset;
    bit<8>      ttl;
    bit<8>      protocol;
    bit<16>     checksum;
    ipv4_addr_t src;
    ipv4_addr_t dst;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

/* 24 bytes. The paper's header is KV_OP, KEY_ID and VALUE; each field more than those has its
 * reason in docs/protocol.md. */
header netcraq_t {
    kv_op_t KV_OP;
    bit<8>  flags;            // requests: flags; replies: status
    bit<16> epoch;
    bit<16> session;
    bit<16> length;           // bytes of the value in use, or TOMBSTONE
    bit<32> request;
    bit<32> KEY_ID;           // the top 8 bits name the chain
    VERSION_FIELDS            // chain epoch (16) and sequence (48), compared as one number
}

header value_t {
    VALUE_FIELDS
#if VALUE_WORDS > 1
    bit<WORD_BITS> VALUE_1;
#endif
#if VALUE_WORDS > 2
    bit<WORD_BITS> VALUE_2;
    bit<WORD_BITS> VALUE_3;
#endif
}

#ifdef NETCRAQ_BRIDGE
/* PSA and TNA keep no metadata between ingress and egress: this goes ahead of the packet from the one's
 * deparser to the other's parser, never on the wire. */
header bridge_t {
    bit<9> ingress_port;
    bit<7> padding;
}
#endif

struct headers_t {
#ifdef NETCRAQ_BRIDGE
    bridge_t            bridge;
#endif
    packet_in_header_t  packet_in;
    packet_out_header_t packet_out;
    ethernet_t          ethernet;
    ipv4_t              ipv4;
    udp_t               udp;
    netcraq_t           netcraq;
    value_t             value;
}

/* What the traffic manager is to do with the packet; the architecture's main turns it into its own
 * metadata. */
struct forwarding_t {
    bool    drop;
    bool    routed;             // egress_port says where to
    bit<9>  egress_port;
    bit<16> multicast_group;    // not 0: instead of egress_port
}

/* What the packet asks of the chain's registers. */
enum bit<8> chain_op_t {
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

/* What becomes of a NetCRAQ packet. */
enum bit<8> verdict_t {
    PASS              = 0,    // it goes on as it is
    DROP              = 1,
    FORWARD_TO_HEAD   = 2,    // to another address, as the same request
    FORWARD_TO_NEXT   = 3,
    FORWARD_TO_TAIL   = 4,
    FORWARD_TO_STORE  = 5,
    ANSWER            = 6,    // from the chain's service address
    ANSWER_FROM_HERE  = 7,    // from the address that was asked
    ANSWER_CONTROLLER = 8,
    ACKNOWLEDGE       = 9     // it becomes the chain's ACK
}

/* Any stage of Chain decides; the last decision counts, and Reply does it. */
struct decision_t {
    verdict_t verdict;
    bit<8>    status;         // of an answer; of what is forwarded: flags that are added
    bit<8>    event;
}

/* The packet's session, by session_request and session_version. */
struct session_t {
    bool    used;             // the packet is of a session that has a record here ...
    bool    write;            // ... and may change it
    bool    anew;             // the session is leased anew
    bool    newer;            // the packet's request, beside the recorded one
    bool    equal;
    bool    far;              // of another lease of the session: neither newer nor a retry
    bool    retried;          // the head gave this request a version before
    bit<64> version;          // the recorded one
}

/* The packet's version and the slot's, by versions. */
struct version_t {
    bit<64> committed;
    bit<64> latest;
    bool    dirty;
    bool    newer;            // the packet's version is taken over here
    bool    newest;           // ... and is the newest that was seen here
    bool    assigned;         // the head has given it a new version
    bool    full;             // no dirty cell is free (PAPER_WRITE_BOUND)
    bool    outdated;         // the slot has a version of a later configuration than this head's
}

/* What Objects is to do. */
struct object_t {
    bool    used;
    bool    fill;             // with the packet's value; else it is read into the packet
    bit<32> cell;
}

/* This switch's part in the packet's chain, as the controller configured it. */
struct chain_t {
    bool        known;
    role_t      role;
    bit<1>      frozen;            // every write is refused, for the moment of a role change
    bit<1>      lease_required;    // 0: the paper's fail-stop assumption
    bit<16>     epoch;
    ipv4_addr_t head_addr;
    ipv4_addr_t next_addr;
    ipv4_addr_t tail_addr;
    ipv4_addr_t service_addr;
    bit<16>     ack_group;
    bit<16>     reply_group;
}

METADATA metadata_t {
    bit<9>       ingress_port;
    bit<64>      now;             // this switch's clock, microseconds
    bool         checksum_error;  // of the IPv4 header
    trust_t      trust;
    ipv4_addr_t  port_addr;       // of the host behind the ingress port; 0: not known
    bool         any_session;     // this port may use sessions that it has not leased
    bit<9>       session_port;    // the port that the packet's session is leased to; 0: none here
    bit<8>       refusal;         // not 0: the first switch refuses the request with this status
    bool         is_netcraq;      // one of its UDP ports is ours
    bool         is_local;        // addressed to this switch
    bool         placed;          // the key has a slot here
    bit<32>      slot;
    principal_t  realm;           // whose the key is, for `access`; REALM, the last: the controller's alone; or HIDDEN
    bit<1>       closed;          // the head takes no writes of the key but the controller's
    bool         stranger;        // a message of a chain, by a port that the chain does not send it by
    bool         hearsay;         // a reply that is not the tail's, or not the chain's: nobody learns from it
    bool         watched;         // somebody watches the key: its acknowledgements go to him, too
    bool         acknowledge;     // the tail's reply to a write: an ACK by all other ports of the tree
    bit<8>       event;
    chain_t      chain;
    bool         is_head;
    bool         is_tail;
    bool         is_member;       // head, tail or replica
    ipv4_addr_t  store_addr;      // the backing store of keys without a slot; 0: none
    kv_op_t      reply_op;        // of the answer to this request
    chain_op_t   chain_op;
    bool         acknowledges;    // a reply that is the ACK, too, on the way that it goes
    bool         lease_live;      // this switch may say what is so now
    session_t    session;
    version_t    version;
    object_t     object;
    decision_t   decision;
    forwarding_t forwarding; METADATA_PADDING
}

#endif

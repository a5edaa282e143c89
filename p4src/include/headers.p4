/* SPDX-License-Identifier: Apache-2.0
 *
 * The headers on the wire, and the metadata that the controls share. docs/protocol.md describes the
 * headers normatively. Header fields in capitals have their names from the paper.
 */
#ifndef NETCRAQ_HEADERS_P4
#define NETCRAQ_HEADERS_P4

#include "profile.p4"

/* Gives a stage of Chain its name in P4Info. Tables, registers and counters of all stages appear
 * there as the chain's, whichever file declares them. */
#define STAGE @name(".NetcraqIngress.pipeline.chain")

typedef bit<48> mac_addr_t;
typedef bit<32> ipv4_addr_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8>  PROTOCOL_UDP   = 17;
const bit<16> NETCRAQ_PORT   = 20035;     // "NC" in ASCII
const bit<16> TOMBSTONE      = 0xFFFF;    // as netcraq.length: the key has no value

enum bit<8> kv_op_t {
    READ        = 1,
    READ_REPLY  = 2,
    WRITE       = 3,
    WRITE_REPLY = 4,
    ACK         = 5,    // a version of a key is committed
    CAS         = 6,    // compare the version and swap the value
    CAS_REPLY   = 7,
    SYNC        = 8,    // from the controller: copy a slot or a session's record into the switch
    LEASE       = 9,    // from the controller: a lease to answer reads
    LEASE_REPLY = 10,
    FETCH       = 11,   // from the controller: return a slot or a session's record
    FETCH_REPLY = 12,
    SYNC_REPLY  = 13,
    NOTIFY      = 14    // to a server that watches the key: a version is committed
}

/* The netcraq.flags of requests and of packets between switches. In replies the same byte is the
 * status. */
const bit<8> EVENTUAL        = 0x01;     // READ: any member may answer with its last committed value
const bit<8> DIRTY_FORWARDED = 0x02;     // READ: a switch has forwarded it to the tail
const bit<8> TO_HEAD         = 0x04;     // WRITE, CAS: a switch has forwarded it to the head
const bit<8> STAMPED         = 0x08;     // WRITE, CAS: the head has decided, and set the epoch
const bit<8> BY_CAS          = 0x10;     // STAMPED WRITE: it was a CAS
const bit<8> NO_REPLY        = 0x20;     // STAMPED WRITE: the controller repeats it, so the tail only acknowledges
const bit<8> NEWEST          = 0x40;     // FETCH: of the newest version. SYNC: start a session's record again
const bit<8> SESSION         = 0x80;     // FETCH, SYNC: of a session's record instead of a slot

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
    SHADOW    = 5       // copies the data before it becomes the tail: accepts ACK and SYNC, answers no client
}

/* The kind of device behind the ingress port. A port without a port_trust entry is CLOSED: the
 * switch drops the NetCRAQ packets that arrive there. */
enum bit<8> trust_t {
    HOST       = 0,
    FABRIC     = 1,
    CONTROLLER = 2,
    CLOSED     = 3
}

/* The sender of a request: a namespace, a service account, or a host of a lab network. The first
 * switch writes the principal into the request, and switches behind fabric ports believe it. The
 * field is IPv4's identification, which has no meaning in a packet that is never fragmented (RFC
 * 6864). netcraq.epoch would be free in a client's request, but a STAMPED write needs it for the
 * epoch, and the principal must stay with the write down to the tail. */
typedef bit<16> principal_t;
const principal_t CONTROLLER = 0xFFFF;    // of packets from the CPU port, with all rights; no port has it or 0
/* The mask of a realm's bits in key_index, which are also the bits of the owning principal. The bit
 * above them marks the key as closed. */
const principal_t REALM = 0x7FFF;
/* The realm of a hidden key, whose first write is not committed yet. Only the controller and the
 * chain's own packets find the key. */
const principal_t HIDDEN = 0;

/* Sessions 1 to CONTROLLER_SESSIONS belong to the controller. */
const bit<16> CONTROLLER_SESSIONS = 64;

/* The largest step from a session's recorded request to its next one. A request above that belongs
 * to another lease of the session. */
const bit<32> REQUEST_WINDOW = 1 << 28;

/* The values of egress_rid by which egress distinguishes the copies of a multicast packet. */
const bit<16> INSTANCE_ACK    = 1;
const bit<16> INSTANCE_REPLY  = 2;
const bit<16> INSTANCE_NOTIFY = 3;

/* An ACK's time to live is 64 at the tail. Each switch subtracts ACK_HOP, or
 * ACK_HOP_OF_ANOTHER_EPOCH if the ACK's epoch is not the switch's. */
const bit<8> ACK_HOP                  = 1;
const bit<8> ACK_HOP_OF_ANOTHER_EPOCH = 16;

@id(0x04E091F5) @controller_header("packet_in")
header packet_in_header_t {
    @id(1) bit<9> ingress_port;
    @id(2) bit<7> padding;
}

@id(0x04923187) @controller_header("packet_out")
header packet_out_header_t {
    @id(1) bit<9> egress_port;           // port to send it by, if submit_to_ingress is 0
    @id(2) bit<1> submit_to_ingress;     // 1: process it as a packet received from the controller
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

/* 24 bytes. The paper's header has only KV_OP, KEY_ID and VALUE. docs/protocol.md gives the reason
 * for each other field. */
header netcraq_t {
    kv_op_t KV_OP;
    bit<8>  flags;            // flags of a request, status of a reply
    bit<16> epoch;
    bit<16> session;
    bit<16> length;           // bytes of the value that are used, or TOMBSTONE
    bit<32> request;
    bit<32> KEY_ID;           // the top 8 bits name the chain
    VERSION_FIELDS            // epoch (16 bits) and sequence number (48 bits), compared as one number
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
/* PSA and TNA keep no metadata between ingress and egress. The ingress deparser puts this header
 * before the packet, and the egress parser removes it, so it never leaves the switch. */
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

/* What the traffic manager does with the packet. The main file of each architecture translates it
 * into that architecture's metadata. */
struct forwarding_t {
    bool    drop;
    bool    routed;             // true if egress_port is set
    bit<9>  egress_port;
    bit<16> multicast_group;    // if not 0, replaces egress_port
}

/* The operation of the packet on the chain's registers. */
enum bit<8> chain_op_t {
    NONE    = 0,
    READ    = 1,
    ASSIGN  = 2,     // at the head: an unstamped WRITE or CAS gets its version
    STORE   = 3,     // at a member before the tail: a STAMPED WRITE
    COMMIT  = 4,     // at the tail: a stamped WRITE
    LEARN   = 5,     // ACK, SYNC, or a passing reply: commit if newer
    FAIL    = 6,     // at the tail: a STAMPED CAS, which the head found to fail
    FETCH   = 7,
    SESSION = 8,     // FETCH or SYNC of a session's record
    LEASE   = 9
}

/* What Reply does with a NetCRAQ packet. */
enum bit<8> verdict_t {
    PASS              = 0,    // route it unchanged
    DROP              = 1,
    FORWARD_TO_HEAD   = 2,    // send the same request to the head
    FORWARD_TO_NEXT   = 3,
    FORWARD_TO_TAIL   = 4,
    FORWARD_TO_STORE  = 5,
    ANSWER            = 6,    // answer from the chain's service address
    ANSWER_FROM_HERE  = 7,    // answer from the request's destination address
    ANSWER_CONTROLLER = 8,
    ACKNOWLEDGE       = 9     // turn it into the chain's ACK
}

/* What happens to a packet. Any stage of Chain may set it; Reply carries out the last one set. */
struct decision_t {
    verdict_t verdict;
    bit<8>    status;         // the status of an answer, or the flags to set in a forwarded request
    bit<8>    event;
}

/* The packet's session, as SessionRequest and SessionVersion find it. */
struct session_t {
    bool    used;             // this switch has a record of the packet's session ...
    bool    write;            // the packet may change this switch's record of its session
    bool    anew;             // the packet starts a new lease of the session
    bool    newer;            // the packet's request is newer than the recorded one
    bool    equal;
    bool    far;              // the request belongs to another lease of the session; neither newer nor a retry
    bool    retried;          // the head gave this request a version earlier
    bit<64> version;          // the version in the session's record
}

/* The versions of the packet's slot, as Version finds them, and how the packet's version
 * compares. */
struct version_t {
    bit<64> committed;
    bit<64> latest;
    bool    dirty;
    bool    newer;            // this switch takes over the packet's version
    bool    newest;           // this switch takes it over and has not seen a newer version
    bool    assigned;         // the head has given the packet a new version
    bool    full;             // no dirty cell is free (PAPER_WRITE_BOUND)
    bool    outdated;         // the slot has a version of a later epoch than this head's configuration
}

/* What Objects does with the cell. */
struct object_t {
    bool    used;
    bool    fill;             // write the packet's value into the cell; false: read the cell into the packet
    bit<32> cell;
}

/* This switch's role in the packet's chain, as the controller configured it. */
struct chain_t {
    bool        known;
    role_t      role;
    bit<1>      frozen;            // refuse every write, during a role change
    bit<1>      lease_required;    // 0: no leases (the paper's fail-stop assumption)
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
    bit<64>      now;             // this switch's clock, in microseconds
    bool         checksum_error;  // the IPv4 header's checksum is wrong
    trust_t      trust;
    ipv4_addr_t  port_addr;       // address of the host at the ingress port; 0: unknown
    bool         any_session;     // the port may use sessions that are not leased to it
    bit<9>       session_port;    // the port that the packet's session is leased to; 0: no port of this switch
    bit<8>       refusal;         // if not 0: answer the request with this status, at the first switch
    bool         is_netcraq;      // source or destination port is NETCRAQ_PORT
    bool         is_local;        // addressed to this switch or to a chain of which it is a member
    bool         placed;          // the key has a slot here
    bit<32>      slot;
    principal_t  realm;           // realm that owns the key; REALM: only the controller may use the key
    bit<1>       closed;          // the head accepts writes of the key only from the controller
    bool         stranger;        // a chain packet from a port by which the chain does not send it
    bool         hearsay;         // do not learn from this reply: it is not from the tail's side or the chain's address
    bool         watched;         // the key has watchers, which get copies of its acknowledgements
    bool         acknowledge;     // send ACKs by the other ports of the tree, along with the reply
    bit<8>       event;
    chain_t      chain;
    bool         is_head;
    bool         is_tail;
    bool         is_member;       // head, tail or replica
    ipv4_addr_t  store_addr;      // backing store for keys without a slot; 0: none
    kv_op_t      reply_op;        // op of the answer to this request
    chain_op_t   chain_op;
    bool         acknowledges;    // this reply is also the ACK on its route
    bool         lease_live;      // the switch may answer reads: it has a live lease, or needs none
    session_t    session;
    version_t    version;
    object_t     object;
    decision_t   decision;
    forwarding_t forwarding; METADATA_PADDING
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The outcome of a packet. Each NetCRAQ packet counts exactly one event at each switch that it
 * passes, and so does a dropped packet of any kind. The controller reads the counter `events` by
 * these numbers. controlplane has the same names, which a test compares.
 */
#ifndef NETCRAQ_EVENTS_P4
#define NETCRAQ_EVENTS_P4

const bit<8> EVENT_NONE              = 0;     // not NetCRAQ, routed

/* Served or forwarded. */
const bit<8> EVENT_READ_CLEAN        = 1;     // answered from the committed cell
const bit<8> EVENT_READ_DIRTY        = 2;     // a tail that has just taken over answered with its newest accepted value
const bit<8> EVENT_READ_FORWARDED    = 3;     // forwarded to the tail
const bit<8> EVENT_READ_NOT_FOUND    = 4;     // answered: the key has no slot, was never written, or is deleted
const bit<8> EVENT_READ_TO_STORE     = 5;     // the key has no slot: sent to the backing store
const bit<8> EVENT_WRITE_TO_HEAD     = 6;     // forwarded to the head
const bit<8> EVENT_WRITE_ASSIGNED    = 7;     // the head gave it a version
const bit<8> EVENT_WRITE_RETRIED     = 8;     // the head recognised a retry, and gave it its earlier version again
const bit<8> EVENT_WRITE_STORED      = 9;     // a replica accepted it
const bit<8> EVENT_WRITE_PASSED      = 10;    // a replica had this version or a newer one, and forwarded it
const bit<8> EVENT_WRITE_COMMITTED   = 11;    // the tail committed it
const bit<8> EVENT_WRITE_REPEATED    = 12;    // a retry: the tail had committed it before
const bit<8> EVENT_WRITE_SUPERSEDED  = 13;    // the tail had committed a newer version before
const bit<8> EVENT_CAS_RETRY         = 14;    // not decided: the tail is dirty, or has the expected version
const bit<8> EVENT_CAS_TO_TAIL       = 15;    // the head's version is not the expected one; the tail answers
const bit<8> EVENT_CAS_FAILED        = 16;    // answered: the committed version is not the expected one
const bit<8> EVENT_ACK_COMMITTED     = 17;
const bit<8> EVENT_ACK_OLD           = 18;    // the version was committed here before
const bit<8> EVENT_REPLY_REPAIRED    = 19;    // a passing reply committed its version here
const bit<8> EVENT_REPLY_PASSED      = 20;
const bit<8> EVENT_SYNC              = 21;
const bit<8> EVENT_LEASE_RENEWED     = 22;
const bit<8> EVENT_FETCH             = 23;
const bit<8> EVENT_TRANSIT           = 24;    // addressed to another switch, or an ACK on its way to others
const bit<8> EVENT_PACKET_OUT        = 25;    // the controller's packet, sent unchanged

/* Refused with a reply. */
const bit<8> EVENT_NOT_SERVING       = 32;    // no lease or no role, and no member to forward to
const bit<8> EVENT_NO_CHAIN          = 33;
const bit<8> EVENT_BAD_SESSION       = 34;    // out of range, not leased to this port, or of another lease
const bit<8> EVENT_WRITE_NOT_FOUND   = 35;
const bit<8> EVENT_WRITE_FROZEN      = 36;    // not decided: the chain is frozen or the key is closed
const bit<8> EVENT_WRITE_FULL        = 37;
const bit<8> EVENT_LEASE_REFUSED     = 38;    // its epoch is not this switch's
const bit<8> EVENT_DENIED            = 39;    // the principal may not do this in the key's realm
const bit<8> EVENT_OUTDATED          = 40;    // the slot has a version of a later epoch than this switch's

/* Dropped. */
const bit<8> EVENT_DROP_NOT_PEER     = 47;    // a chain packet from a port by which the chain does not send it
const bit<8> EVENT_DROP_MALFORMED    = 48;    // truncated, a wrong length, an impossible combination
const bit<8> EVENT_DROP_UNKNOWN_OP   = 49;
const bit<8> EVENT_DROP_UNTRUSTED    = 50;    // from a port that may not send it
const bit<8> EVENT_DROP_STALE_EPOCH  = 51;    // a stamped write of another epoch
const bit<8> EVENT_DROP_OLD_REQUEST  = 52;    // the session has a newer request
const bit<8> EVENT_DROP_FROZEN       = 53;
const bit<8> EVENT_DROP_NOT_MEMBER   = 54;    // a chain packet at a switch that is not a member
const bit<8> EVENT_DROP_NO_SLOT      = 55;    // a chain packet for a key that has no slot here
const bit<8> EVENT_DROP_NO_ROUTE     = 56;
const bit<8> EVENT_DROP_TTL          = 57;
const bit<8> EVENT_DROP_CHECKSUM     = 58;    // the IPv4 header's checksum is wrong
const bit<8> EVENT_DROP_NOT_IPV4     = 59;
const bit<8> EVENT_DROP_CLOSED_PORT  = 60;    // from a closed port: one without a port_trust entry
const bit<8> EVENT_DROP_SOURCE       = 61;    // from a host port, with a source address that is not the host's
const bit<8> EVENT_DROP_RATE         = 62;    // beyond the host port's rate
const bit<8> EVENT_DROP_NOT_PLAIN    = 63;    // UDP from a host port, in a fragment or after IP options

#define EVENTS 64

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The outcome of a packet. Each NetCRAQ packet counts exactly one event at each switch that it
 * passes, and so does a dropped packet of any kind. The controller reads the counter `events` by
 * these numbers. controlplane has the same names, which a test compares.
 */
#ifndef NETCRAQ_EVENTS_P4
#define NETCRAQ_EVENTS_P4

const bit<8> EVENT_NONE              = 0;     // a packet that is not NetCRAQ's, routed

/* Served or forwarded. */
const bit<8> EVENT_READ_CLEAN        = 1;     // a READ, answered from the committed cell
const bit<8> EVENT_READ_DIRTY        = 2;     // a tail that has just taken over answered with its newest accepted value
const bit<8> EVENT_READ_FORWARDED    = 3;     // a READ, forwarded to the tail
const bit<8> EVENT_READ_NOT_FOUND    = 4;     // a READ of a key without a slot or value, answered
const bit<8> EVENT_READ_TO_STORE     = 5;     // a READ of a key without a slot, sent to the backing store
const bit<8> EVENT_WRITE_TO_HEAD     = 6;     // a WRITE or CAS, forwarded to the head
const bit<8> EVENT_WRITE_ASSIGNED    = 7;     // the head gave a WRITE or CAS a version
const bit<8> EVENT_WRITE_RETRIED     = 8;     // the head recognised a retry, and gave it its earlier version again
const bit<8> EVENT_WRITE_STORED      = 9;     // a replica accepted a write
const bit<8> EVENT_WRITE_PASSED      = 10;    // a replica had a write's version or a newer one, and forwarded it
const bit<8> EVENT_WRITE_COMMITTED   = 11;    // the tail committed a write
const bit<8> EVENT_WRITE_REPEATED    = 12;    // a retry of a write that the tail had already committed
const bit<8> EVENT_WRITE_SUPERSEDED  = 13;    // a write that is older than the tail's committed version
const bit<8> EVENT_CAS_RETRY         = 14;    // an undecided CAS: the tail is dirty, or has the expected version
const bit<8> EVENT_CAS_TO_TAIL       = 15;    // a CAS that does not expect the head's version; the tail answers it
const bit<8> EVENT_CAS_FAILED        = 16;    // a CAS, answered: the committed version is not the expected one
const bit<8> EVENT_ACK_COMMITTED     = 17;    // an ACK committed its version at this switch
const bit<8> EVENT_ACK_OLD           = 18;    // an ACK of a version that was already committed at this switch
const bit<8> EVENT_REPLY_REPAIRED    = 19;    // a passing reply committed its version at this switch
const bit<8> EVENT_REPLY_PASSED      = 20;    // a reply passed through this switch unchanged
const bit<8> EVENT_SYNC              = 21;
const bit<8> EVENT_LEASE_RENEWED     = 22;
const bit<8> EVENT_FETCH             = 23;
const bit<8> EVENT_TRANSIT           = 24;    // addressed to another switch, or an ACK on its way to others
const bit<8> EVENT_PACKET_OUT        = 25;    // a packet of the controller, sent unchanged

/* Refused with a reply. */
const bit<8> EVENT_NOT_SERVING       = 32;    // this switch has no lease or no role, and no member to forward to
const bit<8> EVENT_NO_CHAIN          = 33;    // this switch knows no chain with the request's number
const bit<8> EVENT_BAD_SESSION       = 34;    // a session out of range, not leased to this port, or of another lease
const bit<8> EVENT_WRITE_NOT_FOUND   = 35;    // a write of a key without a slot, answered
const bit<8> EVENT_WRITE_FROZEN      = 36;    // an undecided write: the chain is frozen or the key is closed
const bit<8> EVENT_WRITE_FULL        = 37;
const bit<8> EVENT_LEASE_REFUSED     = 38;    // a LEASE whose epoch is not this switch's
const bit<8> EVENT_DENIED            = 39;    // the principal may not do this in the key's realm
const bit<8> EVENT_OUTDATED          = 40;    // the slot has a version of a later epoch than this switch's

/* Dropped. */
const bit<8> EVENT_DROP_NOT_PEER     = 47;    // a chain packet from a port by which the chain does not send it
const bit<8> EVENT_DROP_MALFORMED    = 48;    // a packet that is truncated, or has a wrong length or impossible fields
const bit<8> EVENT_DROP_UNKNOWN_OP   = 49;    // a packet with an unknown op
const bit<8> EVENT_DROP_UNTRUSTED    = 50;    // a packet from a port that may not send it
const bit<8> EVENT_DROP_STALE_EPOCH  = 51;    // a stamped write of another epoch
const bit<8> EVENT_DROP_OLD_REQUEST  = 52;    // a request that is older than its session's last request
const bit<8> EVENT_DROP_FROZEN       = 53;    // a stamped packet of a frozen chain
const bit<8> EVENT_DROP_NOT_MEMBER   = 54;    // a chain packet at a switch that is not a member
const bit<8> EVENT_DROP_NO_SLOT      = 55;    // a chain packet for a key that has no slot here
const bit<8> EVENT_DROP_NO_ROUTE     = 56;    // a packet without a route
const bit<8> EVENT_DROP_TTL          = 57;
const bit<8> EVENT_DROP_CHECKSUM     = 58;    // the IPv4 header's checksum is wrong
const bit<8> EVENT_DROP_NOT_IPV4     = 59;    // a packet that is not IPv4
const bit<8> EVENT_DROP_CLOSED_PORT  = 60;    // a packet from a closed port, which has no port_trust entry
const bit<8> EVENT_DROP_SOURCE       = 61;    // a packet from a host port with another source than the host's address
const bit<8> EVENT_DROP_RATE         = 62;    // a packet beyond the host port's rate
const bit<8> EVENT_DROP_NOT_PLAIN    = 63;    // UDP from a host port, in a fragment or after IP options

#define EVENTS 64

#endif

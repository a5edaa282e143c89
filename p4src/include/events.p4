/* SPDX-License-Identifier: Apache-2.0
 *
 * What became of a packet. Each NetCRAQ packet counts exactly one event at each switch that it
 * passes; so do packets of any kind that are dropped. The controller reads the counter `events` by
 * these numbers (controlplane mirrors the names, and a test compares).
 */
#ifndef NETCRAQ_EVENTS_P4
#define NETCRAQ_EVENTS_P4

const bit<8> EVENT_NONE              = 0;     // not NetCRAQ, routed

/* Served or moved on. */
const bit<8> EVENT_READ_CLEAN        = 1;     // answered from the committed cell
const bit<8> EVENT_READ_DIRTY        = 2;     // answered by a new tail with its newest accepted value
const bit<8> EVENT_READ_FORWARDED    = 3;     // sent on to the tail
const bit<8> EVENT_READ_NOT_FOUND    = 4;     // answered: no slot, never written, or deleted
const bit<8> EVENT_READ_TO_STORE     = 5;     // no slot: sent to the backing store
const bit<8> EVENT_WRITE_TO_HEAD     = 6;     // sent on to the head
const bit<8> EVENT_WRITE_ASSIGNED    = 7;     // the head gave it a version
const bit<8> EVENT_WRITE_RETRIED     = 8;     // the head gave it the version that it had
const bit<8> EVENT_WRITE_STORED      = 9;     // a replica accepted it
const bit<8> EVENT_WRITE_PASSED      = 10;    // a replica had it, or a newer one, and passed it on
const bit<8> EVENT_WRITE_COMMITTED   = 11;    // the tail committed it
const bit<8> EVENT_WRITE_REPEATED    = 12;    // the tail had committed it before
const bit<8> EVENT_WRITE_SUPERSEDED  = 13;    // the tail had committed a newer one before
const bit<8> EVENT_CAS_RETRY         = 14;    // the tail is dirty, or has the expected version: not decided
const bit<8> EVENT_CAS_TO_TAIL       = 15;    // the head has another version; the tail will say which is committed
const bit<8> EVENT_CAS_FAILED        = 16;    // the tail said so
const bit<8> EVENT_ACK_COMMITTED     = 17;
const bit<8> EVENT_ACK_OLD           = 18;    // committed before
const bit<8> EVENT_REPLY_REPAIRED    = 19;    // a reply on its way through committed its version here
const bit<8> EVENT_REPLY_PASSED      = 20;
const bit<8> EVENT_SYNC              = 21;
const bit<8> EVENT_LEASE_RENEWED     = 22;
const bit<8> EVENT_FETCH             = 23;
const bit<8> EVENT_TRANSIT           = 24;    // addressed to another switch, or an ACK on its way to others
const bit<8> EVENT_PACKET_OUT        = 25;    // the controller's own, sent as it was

/* Refused with a reply. */
const bit<8> EVENT_NOT_SERVING       = 32;    // no lease or no role, and nowhere to forward
const bit<8> EVENT_NO_CHAIN          = 33;
const bit<8> EVENT_BAD_SESSION       = 34;    // beyond the table, not leased here, or a request of another lease
const bit<8> EVENT_WRITE_NOT_FOUND   = 35;
const bit<8> EVENT_WRITE_FROZEN      = 36;    // the chain is frozen, or the key closed: not decided
const bit<8> EVENT_WRITE_FULL        = 37;
const bit<8> EVENT_LEASE_REFUSED     = 38;    // of another epoch
const bit<8> EVENT_DENIED            = 39;    // its principal may not do that in the key's realm
const bit<8> EVENT_OUTDATED          = 40;    // the slot has a version of a later configuration than this switch's

/* Dropped. */
const bit<8> EVENT_DROP_NOT_PEER     = 47;    // a chain packet, by a port that the chain does not send it by
const bit<8> EVENT_DROP_MALFORMED    = 48;    // truncated, a wrong length, an impossible combination
const bit<8> EVENT_DROP_UNKNOWN_OP   = 49;
const bit<8> EVENT_DROP_UNTRUSTED    = 50;    // not from a port that may send it
const bit<8> EVENT_DROP_STALE_EPOCH  = 51;    // a stamped write of another configuration
const bit<8> EVENT_DROP_OLD_REQUEST  = 52;    // the session has a newer one
const bit<8> EVENT_DROP_FROZEN       = 53;
const bit<8> EVENT_DROP_NOT_MEMBER   = 54;    // a chain packet at a switch without a part in the chain
const bit<8> EVENT_DROP_NO_SLOT      = 55;    // a chain packet for a key that has no slot here
const bit<8> EVENT_DROP_NO_ROUTE     = 56;
const bit<8> EVENT_DROP_TTL          = 57;
const bit<8> EVENT_DROP_CHECKSUM     = 58;    // IPv4 header
const bit<8> EVENT_DROP_NOT_IPV4     = 59;
const bit<8> EVENT_DROP_CLOSED_PORT  = 60;    // from a host port without a principal
const bit<8> EVENT_DROP_SOURCE       = 61;    // from a host port, with an address that is not its host's
const bit<8> EVENT_DROP_RATE         = 62;    // more than the host port may send
const bit<8> EVENT_DROP_NOT_PLAIN    = 63;    // UDP from a host port, in a fragment or behind IP options

#define EVENTS 64

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * CRAQ on registers: what this switch does with a NetCRAQ packet, given its role in the packet's
 * chain (docs/protocol.md says it in words). A stage is a control in the file of its name:
 *
 *   ┌────────┐   ┌──────┐   ┌───────┐   ┌──────────┐   ┌────────┐
 *   │ Lookup │──▶│ Peer │──▶│ Watch │──▶│ Dispatch │──▶│ Access │──▶ the operation: READ, ASSIGN, ...
 *   └────────┘   └──────┘   └───────┘   └──────────┘   └────────┘   │
 *   whose is it? may it     whom the    what is it     may its      │ no operation: no register is asked
 *                come here? ACK is for  for us?        principal?   │ ────────────────────────────────┐
 *   ┌───────────────────────────────────────────────────────────────┘                                 │
 *   ▼                                                                                                 │
 *   lease_expiry ─▶ session_request ─▶ versions ─▶ session_version ─▶ slot_writer ─▶ objects_store    │
 *   may this        retry? old?        clean?      the version a      who wrote      the value        │
 *   switch answer?                     newer?      retry had          the newest                      │
 *   Lease           SessionRequest     Version     SessionVersion     SlotWriter     Outcome, Objects │
 *   ┌───────────────────────────────────────────────────────────┘                                     │
 *   ▼                                                                                                 │
 *   ┌───────┐                                                                                         │
 *   │ Reply │◀────────────────────────────────────────────────────────────────────────────────────────┘
 *   └───────┘
 *   answer, forward to next / head / tail, acknowledge
 *
 * Stages know each other by the packet's view of the registers alone, in metadata_t (headers.p4).
 * The control plane does not know them at all: to it, what they have is the chain's (STAGE).
 *
 * Each register is read and written at most once by a packet, at one index, and no register waits
 * for a later one: each can be one stateful operation of one stage of a switch chip. That is why a
 * CAS compares versions: `versions` alone says whether it passes, and its expected version is gone
 * once it has, so trying it again does no harm.
 */
#ifndef NETCRAQ_CHAIN_P4
#define NETCRAQ_CHAIN_P4

#include "headers.p4"
#include "lookup.p4"
#include "peer.p4"
#include "watch.p4"
#include "dispatch.p4"
#include "access.p4"
#include "lease.p4"
#include "session.p4"
#include "version.p4"
#include "outcome.p4"
#include "objects.p4"
#include "reply.p4"

control Chain(inout headers_t hdr, inout metadata_t meta) {
    STAGE Lookup() lookup;
    STAGE Peer() peer;
    STAGE Watch() watch;
    Dispatch() dispatch;
    STAGE Access() access;
    STAGE Lease() lease;
    STAGE SessionRequest() session_request;
    STAGE Version() version;
    STAGE SessionVersion() session_version;
    STAGE SlotWriter() slot_writer;
    STAGE Outcome() outcome;
    Objects() objects;
    Reply() reply;

    apply {
        lookup.apply(hdr, meta);
        peer.apply(hdr, meta);
        watch.apply(hdr, meta);
        dispatch.apply(hdr, meta);
        access.apply(hdr, meta);
        if (meta.chain_op != chain_op_t.NONE) {
            lease.apply(hdr, meta);
            session_request.apply(hdr, meta);
            version.apply(hdr, meta);
            session_version.apply(hdr, meta);
            slot_writer.apply(hdr, meta);
            outcome.apply(hdr, meta);
            objects.apply(hdr, meta);
        }
        reply.apply(hdr, meta);
    }
}

#endif

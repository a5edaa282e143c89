/* SPDX-License-Identifier: Apache-2.0
 *
 * CRAQ in registers: what this switch does with a NetCRAQ packet, given its role in the packet's
 * chain. docs/protocol.md explains it in prose. Each stage is a control:
 *
 *   ┌────────┐   ┌──────┐   ┌───────┐   ┌──────────┐   ┌────────┐
 *   │ Lookup │──▶│ Peer │──▶│ Watch │──▶│ Dispatch │──▶│ Access │──▶ the operation: READ, ASSIGN, ...
 *   └────────┘   └──────┘   └───────┘   └──────────┘   └────────┘   │
 *   chain, key   may it come   groups for  which        is it        │ no operation: skip the registers
 *   and role     by its port?  the ACK     operation?   allowed?     │ ────────────────────────────────┐
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
 * The stages communicate only through metadata_t (headers.p4), which has what the packet has read
 * from the registers. The control plane does not see the stages: P4Info names their tables and
 * registers as the chain's (STAGE).
 *
 * A packet reads and writes each register at most once, at one index, and no register access
 * depends on a later register. So each access can be one stateful operation of one stage of a
 * switch chip. This is why a CAS compares versions and not values: `versions` by itself decides
 * whether the CAS passes. To execute a CAS again is harmless, because its expected version is gone
 * once it has passed.
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

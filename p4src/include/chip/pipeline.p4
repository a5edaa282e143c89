/* SPDX-License-Identifier: Apache-2.0
 *
 * The ingress of a chip: what pipeline.p4 does, arranged so that it takes few stages of tables.
 *
 *   stage 0    ChipPort, ChipLookup        all that the packet itself is looked up by
 *   stage 1    ChipAdmit, ChipDispatch,    may it come in; what is it for us;
 *              ChipAccess                  what may its principal do
 *   stage 2    ChipPermit                  the lease, and the session's last request
 *   stage 3    ChipLatest                  the newest version: the head gives the next one
 *   stage 4    ChipVersion                 what is committed; what a retry was given; who wrote
 *   stage 5    ChipOutcome                 the decision
 *   stage 6-8  ChipObjects, ChipReply,     the value; the packet becomes what was decided;
 *              ChipRouting                 its route
 *   stage 9    the last checks, the event
 *
 * Each register is accessed once by a packet, as in chain.p4. Decisions are ternary tables whose
 * entries are constant: a chip has no if with many conditions, but it compares many bits at once.
 * docs/reference/hardware.md has the stages and the memory that a compiler needs for it, and in
 * what this program differs from netcraq.p4.
 */
#ifndef NETCRAQ_CHIP_PIPELINE_P4
#define NETCRAQ_CHIP_PIPELINE_P4

#include "metadata.p4"
#include "../events.p4"
#include "lookup.p4"
#include "admit.p4"
#include "dispatch.p4"
#include "permit.p4"
#include "version.p4"
#include "outcome.p4"
#include "objects.p4"
#include "reply.p4"
#include "routing.p4"

control ChipPipeline(inout headers_t hdr, inout chip_metadata_t meta, TRAFFIC_PARAMETERS) {
    ChipPort() port;
    ChipLookup() lookup;
    ChipAdmit() admit;
    ChipDispatch() dispatch;
    ChipAccess() access;
    ChipPermit() permit;
    ChipLatest() latest;
    ChipVersion() version;
    ChipOutcome() outcome;
    ChipObjects() objects;
    ChipReply() reply;
    ChipRouting() routing;
    @id(0x12424530) COUNTER(EVENTS) events;

    @hidden action drop(bit<8> why) {
        TM_DROP = TM_DROPPED;
        meta.event = why;
    }
    @hidden action refuse() {
        TM_DROP = TM_DROPPED;
        meta.event = meta.refused;
    }
    @hidden action send_packet_out() {
        TM_PORT = hdr.packet_out.egress_port;
        meta.event = EVENT_PACKET_OUT;
    }

    apply {
        if (hdr.packet_out.isValid() && hdr.packet_out.submit_to_ingress == 0) {
            send_packet_out();
        } else if (!hdr.ipv4.isValid()) {
            drop(EVENT_DROP_NOT_IPV4);
        } else if (meta.checksum_error == 1) {
            drop(EVENT_DROP_CHECKSUM);
        } else {
            port.apply(hdr, meta);
            if (hdr.netcraq.isValid()) {
                meta.is_netcraq = 1;
                lookup.apply(hdr, meta);
                access.apply(hdr, meta);
                admit.apply(hdr, meta);
                /* Not within the condition, which would put it a stage later. */
                dispatch.apply(hdr, meta);
                if (meta.refused == 0) {
                    permit.apply(hdr, meta);
                    latest.apply(hdr, meta);
                    version.apply(hdr, meta);
                    outcome.apply(hdr, meta);
                    objects.apply(hdr, meta);
                    hdr.ipv4.identification = meta.principal;
                    reply.apply(hdr, meta, TRAFFIC);
                    meta.leaves = 1;
                } else {
                    refuse();
                }
            } else if (meta.ports != 0) {
                drop(EVENT_DROP_MALFORMED);
            } else if (!hdr.udp.isValid() && hdr.ipv4.protocol == PROTOCOL_UDP && meta.trust != TRUST_FABRIC &&
                       meta.trust != TRUST_CONTROLLER) {
                drop(EVENT_DROP_NOT_PLAIN);
            } else {
                meta.leaves = 1;
            }
            if (meta.leaves == 1) {
                routing.apply(hdr, meta, TRAFFIC);
            }
        }
        hdr.packet_out.setInvalid();
        /* A packet counts once, in its last pass. */
        if (meta.verdict != chip_verdict_t.AGAIN) {
            COUNT(events, meta.event);
        }
    }
}

#endif

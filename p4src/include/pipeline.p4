/* SPDX-License-Identifier: Apache-2.0
 *
 *   ┌───────────┐    ┌───────┐    ┌─────────┐
 *   │ Admission │───▶│ Chain │───▶│ Routing │───▶ meta.forwarding
 *   └───────────┘    └───────┘    └─────────┘
 *   may this port    CRAQ (only   IPv4 (unless
 *   send the         NetCRAQ      Chain has decided
 *   packet?          packets)     already)
 *
 * The ingress that both architectures share. It counts exactly one event per packet.
 */
#ifndef NETCRAQ_PIPELINE_P4
#define NETCRAQ_PIPELINE_P4

#include "headers.p4"
#include "events.p4"
#include "admission.p4"
#include "chain.p4"
#include "routing.p4"

control Pipeline(inout headers_t hdr, inout metadata_t meta) {
    Admission() admission;
    Chain() chain;
    Routing() routing;
    @id(0x12424530) COUNTER(EVENTS) events;

    apply {
        if (hdr.packet_out.isValid() && hdr.packet_out.submit_to_ingress == 0) {
            meta.event = EVENT_PACKET_OUT;
            meta.forwarding.egress_port = hdr.packet_out.egress_port;
            meta.forwarding.routed = true;
        } else if (!hdr.ipv4.isValid()) {
            meta.event = EVENT_DROP_NOT_IPV4;
            meta.forwarding.drop = true;
        } else if (meta.checksum_error) {
            meta.event = EVENT_DROP_CHECKSUM;
            meta.forwarding.drop = true;
        } else {
            admission.apply(hdr, meta);
            if (meta.is_netcraq && !meta.forwarding.drop) {
                chain.apply(hdr, meta);
            }
            if (!meta.forwarding.drop && !meta.forwarding.routed && meta.forwarding.multicast_group == 0) {
                routing.apply(hdr, meta);
            }
        }
        hdr.packet_out.setInvalid();
        COUNT(events, (bit<32>)meta.event);
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 *            ┌──────────────┐   ┌────────────┐   ┌───────────────┐
 *  packet ──▶│ well-formed? │──▶│ port_trust │──▶│ may this port │──▶ Chain
 *            └──────┬───────┘   └────────────┘   │ send this op? │
 *                   ▼ drop                       └──────┬────────┘
 *                                                       ▼ drop
 *
 * Everything that has a NetCRAQ port passes here at every switch, whoever it is addressed to: a host port lets in client requests only, so no host can forge an
 * acknowledgement, a stamped write or a reply that another switch would believe because it came over a fabric port.
 */
#ifndef NETCRAQ_ADMISSION_P4
#define NETCRAQ_ADMISSION_P4

#include "headers.p4"
#include "events.p4"

control Admission(inout headers_t hdr, inout metadata_t meta) {
    action host_port() {
        meta.trust = trust_t.HOST;
    }
    action fabric_port() {
        meta.trust = trust_t.FABRIC;
    }
    /* One entry a port that leads to another switch. A port without an entry is a host's, which is the safe side. */
    table port_trust {
        key = { meta.ingress_port: exact @name("ingress_port"); }
        actions = { host_port; fabric_port; }
        const default_action = host_port();
        size = 512;
    }

    @hidden action refuse(bit<8> why) {
        meta.event = why;
        meta.forwarding.drop = true;
    }

    apply {
        if (hdr.udp.isValid() && (hdr.udp.dst_port == NETCRAQ_PORT || hdr.udp.src_port == NETCRAQ_PORT)) {
            meta.is_netcraq = true;
        }
        if (meta.is_netcraq) {
            if (meta.ingress_port == CPU_PORT) {
                meta.trust = trust_t.CONTROLLER;
            } else {
                port_trust.apply();
            }
            if (!hdr.value.isValid() || hdr.udp.length != NETCRAQ_UDP_LENGTH || hdr.ipv4.total_length != NETCRAQ_UDP_LENGTH + 20 ||
                (hdr.netcraq.length > VALUE_BYTES && hdr.netcraq.length != TOMBSTONE)) {
                refuse(EVENT_DROP_MALFORMED);
            } else if (hdr.netcraq.KV_OP == kv_op_t.READ) {
                if (hdr.udp.dst_port != NETCRAQ_PORT) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if (meta.trust == trust_t.HOST && (hdr.netcraq.flags & ~EVENTUAL) != 0) {
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else if (hdr.netcraq.KV_OP == kv_op_t.WRITE || hdr.netcraq.KV_OP == kv_op_t.CAS) {
                if (hdr.udp.dst_port != NETCRAQ_PORT) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if (meta.trust == trust_t.HOST && hdr.netcraq.flags != 0) {
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else if (hdr.netcraq.KV_OP == kv_op_t.READ_REPLY || hdr.netcraq.KV_OP == kv_op_t.WRITE_REPLY || hdr.netcraq.KV_OP == kv_op_t.CAS_REPLY) {
                if (hdr.udp.src_port != NETCRAQ_PORT) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if (meta.trust == trust_t.HOST) {
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else if (hdr.netcraq.KV_OP == kv_op_t.ACK) {
                if (hdr.udp.dst_port != NETCRAQ_PORT) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if (meta.trust == trust_t.HOST) {
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else if (hdr.netcraq.KV_OP == kv_op_t.SYNC || hdr.netcraq.KV_OP == kv_op_t.LEASE || hdr.netcraq.KV_OP == kv_op_t.FETCH) {
                if (hdr.udp.dst_port != NETCRAQ_PORT) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if (meta.trust != trust_t.CONTROLLER) {
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else {
                /* LEASE_REPLY, FETCH_REPLY and SYNC_REPLY go to the controller by the CPU port and are never received. */
                refuse(EVENT_DROP_UNKNOWN_OP);
            }
        }
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 *            ┌────────────┐  host   ┌────────────────────────┐   ┌──────────────┐   ┌──────────────┐
 *  packet ──▶│ port_trust │────────▶│ open? plain? its own   │──▶│ well-formed? │──▶│ may this     │──▶ Chain
 *            └─────┬──────┘         │ address? not too many? │   └──────┬───────┘   │ port send    │
 *                  │                └───────────┬────────────┘          ▼ drop      │ this op, and │
 *                  │ fabric, controller         ▼ drop             ▲                │ this session?│
 *                  └───────────────────────────────────────────────┘                └──────┬───────┘
 *                                                                                          └▶ drop, or a refusal
 *
 * At every switch, each packet with a NetCRAQ port passes this control, whatever its destination.
 * Other switches believe a packet that has got into the network, so the switch at the host's port,
 * which knows the host, decides what the host may send:
 * - only client requests, so a host cannot forge an ACK, a stamped write or a reply;
 * - only with the host's own source address, so no third party receives its answers;
 * - only with sessions that are leased to this port.
 * The switch overwrites the principal in the request with the port's.
 */
#ifndef NETCRAQ_ADMISSION_P4
#define NETCRAQ_ADMISSION_P4

#include "headers.p4"
#include "events.p4"

control Admission(inout headers_t hdr, inout metadata_t meta) {
    /* The rate of packets that a host may send, by ingress port. A cell without a configuration
     * sets no limit. */
    @id(0x14B2FC52) METER(512) host_rate;

    @id(0x0142FD43)
    action closed_port() {
        meta.trust = trust_t.CLOSED;
    }
    /* Writes the principal into the request, over whatever the host put there. A principal is
     * neither 0 nor CONTROLLER. An address of 0 means that the host's address is unknown. */
    @id(0x010AC89C)
    @action_restriction("principal != 0 && principal != 65535")
    action host_port(@id(1) principal_t principal, @id(2) @format(IPV4_ADDRESS) ipv4_addr_t address) {
        meta.trust = trust_t.HOST;
        hdr.ipv4.identification = principal;
        meta.port_addr = address;
    }
    /* A host of a lab network: it may use any client session, leased or not. */
    @id(0x014DAEA7)
    @action_restriction("principal != 0 && principal != 65535")
    action open_host_port(@id(1) principal_t principal, @id(2) @format(IPV4_ADDRESS) ipv4_addr_t address) {
        meta.trust = trust_t.HOST;
        hdr.ipv4.identification = principal;
        meta.port_addr = address;
        meta.any_session = true;
    }
    @id(0x01DF5671)
    action fabric_port() {
        meta.trust = trust_t.FABRIC;
    }
    /* One entry per port that leads to another switch, or to a host that may use the store. A port
     * without an entry is closed. The CPU port needs no entry, because the table is not applied to
     * its packets. */
    @id(0x0236A5E3)
    @entry_restriction(TEXT_OF(ingress_port < CPU_PORT))
    table port_trust {
        key = {
            meta.ingress_port: exact @id(1) @name("ingress_port");
        }
        actions = {
            closed_port;
            host_port;
            open_host_port;
            fabric_port;
        }
        const default_action = closed_port();
        size = 512;
    }

    @id(0x01B111EF)
    @action_restriction(TEXT_OF(port < CPU_PORT))
    action leased_to(@id(1) bit<9> port) {
        meta.session_port = port;
    }
    @id(0x01440340)
    action not_leased() {
    }
    /* The port to which each session is leased, for host ports of this switch. Session 0 means no
     * session. */
    @id(0x021640B4)
    @entry_restriction(TEXT_OF(session != 0 && session < SESSIONS))
    table session_lease {
        key = {
            hdr.netcraq.session: exact @id(1) @name("session");
        }
        actions = {
            leased_to;
            @defaultonly not_leased;
        }
        const default_action = not_leased();
        size = SESSIONS;
    }

    @hidden action refuse(bit<8> why) {
        meta.event = why;
        meta.forwarding.drop = true;
    }

    apply {
        bool exceeded = false;
        bool plain = hdr.udp.isValid();     // false for UDP in a fragment, after IP options, or too short
        if (plain && (hdr.udp.dst_port == NETCRAQ_PORT || hdr.udp.src_port == NETCRAQ_PORT)) {
            meta.is_netcraq = true;
        }
        if (meta.ingress_port == CPU_PORT) {
            meta.trust = trust_t.CONTROLLER;
            hdr.ipv4.identification = CONTROLLER;
        } else if (meta.is_netcraq || (!plain && hdr.ipv4.protocol == PROTOCOL_UDP)) {
            port_trust.apply();
            if (meta.trust != trust_t.FABRIC) {
                if (!plain) {
                    refuse(EVENT_DROP_NOT_PLAIN);
                } else if (meta.trust == trust_t.CLOSED) {
                    refuse(EVENT_DROP_CLOSED_PORT);
                } else {
                    METER_EXCEEDED(host_rate, meta.ingress_port, exceeded)
                    if (exceeded) {
                        refuse(EVENT_DROP_RATE);
                    } else if (hdr.ipv4.src != meta.port_addr && meta.port_addr != 0) {
                        refuse(EVENT_DROP_SOURCE);
                    }
                }
            }
        }
        if (meta.is_netcraq && !meta.forwarding.drop) {
            if (!hdr.value.isValid() || hdr.udp.length != NETCRAQ_UDP_LENGTH ||
                hdr.ipv4.total_length != NETCRAQ_UDP_LENGTH + 20 ||
                (hdr.netcraq.length > VALUE_BYTES && hdr.netcraq.length != TOMBSTONE)) {
                refuse(EVENT_DROP_MALFORMED);
            } else if (hdr.netcraq.KV_OP == kv_op_t.READ) {
                if (hdr.udp.dst_port != NETCRAQ_PORT) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if ((meta.trust == trust_t.HOST && (hdr.netcraq.flags & ~EVENTUAL) != 0) ||
                           (hdr.netcraq.flags & ~(EVENTUAL | DIRTY_FORWARDED)) != 0) {
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else if (hdr.netcraq.KV_OP == kv_op_t.WRITE || hdr.netcraq.KV_OP == kv_op_t.CAS) {
                if (hdr.udp.dst_port != NETCRAQ_PORT) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if (meta.trust == trust_t.HOST) {
                    if (hdr.netcraq.flags != 0) {
                        refuse(EVENT_DROP_UNTRUSTED);
                    } else if (hdr.netcraq.session != 0 &&
                               !(meta.any_session && hdr.netcraq.session > CONTROLLER_SESSIONS)) {
                        session_lease.apply();
                        if (meta.session_port != meta.ingress_port) {
                            meta.refusal = STATUS_BAD_SESSION;
                        }
                    }
                } else if (meta.trust == trust_t.FABRIC && (hdr.netcraq.flags & STAMPED) == 0 &&
                           ((hdr.netcraq.flags & ~TO_HEAD) != 0 ||
                            (hdr.netcraq.session != 0 && hdr.netcraq.session <= CONTROLLER_SESSIONS &&
                             hdr.ipv4.identification != CONTROLLER))) {
                    /* No host's request looks like this after its own switch has let it in. */
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else if (hdr.netcraq.KV_OP == kv_op_t.READ_REPLY || hdr.netcraq.KV_OP == kv_op_t.WRITE_REPLY ||
                       hdr.netcraq.KV_OP == kv_op_t.CAS_REPLY || hdr.netcraq.KV_OP == kv_op_t.ACK) {
                bool ack = hdr.netcraq.KV_OP == kv_op_t.ACK;
                if ((ack && hdr.udp.dst_port != NETCRAQ_PORT) || (!ack && hdr.udp.src_port != NETCRAQ_PORT)) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if (meta.trust == trust_t.HOST) {
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else if (hdr.netcraq.KV_OP == kv_op_t.SYNC || hdr.netcraq.KV_OP == kv_op_t.LEASE ||
                       hdr.netcraq.KV_OP == kv_op_t.FETCH) {
                if (hdr.udp.dst_port != NETCRAQ_PORT) {
                    refuse(EVENT_DROP_MALFORMED);
                } else if (meta.trust != trust_t.CONTROLLER) {
                    refuse(EVENT_DROP_UNTRUSTED);
                }
            } else {
                /* Switches send LEASE_REPLY, FETCH_REPLY and SYNC_REPLY by the CPU port to the
                 * controller, and never receive them. */
                refuse(EVENT_DROP_UNKNOWN_OP);
            }
        }
    }
}

#endif

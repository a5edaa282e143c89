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
 * Everything that has a NetCRAQ port passes here at every switch, whoever it is addressed to. What
 * a host may say is decided at its own port, where it is known who it is: client requests only, so
 * no host can forge an acknowledgement, a stamped write or a reply that another switch would
 * believe because it came over a fabric port; only with its own address, so nobody is answered who
 * has not asked; only under sessions that were leased to this port. The port's principal is written
 * into the request over whatever the host had put there. What is in the network after this, other
 * switches believe.
 */
#ifndef NETCRAQ_ADMISSION_P4
#define NETCRAQ_ADMISSION_P4

#include "headers.p4"
#include "events.p4"

control Admission(inout headers_t hdr, inout metadata_t meta) {
    /* By ingress port: what a host may send, in packets; a cell that is not configured bounds
     * nothing. */
    @id(0x14B2FC52) METER(512) host_rate;

    @id(0x0142FD43)
    action closed_port() {
        meta.trust = trust_t.CLOSED;
    }
    /* The principal is written into the request here, over whatever the host had put. A principal
     * is neither 0 nor CONTROLLER; an address of 0 is one that is not known. */
    @id(0x010AC89C)
    @action_restriction("principal != 0 && principal != 65535")
    action host_port(@id(1) principal_t principal, @id(2) @format(IPV4_ADDRESS) ipv4_addr_t address) {
        meta.trust = trust_t.HOST;
        hdr.ipv4.identification = principal;
        meta.port_addr = address;
    }
    /* A host of a lab network: any client's session will do, leased or not. */
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
    /* One entry a port that leads to another switch or to a host that may use the store. A port
     * without an entry is closed. The controller's port has none: nobody asks. */
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
    /* The sessions that are leased to host ports of this switch. 0 is no session. */
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
        bool plain = hdr.udp.isValid();     // false for UDP: a fragment, options before it, or less than a header
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
                    /* As no host's request is when its switch has let it in. */
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
                /* LEASE_REPLY, FETCH_REPLY and SYNC_REPLY go to the controller by the CPU port and
                 * are never received. */
                refuse(EVENT_DROP_UNKNOWN_OP);
            }
        }
    }
}

#endif

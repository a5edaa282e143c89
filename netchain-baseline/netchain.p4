/* SPDX-License-Identifier: Apache-2.0
 *
 * NetChain for v1model: chain replication in switch registers (Jin et al., "NetChain: Scale-Free
 * Sub-RTT Coordination", NSDI 2018). The paper "Scalable Data Plane Caching for Kubernetes" (CNSM
 * 2022) compares NetCRAQ with it. We wrote this program from the two papers, to be as good as
 * NetChain's authors would make it.
 *
 *   parser ─▶ Detour ─▶ Replica ─▶ Detour ─▶ Routing ─▶ deparser
 *             replaces  reads, or  the same  IPv4
 *             failed    writes and for the
 *             switches  forwards   next hop
 *
 * The client puts the chain into the packet. The IPv4 destination is the switch to ask, and the
 * header lists the SC switches after it. Each switch makes the next one the destination when it has
 * done its part. A client sends a read only to the tail; the list then has the other switches, from
 * tail to head, in case the tail is gone. Keys are divided into virtual groups by their top byte. A
 * switch that comes back is filled and takes its place one group at a time.
 *
 *   -D SEQ_BITS=16 | 128    width of the sequence number: 16 as NetChain published it, 128 as in the CNSM comparison
 *   -D SLOTS=n              how many keys a switch holds
 */
#include <core.p4>
#include <v1model.p4>

#ifndef SEQ_BITS
#define SEQ_BITS 128
#endif
#ifndef SLOTS
#define SLOTS 65536
#endif

/* A sequence number has a session (the upper bits) and a count (the lower bits). Every new head
 * starts a session, so it never gives a number that the head before it has given (NetChain, section
 * 5.1). 16 bits have room only for the count. */
#if SEQ_BITS == 16
#define SESSION_BITS 0
#else
#define SESSION_BITS 32
#endif
#define COUNT_BITS (SEQ_BITS - SESSION_BITS)

#define VALUE_BITS 128
#define VALUE_BYTES 16
#define CPU_PORT 510

/* OP, STATUS, SC (1 + 1 + 2 bytes), KEY (4), SEQ, VALUE (16), and eight addresses: 58 bytes with a
 * SEQ of 16 bits, 72 with 128 bits. */
#define NETCHAIN_UDP_LENGTH (8 + 8 + SEQ_BITS / 8 + VALUE_BYTES + 32)

typedef bit<48> mac_addr_t;
typedef bit<32> ipv4_addr_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8>  PROTOCOL_UDP   = 17;
const bit<16> NETCHAIN_PORT  = 8888;      // NetChain, section 3

enum bit<8> op_t {
    READ         = 1,
    READ_REPLY   = 2,
    WRITE        = 3,
    WRITE_REPLY  = 4,
    CAS          = 5,
    CAS_REPLY    = 6,
    DELETE       = 7,
    DELETE_REPLY = 8
}

/* STATUS of a reply is the outcome. STATUS of a request is a set of flags: NUMBERED (the head has
 * given a number), STATUS_CAS_FAILED (the head found that the CAS fails) and NOTHING (it failed
 * because the key has no value). */
const bit<8> STATUS_OK         = 0;
const bit<8> STATUS_NOT_FOUND  = 1;
const bit<8> STATUS_CAS_FAILED = 2;
const bit<8> STATUS_GONE       = 3;       // no switch of the list is alive
const bit<8> NUMBERED          = 0x80;
const bit<8> NOTHING           = 0x40;

header ethernet_t {
    mac_addr_t dst;
    mac_addr_t src;
    bit<16>    ether_type;
}

header ipv4_t {
    bit<4>      version;
    bit<4>      ihl;
    bit<8>      tos;
    bit<16>     total_length;
    bit<16>     identification;
    bit<3>      flags;
    bit<13>     fragment_offset;
    bit<8>      ttl;
    bit<8>      protocol;
    bit<16>     checksum;
    ipv4_addr_t src;
    ipv4_addr_t dst;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

header netchain_t {
    op_t            OP;
    bit<8>          STATUS;
    bit<16>         SC;
    bit<32>         KEY;
    bit<SEQ_BITS>   SEQ;
    bit<VALUE_BITS> VALUE;                // of a CAS: the expected value (64 bits), then the new value (64)
    bit<256>        CHAIN;                // addresses of the switches still to visit, the next one first
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    netchain_t netchain;
}

struct metadata_t {
    bit<32>       slot;
    bit<32>       session;
    bool          head;
    bool          is_local;
    bit<1>        whole;
    bool          skipped;
    bit<SEQ_BITS>   stored;               // the sequence number that the slot holds
    bit<1>          there;                // whether the slot has a value
    bit<VALUE_BITS> value;                // the value that the slot holds
    bool            fresh;                // the packet's number is newer than `stored`
    bool            failed;               // the packet's CAS has failed, here or at the head
}

parser PacketParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (NETCHAIN_PORT, NETCHAIN_UDP_LENGTH): parse_netchain;
            default: accept;
        }
    }
    state parse_netchain {
        packet.extract(hdr.netchain);
        transition accept;
    }
}

control CheckChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

/* Decides whether the packet is newer than the slot. The head first gives the packet a number, and
 * decides a CAS. */
control Numbering(inout headers_t hdr, inout metadata_t meta) {
    apply {
        meta.failed = (hdr.netchain.STATUS & STATUS_CAS_FAILED) != 0;
        if ((hdr.netchain.STATUS & NUMBERED) != 0) {
#if SEQ_BITS == 16
            /* 16 bits wrap around, so a number counts as newer if it is less than half the range
             * ahead (RFC 1982). */
            bit<SEQ_BITS> ahead = hdr.netchain.SEQ - meta.stored;
            meta.fresh = ahead != 0 && ahead < 0x8000;
#else
            meta.fresh = hdr.netchain.SEQ > meta.stored;
#endif
        } else if (meta.head) {
            hdr.netchain.STATUS = NUMBERED;
            meta.failed = false;
            if (hdr.netchain.OP == op_t.CAS) {
                meta.failed = meta.value[63:0] != hdr.netchain.VALUE[127:64];
                hdr.netchain.VALUE = 64w0 ++ hdr.netchain.VALUE[63:0];
            }
            if (meta.failed) {
                hdr.netchain.STATUS = NUMBERED | STATUS_CAS_FAILED;
                if (meta.there == 0) {
                    hdr.netchain.STATUS = NUMBERED | STATUS_CAS_FAILED | NOTHING;
                }
                hdr.netchain.SEQ = meta.stored;
                hdr.netchain.VALUE = meta.value;
            } else {
                meta.fresh = true;
#if SEQ_BITS == 16
                hdr.netchain.SEQ = meta.stored + 1;
#else
                /* A new session continues the count of the last one. Its numbers are larger,
                 * whatever writes were lost. */
                hdr.netchain.SEQ = meta.session ++ (meta.stored[COUNT_BITS - 1:0] + 1);
#endif
            }
        }
    }
}

/* What a switch of the chain does with a packet that is addressed to it (NetChain, algorithm 1):
 *
 *   READ    ─▶ answer
 *   WRITE   ─▶ at the head: assign the next number ─┐
 *   CAS     ─▶ at the head: does the value match? ──┤─▶ newer than the slot? ─▶ store ─▶ on to the next switch; the last one answers
 *   DELETE  ─▶ as a WRITE without a value ──────────┘        └─ no: drop
 *
 * A CAS that fails continues to the tail, together with the value against which it failed.
 * Otherwise, if that value's own write was lost, the tail would answer that the CAS failed and
 * still serve the older value. Each register is read and written once. */
control Replica(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<SEQ_BITS>>(SLOTS) sequence;              // number of the write that a slot holds
    register<bit<VALUE_BITS>>(SLOTS) objects;
    register<bit<1>>(SLOTS) present;                      // 0: never written, or deleted
    counter(SLOTS, CounterType.packets) reads;
    counter(SLOTS, CounterType.packets) writes;
    Numbering() numbering;
    /* Dropped packets by reason: 0: no slot, 1: not newer, 2: wrong operation, 3: no number and
     * this is not the head. */
    counter(4, CounterType.packets) dropped;

    @hidden action answer(op_t op, bit<8> status) {
        ipv4_addr_t client = hdr.ipv4.src;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = client;
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = NETCHAIN_PORT;
        hdr.udp.checksum = 0;
        hdr.ipv4.ttl = 64;
        hdr.netchain.OP = op;
        hdr.netchain.STATUS = status;
    }
    @hidden action go_on() {
        hdr.ipv4.dst = hdr.netchain.CHAIN[255:224];
        hdr.netchain.CHAIN = hdr.netchain.CHAIN << 32;
        hdr.netchain.SC = hdr.netchain.SC - 1;
        hdr.udp.checksum = 0;
    }

    action set_slot(bit<32> slot) {
        meta.slot = slot;
    }
    action not_placed() {
        meta.slot = SLOTS;
    }
    /* The slots of the keys in this switch's virtual groups. */
    table key_index {
        key = { hdr.netchain.KEY: exact @name("KEY"); }
        actions = { set_slot; @defaultonly not_placed; }
        const default_action = not_placed();
        size = SLOTS;
    }

    action begin_session(bit<32> session) {
        meta.session = session;
        meta.head = true;
    }
    /* The virtual groups (the key's top byte) of which this switch is the head, and the session of
     * the numbers that it gives. A switch without an entry gives no number. The controller removes
     * the entry to stop a group's writes, so a late write at a former head gets no number. */
    table head_session {
        key = { hdr.netchain.KEY[31:24]: exact @name("group"); }
        actions = { begin_session; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 256;
    }

    op_t reply = op_t.READ_REPLY;

    apply {
        key_index.apply();
        head_session.apply();
        if (hdr.netchain.OP == op_t.WRITE) {
            reply = op_t.WRITE_REPLY;
        } else if (hdr.netchain.OP == op_t.CAS) {
            reply = op_t.CAS_REPLY;
        } else if (hdr.netchain.OP == op_t.DELETE) {
            reply = op_t.DELETE_REPLY;
        }
        if (hdr.netchain.OP != op_t.READ && hdr.netchain.OP != op_t.WRITE &&
            hdr.netchain.OP != op_t.CAS && hdr.netchain.OP != op_t.DELETE) {
            dropped.count(2);
            mark_to_drop(standard_metadata);
        } else if (meta.slot == SLOTS) {
            dropped.count(0);
            answer(reply, STATUS_NOT_FOUND);
        } else {
            sequence.read(meta.stored, meta.slot);
            present.read(meta.there, meta.slot);
            objects.read(meta.value, meta.slot);
            if (hdr.netchain.OP == op_t.READ) {
                reads.count(meta.slot);
                hdr.netchain.SEQ = meta.stored;
                hdr.netchain.VALUE = meta.value;
                if (meta.there == 1) {
                    answer(reply, STATUS_OK);
                } else {
                    answer(reply, STATUS_NOT_FOUND);
                }
            } else {
                numbering.apply(hdr, meta);
                if (meta.fresh) {
                    writes.count(meta.slot);
                    sequence.write(meta.slot, hdr.netchain.SEQ);
                    objects.write(meta.slot, hdr.netchain.VALUE);
                    if (hdr.netchain.OP == op_t.DELETE || (hdr.netchain.STATUS & NOTHING) != 0) {
                        present.write(meta.slot, 0);
                    } else {
                        present.write(meta.slot, 1);
                    }
                }
                if ((hdr.netchain.STATUS & NUMBERED) == 0) {
                    dropped.count(3);
                    mark_to_drop(standard_metadata);
                } else if (!meta.fresh && !meta.failed) {
                    /* A newer write has overtaken this one, and its reply also answers this one
                     * (algorithm 1, line 12). */
                    dropped.count(1);
                    mark_to_drop(standard_metadata);
                } else if (hdr.netchain.SC != 0) {
                    go_on();
                } else if (meta.failed) {
                    answer(reply, STATUS_CAS_FAILED);
                } else {
                    answer(reply, STATUS_OK);
                }
            }
        }
    }
}

/* Failover and recovery that clients do not notice (NetChain, section 5): a failed switch's
 * neighbours handle its packets. */
control Detour(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    bool gone_place = false;

    action skip() {
        gone_place = true;
    }
    action redirect(ipv4_addr_t addr) {
        hdr.ipv4.dst = addr;
        hdr.udp.checksum = 0;
    }
    /* Packets for a failed switch: skip it and go on to the next of the list, or, after the
     * recovery, redirect to the switch that replaces it. Every packet passes this table, which is
     * usually empty. It is ternary because an empty ternary table costs a software target almost
     * nothing, whereas an exact one costs a hash. */
    table gone {
        key = { hdr.ipv4.dst: ternary @name("ipv4_dst"); }
        actions = { skip; redirect; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 64;
    }
    /* The virtual groups (the key's top byte) in which another switch, or the same switch after a
     * restart, has taken the failed switch's place. */
    table taken {
        key = {
            hdr.ipv4.dst: exact @name("ipv4_dst");
            hdr.netchain.KEY[31:24]: exact @name("group");
        }
        actions = { redirect; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 2048;
    }
    apply {
        gone.apply();
        if (gone_place) {
            if (!taken.apply().hit) {
                hdr.udp.checksum = 0;
                if (hdr.netchain.SC != 0) {
                    hdr.ipv4.dst = hdr.netchain.CHAIN[255:224];
                    hdr.netchain.CHAIN = hdr.netchain.CHAIN << 32;
                    hdr.netchain.SC = hdr.netchain.SC - 1;
                    meta.skipped = true;
                } else {
                    /* The failed switch was the last of the list, so this switch answers for it. */
                    ipv4_addr_t client = hdr.ipv4.src;
                    hdr.ipv4.src = hdr.ipv4.dst;
                    hdr.ipv4.dst = client;
                    hdr.udp.dst_port = hdr.udp.src_port;
                    hdr.udp.src_port = NETCHAIN_PORT;
                    hdr.ipv4.ttl = 64;
                    bit<8> status = STATUS_OK;
                    if (hdr.netchain.OP == op_t.READ) {
                        hdr.netchain.OP = op_t.READ_REPLY;
                        status = STATUS_GONE;
                    } else {
                        if (hdr.netchain.OP == op_t.WRITE) {
                            hdr.netchain.OP = op_t.WRITE_REPLY;
                        } else if (hdr.netchain.OP == op_t.CAS) {
                            hdr.netchain.OP = op_t.CAS_REPLY;
                        } else {
                            hdr.netchain.OP = op_t.DELETE_REPLY;
                        }
                        /* A request without a number was executed nowhere. */
                        if ((hdr.netchain.STATUS & NUMBERED) == 0) {
                            status = STATUS_GONE;
                        } else if ((hdr.netchain.STATUS & STATUS_CAS_FAILED) != 0) {
                            status = STATUS_CAS_FAILED;
                        }
                    }
                    hdr.netchain.STATUS = status;
                }
            }
        }
    }
}

control NetchainIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Replica() replica;
    Detour() detour;
    Detour() detour_next;

    action set_local(bit<1> whole) {
        meta.is_local = true;
        meta.whole = whole;
    }
    /* This switch's own addresses. While the switch has only some of its groups (whole is 0), it
     * does not process a packet that a skip has readdressed to it, because `taken` was not
     * consulted for the new address. Instead the packet goes by the route for this switch's address
     * to a neighbour, which consults `taken`. */
    table local_address {
        key = { hdr.ipv4.dst: exact @name("ipv4_dst"); }
        actions = { set_local; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 16;
    }
    action forward(mac_addr_t dst_mac, bit<9> port) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    action no_route() {
        mark_to_drop(standard_metadata);
    }
    table ipv4_lpm {
        key = { hdr.ipv4.dst: lpm @name("ipv4_dst"); }
        actions = { forward; no_route; }
        const default_action = no_route();
        size = 1024;
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl == 0 || standard_metadata.checksum_error == 1) {
            mark_to_drop(standard_metadata);
        } else {
            if (hdr.netchain.isValid()) {
                detour.apply(hdr, meta, standard_metadata);
                local_address.apply();
                if (meta.is_local && (meta.whole == 1 || !meta.skipped) && standard_metadata.egress_spec != 511 &&
                    hdr.udp.dst_port == NETCHAIN_PORT) {
                    replica.apply(hdr, meta, standard_metadata);
                    if (standard_metadata.egress_spec != 511 && hdr.udp.dst_port == NETCHAIN_PORT) {
                        detour_next.apply(hdr, meta, standard_metadata);
                    }
                }
            }
            if (standard_metadata.egress_spec != 511) {
                ipv4_lpm.apply();
            }
        }
    }
}

control NetchainEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply { }
}

control UpdateChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control PacketDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(PacketParser(), CheckChecksum(), NetchainIngress(), NetchainEgress(), UpdateChecksum(), PacketDeparser()) main;

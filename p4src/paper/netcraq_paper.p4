/* SPDX-License-Identifier: Apache-2.0
 *
 * NetCRAQ as "Scalable Data Plane Caching for Kubernetes" (Sagkriotis and Pezaros, CNSM 2022)
 * describes it: chain replication with apportioned queries (CRAQ) in the registers of switches.
 *
 *             ┌───────────────────┐   ┌──────────────┐   ┌─────────┐
 *   parser ──▶│ get_my_role       │──▶│ Algorithm 1  │──▶│ routing │──▶ deparser
 *             │ what am I in this │   │ READ, WRITE, │   │ one way,│
 *             │ chain?            │   │ ACKNOWLEDGE  │   │ or many │
 *             └───────────────────┘   └──────────────┘   └─────────┘
 *
 *   READ    any node ─▶ is its copy clean? ─ yes ─▶ READ_REPLY
 *                                          └ no ──▶ the tail ─▶ READ_REPLY
 *   WRITE   head ─▶ replica ─▶ ... ─▶ tail ─▶ ACKNOWLEDGE, by multicast: to the client, and to every node
 *
 * Read this file from top to bottom. README.md names the section of the paper behind each part, and
 * says what this program does where the paper is silent.
 *
 *   -D KEYS=k                 how many keys a switch holds
 *   -D NUMBER_OF_VERSIONS=n   how many cells each key has: one for the clean version, n - 1 for dirty ones
 */
#include <core.p4>
#include <v1model.p4>

#ifndef KEYS
#define KEYS 65536
#endif
#ifndef NUMBER_OF_VERSIONS
#define NUMBER_OF_VERSIONS 8
#endif

/* ---- Headers ---- */

typedef bit<48> mac_addr_t;
typedef bit<32> ipv4_addr_t;
typedef bit<14> version_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8>  PROTOCOL_UDP   = 17;
const bit<16> PAPER_PORT     = 20034;

enum bit<2> kv_op_t {
    ACKNOWLEDGE = 0,
    READ        = 1,
    READ_REPLY  = 2,
    WRITE       = 3
}

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

/* 22 bytes (section IV-B). The paper has only the three fields in capitals, 162 bits. This program
 * uses the other 14 bits for the number of a write. */
header netcraq_t {
    kv_op_t   KV_OP;
    version_t version;       // the number of a WRITE or an ACKNOWLEDGE of a key, from 1; 0: not numbered yet
    bit<32>   KEY_ID;        // the key's index in the registers
    bit<128>  VALUE;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    netcraq_t  netcraq;
}

struct metadata_t {
    /* This node's role in the chain, from the control plane. */
    bool        is_member;
    bit<1>      is_head;
    bit<1>      is_tail;
    ipv4_addr_t my_addr;
    ipv4_addr_t next_addr;   // the next node towards the tail
    ipv4_addr_t tail_addr;
    /* The packet's key, as read from the registers. */
    bit<8>      read_index;
    bit<8>      write_index;
    version_t   newest;
}

/* ---- Parser ---- */

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
    /* Requests have the destination port PAPER_PORT, and replies have it as their source port. */
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.src_port) {
            (PAPER_PORT, _): parse_netcraq;
            (_, PAPER_PORT): parse_netcraq;
            default: accept;
        }
    }
    state parse_netcraq {
        packet.extract(hdr.netcraq);
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

/* ---- Ingress ---- */

control PaperIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    /* Section IV-A. A key has NUMBER_OF_VERSIONS cells in a row:
     *
     *   cell    0         1         2         3       ...
     *         ┌─────────┬─────────┬─────────┬─────────┐
     *         │ clean   │ dirty   │ dirty   │ (free)  │     read_index = 2: the newest version; 0: the key is clean
     *         └─────────┴─────────┴─────────┴─────────┘     write_index = 3: the next free cell; 0: the key is clean
     */
    register<bit<128>>(KEYS * NUMBER_OF_VERSIONS) objects_store;
    register<bit<8>>(KEYS) read_index;
    register<bit<8>>(KEYS) write_index;
    /* The number of the newest write of each key that this node has seen. */
    register<version_t>(KEYS) newest_version;
    /* The reads and writes of each key at this node (section III-A). The control plane reads the
     * counter to choose the keys that belong in the switches. */
    counter(KEYS, CounterType.packets) accesses;

    action drop() {
        mark_to_drop(standard_metadata);
        exit;
    }

    /* -- Roles (sections IV-B and IV-C). The control plane writes them; packets do not carry roles.
     * -- */

    action set_role(bit<1> is_head, bit<1> is_tail, ipv4_addr_t my_addr, ipv4_addr_t next_addr,
                    ipv4_addr_t tail_addr) {
        meta.is_member = true;
        meta.is_head = is_head;
        meta.is_tail = is_tail;
        meta.my_addr = my_addr;
        meta.next_addr = next_addr;
        meta.tail_addr = tail_addr;
    }
    /* The table has no key: a node has one role, which is the default action. */
    table get_my_role {
        actions = { set_role; NoAction; }
        default_action = NoAction();
    }

    /* -- The steps of Algorithm 1. -- */

    action clean_read() {
        objects_store.read(hdr.netcraq.VALUE, hdr.netcraq.KEY_ID * NUMBER_OF_VERSIONS);
    }
    action dirty_read() {
        objects_store.read(hdr.netcraq.VALUE,
            hdr.netcraq.KEY_ID * NUMBER_OF_VERSIONS + (bit<32>)meta.read_index);
    }
    /* A version that the tail has committed goes to cell 0. The key is clean then, because all its
     * older versions are gone. */
    action clean_write() {
        objects_store.write(hdr.netcraq.KEY_ID * NUMBER_OF_VERSIONS, hdr.netcraq.VALUE);
        newest_version.write(hdr.netcraq.KEY_ID, hdr.netcraq.version);
        read_index.write(hdr.netcraq.KEY_ID, 0);
        write_index.write(hdr.netcraq.KEY_ID, 0);
    }
    /* A version on its way to the tail goes to the next free cell. The key is dirty then. */
    action dirty_write() {
        objects_store.write(hdr.netcraq.KEY_ID * NUMBER_OF_VERSIONS + (bit<32>)meta.write_index, hdr.netcraq.VALUE);
        newest_version.write(hdr.netcraq.KEY_ID, hdr.netcraq.version);
        read_index.write(hdr.netcraq.KEY_ID, meta.write_index);
        write_index.write(hdr.netcraq.KEY_ID, meta.write_index + 1);
    }

    action forward_to_tail() {
        hdr.ipv4.dst = meta.tail_addr;
        hdr.udp.checksum = 0;
    }
    /* A write visits every node on its way to the tail. */
    action forward_to_next() {
        hdr.ipv4.dst = meta.next_addr;
        hdr.udp.checksum = 0;
    }
    action answer(kv_op_t op) {
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = meta.my_addr;
        hdr.ipv4.ttl = 64;
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = PAPER_PORT;
        hdr.udp.checksum = 0;
        hdr.netcraq.KV_OP = op;
    }

    /* The head numbers a write. The number after 16,383 is 1; 0 means that a write has no
     * number. */
    action assign_version() {
        hdr.netcraq.version = meta.newest + 1;
    }
    action assign_first_version() {
        hdr.netcraq.version = 1;
    }

    /* -- Routing: a packet leaves by one port, an ACKNOWLEDGE by all ports of a multicast group.
     * -- */

    action forward(mac_addr_t dst_mac, bit<9> port) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    table ipv4_lpm {
        key = { hdr.ipv4.dst: lpm @name("ipv4_dst"); }
        actions = { forward; drop; }
        const default_action = drop();
        size = 1024;
    }
    /* Each port that can lead to a client has a multicast group. An ACKNOWLEDGE uses the group of
     * its client's port: one copy goes to the client, and one to each neighbour that is farther
     * from the tail than this node. Each node gets one copy and hands it on. */
    action multicast() {
        standard_metadata.mcast_grp = 1 + (bit<16>)standard_metadata.egress_spec;
    }

    apply {
        if (!hdr.ipv4.isValid() || standard_metadata.checksum_error == 1) {
            drop();
        }
        if (hdr.netcraq.isValid()) {
            get_my_role.apply();
            if (meta.is_member && hdr.netcraq.KEY_ID >= KEYS) {
                drop();
            }
        }
        bool is_request = meta.is_member && hdr.ipv4.dst == meta.my_addr;
        bool acknowledges = meta.is_member && hdr.netcraq.KV_OP == kv_op_t.ACKNOWLEDGE;

        /* Algorithm 1, with the paper's line numbers. The paper requires atomic operations (IV-C):
         * no other packet may come between a packet's reads and writes of the registers. */
        @atomic {
            if (is_request && hdr.netcraq.KV_OP == kv_op_t.READ) {                      // 4
                accesses.count(hdr.netcraq.KEY_ID);
                read_index.read(meta.read_index, hdr.netcraq.KEY_ID);                   // 5
                if (meta.read_index == 0) {                                             // 7
                    clean_read();
                    answer(kv_op_t.READ_REPLY);
                } else if (meta.is_tail == 1) {                                         // 10
                    dirty_read();
                    answer(kv_op_t.READ_REPLY);
                } else {                                                                // 13
                    forward_to_tail();
                }
            } else if (is_request && hdr.netcraq.KV_OP == kv_op_t.WRITE) {              // 15
                accesses.count(hdr.netcraq.KEY_ID);
                newest_version.read(meta.newest, hdr.netcraq.KEY_ID);
                if (meta.is_head == 1) {
                    assign_version();
                    if (hdr.netcraq.version == 0) {
                        assign_first_version();
                    }
                }
                /* Numbers wrap around, so a number counts as newer if it is less than half the
                 * range ahead (RFC 1982). If the write is not newer, a later write has overtaken
                 * it. */
                version_t ahead = hdr.netcraq.version - meta.newest;
                if (hdr.netcraq.version == 0 || ahead == 0 || ahead >= 0x2000) {
                    drop();
                }
                if (meta.is_tail == 1) {                                                // 27
                    clean_write();
                    answer(kv_op_t.ACKNOWLEDGE);
                    acknowledges = true;
                } else {
                    write_index.read(meta.write_index, hdr.netcraq.KEY_ID);             // 16
                    if (meta.write_index >= NUMBER_OF_VERSIONS) {                       // 22
                        drop();
                    }
                    if (meta.write_index == 0) {                                        // 18: the first dirty version
                        meta.write_index = 1;
                    }
                    dirty_write();                                                      // 25
                    forward_to_next();
                }
            } else if (acknowledges) {                                                  // 31
                /* If this node has a newer version of the key, it ignores this ACKNOWLEDGE. The
                 * newer version's own ACKNOWLEDGE is still to come. */
                newest_version.read(meta.newest, hdr.netcraq.KEY_ID);
                if (hdr.netcraq.version - meta.newest < 0x2000) {
                    clean_write();
                }
            }
        }

        if (hdr.ipv4.ttl <= 1) {
            drop();
        }
        ipv4_lpm.apply();
        if (acknowledges) {                                                             // 30
            multicast();
        }
    }
}

control PaperEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply { }
}

/* ---- Deparser ---- */

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

@pkginfo(name = "netcraq_paper", version = "1", organization = "NetCRAQ", url = "https://github.com/netcraq/netcraq")
V1Switch(PacketParser(), CheckChecksum(), PaperIngress(), PaperEgress(), UpdateChecksum(), PacketDeparser()) main;

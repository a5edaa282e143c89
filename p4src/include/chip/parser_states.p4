/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser of the chip's program: as parser_states.p4, and the checks of lengths, which a parser
 * makes by selecting. The architectures' parsers include it, as they do the other.
 */
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4); PARSER_SUM_IPV4(hdr.ipv4)
        transition select(hdr.ipv4.version, hdr.ipv4.ihl) {
            (4, 5): parse_plain_ipv4;
            default: parse_options;
        }
    }
    state parse_options {
        meta.options = 1;
        transition accept;
    }
    state parse_plain_ipv4 {
        PARSER_VERIFY_IPV4(hdr.ipv4)
        transition select(hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0 &&& 1, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.src_port) {
            (NETCRAQ_PORT, NETCRAQ_PORT): parse_both_ports;
            (NETCRAQ_PORT, _): parse_destination_port;
            (_, NETCRAQ_PORT): parse_source_port;
            default: accept;
        }
    }
    state parse_both_ports {
        meta.ports = 3;
        transition parse_netcraq;
    }
    state parse_destination_port {
        meta.ports = 2;
        transition parse_netcraq;
    }
    state parse_source_port {
        meta.ports = 1;
        transition parse_netcraq;
    }
    state parse_netcraq {
        packet.extract(hdr.netcraq);
        packet.extract(hdr.value);
        transition select(hdr.udp.length, hdr.ipv4.total_length) {
            (NETCRAQ_UDP_LENGTH, NETCRAQ_UDP_LENGTH + 20): parse_length;
            default: accept;
        }
    }
    state parse_length {
        transition select(hdr.netcraq.length) {
            0 &&& ~((bit<16>)VALUE_BYTES - 1): parse_sound;
            VALUE_BYTES: parse_sound;
            TOMBSTONE: parse_sound;
            default: accept;
        }
    }
    state parse_sound {
        meta.sound = 1;
        transition accept;
    }

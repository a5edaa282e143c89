/* SPDX-License-Identifier: Apache-2.0
 *
 *   [packet_out] ─▶ ethernet ─▶ ipv4 ─▶ udp ─▶ netcraq ─▶ value
 *
 * The states that the parsers of both architectures share. Each parser includes this text after its
 * own start state, and declares `packet` and `hdr`. It is not a parser of its own because p4c's PSA
 * back end takes no checksum unit in a parser that another parser calls.
 *
 * No switch parses a fragment, or a packet with IPv4 options, as NetCRAQ, because the first switch
 * could not check it. A truncated NetCRAQ packet leaves `value` invalid, and Admission drops it.
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
            default: accept;
        }
    }
    state parse_plain_ipv4 {
        PARSER_VERIFY_IPV4(hdr.ipv4)
        transition select(hdr.ipv4.flags & 1, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.src_port) {
            (NETCRAQ_PORT, _): parse_netcraq;
            (_, NETCRAQ_PORT): parse_netcraq;
            default: accept;
        }
    }
    state parse_netcraq {
        packet.extract(hdr.netcraq);
        packet.extract(hdr.value);
        transition accept;
    }

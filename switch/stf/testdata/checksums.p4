// SPDX-License-Identifier: Apache-2.0
// Checksums and hashes over fields and constants of any widths, of headers that may be missing: the pseudo headers of UDP and TCP, fields that end within a byte, options, payload.
#include <core.p4>
#include <v1model.p4>

header which_t {
    bit<96> addresses;
    bit<16> type;
    bit<8> which; // which of the headers that follow are there, one bit each
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> total;
    bit<32> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header options_t {
    bit<8> words;
    varbit<320> options;
}

header l4_t {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

header odd_t {
    bit<3> a;
    bit<13> b;
    bit<7> c;
    bit<1> d;
    bit<67> e;
    bit<5> f;
}

header sums_t {
    bit<16> ip;
    bit<16> tcp;
    bit<16> any;
    bit<16> options;
    bit<16> payload;
    bit<16> xor;
    bit<16> crc;
    bit<32> crc32;
    bit<16> hashed;
    bit<16> xored;
    bit<32> custom32;
    bit<64> first;
    bit<16> custom16;
    bit<8> wrong;
}

struct headers_t {
    which_t which;
    ipv4_t ip;
    options_t more;
    l4_t l4;
    odd_t odd;
    odd_t odd2;
    sums_t sums;
}

struct metadata_t {
    bit<9> nine;
    bit<16> length;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.which);
        transition select(h.which.which[0:0]) {
            1 : ip;
            default : no_ip;
        }
    }
    state ip {
        pkt.extract(h.ip);
        transition no_ip;
    }
    state no_ip {
        transition select(h.which.which[1:1]) {
            1 : more;
            default : no_more;
        }
    }
    state more {
        pkt.extract(h.more, (bit<32>)(pkt.lookahead<bit<4>>()) * 24);
        transition no_more;
    }
    state no_more {
        transition select(h.which.which[2:2]) {
            1 : l4;
            default : no_l4;
        }
    }
    state l4 {
        pkt.extract(h.l4);
        transition no_l4;
    }
    state no_l4 {
        transition select(h.which.which[3:3]) {
            1 : odd;
            default : no_odd;
        }
    }
    state odd {
        pkt.extract(h.odd);
        transition no_odd;
    }
    state no_odd {
        transition select(h.which.which[4:4]) {
            1 : odd2;
            default : accept;
        }
    }
    state odd2 {
        pkt.extract(h.odd2);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.which.which[5:5] == 1, { h.ip.src, 4w3, h.l4.src, h.odd.a, h.odd2.c, 1w1 }, h.l4.checksum, HashAlgorithm.csum16);
        verify_checksum(h.which.which[6:6] == 1, { h.odd.a, h.l4.src, h.odd2.c, 1w1, h.ip.src }, h.l4.checksum, HashAlgorithm.xor16);
        verify_checksum_with_payload(h.which.which[7:7] == 1, { h.l4, h.odd.a, h.odd2.c, 11w100 }, h.ip.checksum, HashAlgorithm.csum16);
    }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        h.sums.setValid();
        h.sums.wrong = (bit<8>)sm.checksum_error;
        if (h.odd.isValid()) {
            m.nine = h.odd.b[8:0] + 5;
        }
        if (h.l4.isValid()) {
            m.length = h.l4.length;
        }
        if (h.ip.isValid() && h.l4.isValid() && h.odd.isValid() && h.odd2.isValid()) { // p4c copies what is hashed to metadata, and nothing says what a field of a header is that is not there
            hash(h.sums.hashed, HashAlgorithm.csum16, 16w0, { h.odd.a, h.ip.ttl, 7w5, h.l4.length, m.nine, h.odd2.c, h.odd2.e }, 32w0x10000);
            hash(h.sums.xored, HashAlgorithm.xor16, 16w0, { h.odd.c, h.odd2.e, h.ip.src, 3w6, h.odd2.a }, 32w0x10000);
            hash(h.sums.custom32, HashAlgorithm.crc32_custom, 32w0, { m.nine, 5w17, m.nine }, 64w0x100000000);
            hash(h.sums.first, HashAlgorithm.identity, 64w0, { h.odd.f, m.nine, h.odd2.d, h.l4.src, h.odd.b }, 64w0xffffffffffffffff);
            hash(h.sums.custom16, HashAlgorithm.crc16_custom, 16w0, { h.odd.a, h.odd2.a, h.odd.b, h.odd2.b, h.ip.ttl, h.odd.e }, 32w0x10000);
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { }
}

control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.ip.isValid(), { h.ip.version, h.ip.ihl, h.ip.tos, h.ip.total, h.ip.fragment, h.ip.ttl, h.ip.protocol, h.ip.src, h.ip.dst },
            h.ip.checksum, HashAlgorithm.csum16);
        // the pseudo header of UDP, and of TCP, whose length the program works out
        update_checksum_with_payload(true, { h.ip.src, h.ip.dst, 8w0, h.ip.protocol, h.l4.length, h.l4.src, h.l4.dst, h.l4.length },
            h.l4.checksum, HashAlgorithm.csum16);
        update_checksum(true, { h.ip.src, h.ip.dst, 8w0, h.ip.protocol, m.length, h.l4.src, h.l4.dst }, h.sums.tcp, HashAlgorithm.csum16);
        update_checksum(true, { h.ip.version, h.odd.a, h.ip.ihl, 5w3, h.odd2.b, h.l4.src, m.nine, h.odd.e, h.odd2.d, 64w0x123456789abcdef }, h.sums.any, HashAlgorithm.csum16);
        update_checksum(true, { h.ip.src, h.more.words, h.more.options, h.l4.src, h.odd.c, h.more.options }, h.sums.options, HashAlgorithm.csum16);
        update_checksum_with_payload(true, { h.odd.a, h.l4.src, h.odd2.c }, h.sums.payload, HashAlgorithm.csum16);
        update_checksum(true, { h.odd.c, h.ip.src, h.odd2.f, h.l4.dst, 1w1 }, h.sums.xor, HashAlgorithm.xor16);
        update_checksum(true, { h.ip.ttl, h.odd.e, h.odd2.e, h.more.options }, h.sums.crc, HashAlgorithm.crc16);
        update_checksum(true, { h.ip.ttl, h.l4.src, h.which.which }, h.sums.crc32, HashAlgorithm.crc32);
    }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.which);
        pkt.emit(h.sums);
        pkt.emit(h.ip);
        pkt.emit(h.more);
        pkt.emit(h.l4);
        pkt.emit(h.odd);
        pkt.emit(h.odd2);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

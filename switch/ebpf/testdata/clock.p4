/* SPDX-License-Identifier: Apache-2.0
 * Asks for the time in each place where a statement of ingress can: what is asked first decides when the clock is read.
 */
#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  how;
    bit<8>  late;       // was the time above `limit`?
    bit<48> limit;
    bit<48> first;
    bit<48> second;
    bit<48> rest;
}
struct headers_t {
    ask_t ask;
}
struct metadata_t {
    bit<48> unread;
}

parser ClockParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ask);
        transition accept;
    }
}

control ClockIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<48>>(4) times;
    register<bit<8>>(4) flags;
    action hit() {
        hdr.ask.late = 77;
    }
    table at {
        key = { std.ingress_global_timestamp: exact; }
        actions = { hit; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    action several() {
        hdr.ask.rest = hdr.ask.limit - std.ingress_global_timestamp;
        hdr.ask.first = std.ingress_global_timestamp;
        if (std.ingress_global_timestamp > hdr.ask.limit) {
            hdr.ask.late = 1;
        }
    }
    apply {
        std.egress_spec = 1;
        bool late = false;
        if (hdr.ask.how == 1) {
            hdr.ask.first = std.ingress_global_timestamp;
        } else if (hdr.ask.how == 2 && std.ingress_global_timestamp > hdr.ask.limit) {
            late = true;
        } else if (hdr.ask.how == 3 || hdr.ask.how == 4) {
            late = !(hdr.ask.how == 4 || std.ingress_global_timestamp <= hdr.ask.limit);
        } else if (hdr.ask.how == 5) {
            times.write(1, std.ingress_global_timestamp);
            times.read(hdr.ask.first, 1);
        } else if (hdr.ask.how == 6) {
            at.apply();
        } else if (hdr.ask.how == 7) {
            several();
        } else if (hdr.ask.how == 8) {
            hdr.ask.rest = (hdr.ask.limit < std.ingress_global_timestamp ? std.ingress_global_timestamp : hdr.ask.limit) -
                           (std.ingress_global_timestamp - (hdr.ask.limit ^ std.ingress_global_timestamp));
        } else if (hdr.ask.how == 9) {
            flags.write(2, (bit<8>)(std.ingress_global_timestamp > hdr.ask.limit ? 8w1 : 8w2));
            flags.read(hdr.ask.late, 2);
        }
        if (late) {
            hdr.ask.late = 1;
        }
        meta.unread = std.ingress_global_timestamp;
        if (hdr.ask.how != 0) {
            hdr.ask.second = std.ingress_global_timestamp;
        }
    }
}

control ClockEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
    }
}
control ClockVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control ClockCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}
control ClockDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ask);
    }
}

V1Switch(ClockParser(), ClockVerify(), ClockIngress(), ClockEgress(), ClockCompute(), ClockDeparser()) main;

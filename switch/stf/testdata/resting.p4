// SPDX-License-Identifier: Apache-2.0
// A large header of wide fields that the program only moves between frames and registers, so that
// the kernel's programs leave it in the frame: written to registers, read, partly read, moved by
// headers before and behind it that come and go, taken away, and in several copies.
#include <core.p4>
#include <v1model.p4>

header do_t {
    bit<8> op;
    bit<8> egress_op;
    bit<8> index;
    bit<8> tags;      // how many tags follow: one before the value, one behind it
}

header tag_t {
    bit<16> mark;
}

header value_t {
    bit<512> first;
    bit<256> second;
}

struct headers_t {
    tag_t before;
    do_t doit;
    value_t value;
    tag_t behind;
}

struct metadata_t { }

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        transition select(pkt.lookahead<bit<8>>()) {
            0xff : tagged;
            default : plain;
        }
    }
    state tagged {
        pkt.extract(h.before);
        transition plain;
    }
    state plain {
        pkt.extract(h.doit);
        transition select(h.doit.tags) {
            9 : accept;         // no value
            default : value;
        }
    }
    state value {
        pkt.extract(h.value);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    register<bit<512>>(8) firsts;
    register<bit<256>>(8) seconds;

    apply {
        bit<32> index = (bit<32>)h.doit.index;
        sm.egress_spec = 1;
        if (h.doit.op == 1) {                  // write
            firsts.write(index, h.value.first);
            seconds.write(index, h.value.second);
        } else if (h.doit.op == 2) {           // read
            firsts.read(h.value.first, index);
            seconds.read(h.value.second, index);
        } else if (h.doit.op == 3) {           // read a part
            seconds.read(h.value.second, index);
        } else if (h.doit.op == 4) {           // exchange
            bit<32> other = index + 1;
            firsts.write(other, h.value.first);
            firsts.read(h.value.first, index);
            firsts.write(index + 2, h.value.first);
            seconds.write(other, h.value.second);
        } else if (h.doit.op == 5) {           // to nobody
            firsts.write(index, h.value.first);
            h.value.setInvalid();
        } else if (h.doit.op == 6) {           // copies
            sm.mcast_grp = 7;
        } else if (h.doit.op == 7) {           // copies of what was read in part
            firsts.read(h.value.first, index);
            sm.mcast_grp = 7;
        } else if (h.doit.op == 8) {           // one copy
            sm.mcast_grp = 8;
        }
        if (h.doit.tags & 1 != 0) {
            h.before.setValid();
            h.before.mark = 0xff01;
        }
        if (h.doit.tags & 2 != 0) {
            h.behind.setValid();
            h.behind.mark = 0xff02;
        }
        if (h.doit.tags & 4 != 0) {
            h.before.setInvalid();
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    register<bit<512>>(8) firsts_out;
    register<bit<256>>(8) seconds_out;

    apply {
        bit<32> index = (bit<32>)h.doit.index;
        if (h.doit.egress_op == 1) {           // each copy another
            firsts_out.write(index, h.value.first);
            seconds_out.read(h.value.second, (bit<32>)sm.egress_rid);
            seconds_out.write((bit<32>)sm.egress_rid, h.value.second);
        } else if (h.doit.egress_op == 2) {    // some copies longer
            if (sm.egress_rid == 1) {
                h.before.setValid();
                h.before.mark = 0xff03;
            }
            if (sm.egress_rid == 2) {
                h.behind.setValid();
                h.behind.mark = 0xff04;
            }
        } else if (h.doit.egress_op == 3) {    // some copies without
            if (sm.egress_rid == 1) {
                h.value.setInvalid();
            }
        } else if (h.doit.egress_op == 4) {
            firsts_out.read(h.value.first, index);
        } else if (h.doit.egress_op == 5) {
            seconds_out.write(index, h.value.second);
        }
        if (sm.egress_rid == 0) {
            h.doit.op = h.doit.op | 0x80;
        }
    }
}

control C(inout headers_t h, inout metadata_t m) {
    apply { }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// What a parser can do: select on values, masks, ranges and sets, lookahead, advance, varbit, stacks, unions, verify, and the errors.
#include <core.p4>
#include <v1model.p4>

error {
    OddKind
}

header kind_t {
    bit<112> start; // no frame is shorter, where frames go over interfaces
    bit<8> kind;
    bit<8> arg;
}

header option_t {
    bit<4> len;
    bit<4> tag;
    varbit<120> data;
    bit<8> tail;
}

header label_t {
    bit<15> value;
    bit<1> last;
}

header small_t {
    bit<8> x;
}

header large_t {
    bit<40> y;
}

header_union either_t {
    small_t small;
    large_t large;
}

header report_t {
    bit<8> error_code;
    bit<8> where;
    bit<16> depth;
    bit<8> more;
}

struct headers_t {
    report_t report;
    kind_t kind;
    option_t option;
    option_t copy;
    label_t[3] labels;
    either_t either;
    either_t[2] several;
}

struct metadata_t {
    bit<8> where;
    bit<8> seen;
}

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) chosen;

    state start {
        pkt.extract(h.kind);
        m.where = 1;
        transition select(h.kind.kind, h.kind.arg) {
            (0, _) : accept;
            (1, _) : options;
            (2, _) : labels;
            (3, 0x80 &&& 0x80) : large;
            (3, _) : small;
            (4, 10 .. 20) : ranged;
            (5, _) : look;
            (6, _) : skip;
            (7, _) : checked;
            (8, _) : sets;
            (9, _) : several;
            (0x80 &&& 0xf0, _) : masked;
        }
    }
    state options {
        m.where = 2;
        bit<8> first = pkt.lookahead<bit<8>>();
        pkt.extract(h.option, (bit<32>)(first[7:4]) * 8);
        transition accept;
    }
    state labels {
        m.where = 3;
        pkt.extract(h.labels.next);
        transition select(h.labels.last.last) {
            1 : accept;
            0 : labels;
        }
    }
    state small {
        m.where = 4;
        pkt.extract(h.either.small);
        transition accept;
    }
    state large {
        m.where = 5;
        pkt.extract(h.either.large);
        transition accept;
    }
    state ranged {
        m.where = 6;
        transition accept;
    }
    state look {
        m.where = 7;
        m.seen = pkt.lookahead<label_t>().value[14:7];
        transition select(pkt.lookahead<bit<24>>()) {
            0xabcdef : small;
            default : accept;
        }
    }
    state skip {
        m.where = 8;
        pkt.advance((bit<32>)h.kind.arg * 8);
        transition small;
    }
    state checked {
        m.where = 9;
        verify(h.kind.arg < 3, error.OddKind);
        m.where = 10;
        transition accept;
    }
    state sets {
        m.where = 11;
        transition select(h.kind.arg) {
            chosen : small;
            default : accept;
        }
    }
    state several {
        m.where = 12;
        pkt.extract(h.several.next.small);
        pkt.extract(h.several.next.large);
        transition accept;
    }
    state masked {
        m.where = 13;
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        h.report.setValid();
        h.report.where = m.where;
        h.report.more = m.seen;
        if (sm.parser_error == error.NoError) {
            h.report.error_code = 0;
        } else if (sm.parser_error == error.PacketTooShort) {
            h.report.error_code = 1;
        } else if (sm.parser_error == error.StackOutOfBounds) {
            h.report.error_code = 3;
        } else if (sm.parser_error == error.HeaderTooShort) {
            h.report.error_code = 4;
        } else if (sm.parser_error == error.ParserInvalidArgument) {
            h.report.error_code = 6;
        } else if (sm.parser_error == error.OddKind) {
            h.report.error_code = 0x77;
        } else {
            h.report.error_code = 0xff;
        }
        if (h.option.isValid() && h.kind.arg == 1) {
            h.copy = h.option;
            h.copy.tag = 0;
        }
        if (h.option.isValid() && h.kind.arg == 2) {
            h.option.setInvalid();
        }
        if (h.labels[0].isValid()) {
            if (h.kind.arg == 1) {
                h.labels.push_front(1);
                h.labels[0].setValid();
                h.labels[0].value = 0x7abc;
                h.labels[0].last = 0;
            } else if (h.kind.arg == 2) {
                h.labels.pop_front(1);
            } else if (h.kind.arg == 3) {
                h.labels.pop_front(2);
                h.labels.push_front(1);
            } else if (h.kind.arg == 4) {
                bit<2> i = (bit<2>)h.labels[0].value;
                h.labels[i].value = h.labels[i].value + 1;
            }
            h.report.depth = (bit<16>)(bit<1>)h.labels[0].isValid() ++ (bit<1>)h.labels[1].isValid() ++ (bit<1>)h.labels[2].isValid() == 0 ? 16w7 : 16w8;
        }
        if (h.either.isValid()) {
            h.report.depth = 0x0100;
            if (h.either.small.isValid() && h.either.small.x == 0x42) {
                h.either.large.setValid();
                h.either.large.y = 0x0102030405;
            }
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply { }
}

control C(inout headers_t h, inout metadata_t m) {
    apply { }
}

control D(packet_out pkt, in headers_t h) {
    apply {
        pkt.emit(h.report);
        pkt.emit(h.kind);
        pkt.emit(h.copy);
        pkt.emit(h.option);
        pkt.emit(h.labels);
        pkt.emit(h.either);
        pkt.emit(h.several);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// Every kind of match, what an apply tells, const entries and priorities, defaults.
#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<8> which;
    bit<16> a;
    bit<32> b;
    bit<7> c;
    bit<1> d;
    bit<72> wide;
}

header out_t {
    bit<8> result;
    bit<8> how;
}

struct headers_t {
    key_t k;
    out_t o;
}

struct metadata_t { }

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.k);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    direct_counter(CounterType.packets_and_bytes) hits;

    action set(bit<8> v) {
        h.o.result = v;
    }
    action counted(bit<8> v) {
        h.o.result = v;
        hits.count();
    }
    action other(bit<8> v, bit<8> w) {
        h.o.result = v ^ w;
    }
    action toss() {
        mark_to_drop(sm);
    }

    table exact_t {
        key = {
            h.k.a : exact;
            h.k.d : exact;
        }
        actions = {
            counted;
            toss;
            NoAction;
        }
        default_action = NoAction;
        counters = hits;
        size = 3;
    }
    table wide_t {
        key = {
            h.k.wide : exact;
            h.k.b : exact;
        }
        actions = {
            set;
            NoAction;
        }
        default_action = set(0xee);
    }
    table lpm_t {
        key = {
            h.k.b : lpm;
            h.k.c : exact;
        }
        actions = {
            set;
            NoAction;
        }
    }
    table ternary_t {
        key = {
            h.k.b : ternary;
            h.k.wide : ternary;
        }
        actions = {
            set;
            other;
            NoAction;
        }
        default_action = NoAction;
    }
    table optional_t {
        key = {
            h.k.a : optional;
            h.k.c : optional;
        }
        actions = {
            set;
            NoAction;
        }
    }
    table range_t {
        key = {
            h.k.a : range;
            h.k.b : ternary;
        }
        actions = {
            set;
            NoAction;
        }
    }
    table const_t {
        key = {
            h.k.a : ternary;
            h.k.c : range;
            h.k.b : lpm;
        }
        actions = {
            set;
            other;
            toss;
        }
        const default_action = set(0xdd);
        const entries = {
            (0x1000 &&& 0xf000, 0 .. 9, 0x0a000000 &&& 0xff000000) : set(1);
            (0x1200 &&& 0xff00, _, 0x0a0b0000 &&& 0xffff0000) : set(2);
            (_, 5 .. 5, _) : other(0xf0, 0x0f);
            (0xffff, _, _) : toss();
        }
    }
    table valid_t {
        key = {
            h.o.isValid() : exact;
            h.k.a & 0x0ff0 : exact @name("middle");
        }
        actions = {
            set;
        }
        const default_action = set(0);
        const entries = {
            (true, 0x0120) : set(0x12);
            (false, 0x0120) : set(0x13);
        }
    }
    table chooser_t {
        key = {
            h.k.a : exact;
        }
        actions = {
            set;
            other;
            NoAction;
        }
        default_action = NoAction;
    }

    apply {
        sm.egress_spec = 1;
        h.o.setValid();
        if (h.k.which == 0) {
            if (exact_t.apply().hit) {
                h.o.how = 1;
            } else {
                h.o.how = 2;
            }
        } else if (h.k.which == 1) {
            wide_t.apply();
        } else if (h.k.which == 2) {
            if (lpm_t.apply().miss) {
                h.o.how = 3;
            }
        } else if (h.k.which == 3) {
            ternary_t.apply();
        } else if (h.k.which == 4) {
            optional_t.apply();
        } else if (h.k.which == 5) {
            range_t.apply();
        } else if (h.k.which == 6) {
            const_t.apply();
        } else if (h.k.which == 7) {
            valid_t.apply();
        } else {
            switch (chooser_t.apply().action_run) {
                set: {
                    h.o.how = 0x51;
                }
                other: {
                    h.o.how = 0x52;
                    exit;
                }
                default: {
                    h.o.how = 0x53;
                }
            }
            h.o.how = h.o.how | 0x80;
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
        pkt.emit(h.o);
        pkt.emit(h.k);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

// SPDX-License-Identifier: Apache-2.0
// Many headers, each of which may be there or not: the sums of their lengths are more than the verifier would follow one by one. A flag says for each whether it follows; ingress takes one out
// and puts another one in.
#include <core.p4>
#include <v1model.p4>

header flags_t {
    bit<112> rest;
    bit<32> there;
}

header h1_t {
    bit<5> a;
    bit<3> b;
}

header h2_t {
    bit<13> a;
    bit<3> b;
}

header h3_t {
    bit<21> a;
    bit<3> b;
}

header h4_t {
    bit<29> a;
    bit<3> b;
}

header h5_t {
    bit<37> a;
    bit<3> b;
}

header h6_t {
    bit<45> a;
    bit<3> b;
}

header h7_t {
    bit<53> a;
    bit<3> b;
}

struct headers_t {
    flags_t flags;
    h1_t h0;
    h2_t h1;
    h3_t h2;
    h4_t h3;
    h5_t h4;
    h6_t h5;
    h7_t h6;
    h1_t h7;
    h2_t h8;
    h3_t h9;
    h4_t h10;
    h5_t h11;
    h6_t h12;
    h7_t h13;
    h1_t h14;
    h2_t h15;
    h3_t h16;
    h4_t h17;
    h5_t h18;
    h6_t h19;
    h7_t h20;
    h1_t h21;
    h2_t h22;
    h3_t h23;
    h4_t h24;
    h5_t h25;
    h6_t h26;
    h7_t h27;
    h1_t h28;
    h2_t h29;
    h3_t h30;
    h4_t h31;
}

struct metadata_t { }

parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(h.flags);
        transition look0;
    }
    state look0 {
        transition select(h.flags.there[0:0]) {
            1 : take0;
            default : look1;
        }
    }
    state take0 {
        pkt.extract(h.h0);
        transition look1;
    }
    state look1 {
        transition select(h.flags.there[1:1]) {
            1 : take1;
            default : look2;
        }
    }
    state take1 {
        pkt.extract(h.h1);
        transition look2;
    }
    state look2 {
        transition select(h.flags.there[2:2]) {
            1 : take2;
            default : look3;
        }
    }
    state take2 {
        pkt.extract(h.h2);
        transition look3;
    }
    state look3 {
        transition select(h.flags.there[3:3]) {
            1 : take3;
            default : look4;
        }
    }
    state take3 {
        pkt.extract(h.h3);
        transition look4;
    }
    state look4 {
        transition select(h.flags.there[4:4]) {
            1 : take4;
            default : look5;
        }
    }
    state take4 {
        pkt.extract(h.h4);
        transition look5;
    }
    state look5 {
        transition select(h.flags.there[5:5]) {
            1 : take5;
            default : look6;
        }
    }
    state take5 {
        pkt.extract(h.h5);
        transition look6;
    }
    state look6 {
        transition select(h.flags.there[6:6]) {
            1 : take6;
            default : look7;
        }
    }
    state take6 {
        pkt.extract(h.h6);
        transition look7;
    }
    state look7 {
        transition select(h.flags.there[7:7]) {
            1 : take7;
            default : look8;
        }
    }
    state take7 {
        pkt.extract(h.h7);
        transition look8;
    }
    state look8 {
        transition select(h.flags.there[8:8]) {
            1 : take8;
            default : look9;
        }
    }
    state take8 {
        pkt.extract(h.h8);
        transition look9;
    }
    state look9 {
        transition select(h.flags.there[9:9]) {
            1 : take9;
            default : look10;
        }
    }
    state take9 {
        pkt.extract(h.h9);
        transition look10;
    }
    state look10 {
        transition select(h.flags.there[10:10]) {
            1 : take10;
            default : look11;
        }
    }
    state take10 {
        pkt.extract(h.h10);
        transition look11;
    }
    state look11 {
        transition select(h.flags.there[11:11]) {
            1 : take11;
            default : look12;
        }
    }
    state take11 {
        pkt.extract(h.h11);
        transition look12;
    }
    state look12 {
        transition select(h.flags.there[12:12]) {
            1 : take12;
            default : look13;
        }
    }
    state take12 {
        pkt.extract(h.h12);
        transition look13;
    }
    state look13 {
        transition select(h.flags.there[13:13]) {
            1 : take13;
            default : look14;
        }
    }
    state take13 {
        pkt.extract(h.h13);
        transition look14;
    }
    state look14 {
        transition select(h.flags.there[14:14]) {
            1 : take14;
            default : look15;
        }
    }
    state take14 {
        pkt.extract(h.h14);
        transition look15;
    }
    state look15 {
        transition select(h.flags.there[15:15]) {
            1 : take15;
            default : look16;
        }
    }
    state take15 {
        pkt.extract(h.h15);
        transition look16;
    }
    state look16 {
        transition select(h.flags.there[16:16]) {
            1 : take16;
            default : look17;
        }
    }
    state take16 {
        pkt.extract(h.h16);
        transition look17;
    }
    state look17 {
        transition select(h.flags.there[17:17]) {
            1 : take17;
            default : look18;
        }
    }
    state take17 {
        pkt.extract(h.h17);
        transition look18;
    }
    state look18 {
        transition select(h.flags.there[18:18]) {
            1 : take18;
            default : look19;
        }
    }
    state take18 {
        pkt.extract(h.h18);
        transition look19;
    }
    state look19 {
        transition select(h.flags.there[19:19]) {
            1 : take19;
            default : look20;
        }
    }
    state take19 {
        pkt.extract(h.h19);
        transition look20;
    }
    state look20 {
        transition select(h.flags.there[20:20]) {
            1 : take20;
            default : look21;
        }
    }
    state take20 {
        pkt.extract(h.h20);
        transition look21;
    }
    state look21 {
        transition select(h.flags.there[21:21]) {
            1 : take21;
            default : look22;
        }
    }
    state take21 {
        pkt.extract(h.h21);
        transition look22;
    }
    state look22 {
        transition select(h.flags.there[22:22]) {
            1 : take22;
            default : look23;
        }
    }
    state take22 {
        pkt.extract(h.h22);
        transition look23;
    }
    state look23 {
        transition select(h.flags.there[23:23]) {
            1 : take23;
            default : look24;
        }
    }
    state take23 {
        pkt.extract(h.h23);
        transition look24;
    }
    state look24 {
        transition select(h.flags.there[24:24]) {
            1 : take24;
            default : look25;
        }
    }
    state take24 {
        pkt.extract(h.h24);
        transition look25;
    }
    state look25 {
        transition select(h.flags.there[25:25]) {
            1 : take25;
            default : look26;
        }
    }
    state take25 {
        pkt.extract(h.h25);
        transition look26;
    }
    state look26 {
        transition select(h.flags.there[26:26]) {
            1 : take26;
            default : look27;
        }
    }
    state take26 {
        pkt.extract(h.h26);
        transition look27;
    }
    state look27 {
        transition select(h.flags.there[27:27]) {
            1 : take27;
            default : look28;
        }
    }
    state take27 {
        pkt.extract(h.h27);
        transition look28;
    }
    state look28 {
        transition select(h.flags.there[28:28]) {
            1 : take28;
            default : look29;
        }
    }
    state take28 {
        pkt.extract(h.h28);
        transition look29;
    }
    state look29 {
        transition select(h.flags.there[29:29]) {
            1 : take29;
            default : look30;
        }
    }
    state take29 {
        pkt.extract(h.h29);
        transition look30;
    }
    state look30 {
        transition select(h.flags.there[30:30]) {
            1 : take30;
            default : look31;
        }
    }
    state take30 {
        pkt.extract(h.h30);
        transition look31;
    }
    state look31 {
        transition select(h.flags.there[31:31]) {
            1 : take31;
            default : accept;
        }
    }
    state take31 {
        pkt.extract(h.h31);
        transition accept;
    }
}

control V(inout headers_t h, inout metadata_t m) {
    apply { }
}

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1 + (bit<9>)h.flags.there[1:0];
        h.h3.setInvalid();
        if (!h.h7.isValid()) {
            h.h7.setValid();
            h.h7.a = (bit<5>)h.flags.there;
        }
        h.h9.b = h.h9.b + 1;
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
        pkt.emit(h.flags);
        pkt.emit(h.h0);
        pkt.emit(h.h1);
        pkt.emit(h.h2);
        pkt.emit(h.h3);
        pkt.emit(h.h4);
        pkt.emit(h.h5);
        pkt.emit(h.h6);
        pkt.emit(h.h7);
        pkt.emit(h.h8);
        pkt.emit(h.h9);
        pkt.emit(h.h10);
        pkt.emit(h.h11);
        pkt.emit(h.h12);
        pkt.emit(h.h13);
        pkt.emit(h.h14);
        pkt.emit(h.h15);
        pkt.emit(h.h16);
        pkt.emit(h.h17);
        pkt.emit(h.h18);
        pkt.emit(h.h19);
        pkt.emit(h.h20);
        pkt.emit(h.h21);
        pkt.emit(h.h22);
        pkt.emit(h.h23);
        pkt.emit(h.h24);
        pkt.emit(h.h25);
        pkt.emit(h.h26);
        pkt.emit(h.h27);
        pkt.emit(h.h28);
        pkt.emit(h.h29);
        pkt.emit(h.h30);
        pkt.emit(h.h31);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;

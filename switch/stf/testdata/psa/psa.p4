/* SPDX-License-Identifier: Apache-2.0
 *
 * The Portable Switch Architecture: its packet paths, its metadata and its extern objects, one for
 * each operation that a packet names. psa.stf sends the packets.
 */
#include <core.p4>
#include <bmv2/psa.p4>

const bit<8> HASH = 1;
const bit<8> HASH_IN_RANGE = 2;
const bit<8> METER = 3;
const bit<8> TABLE = 4;
const bit<8> RESUBMIT = 5;
const bit<8> CLONE_AT_INGRESS = 6;
const bit<8> MULTICAST = 7;
const bit<8> RECIRCULATE = 8;
const bit<8> CLONE_AT_EGRESS = 9;
const bit<8> DROP_BUT_CLONE = 10;
const bit<8> VERIFY = 11;
const bit<8> COUNT = 12;
const bit<8> DROP_AT_EGRESS = 13;

header test_t {
    bit<8>  op;
    bit<8>  port;      // where to, in and out: the port that it left by
    bit<16> a;
    bit<32> b;
    bit<32> result;
    bit<16> sum;       // of a and b; what is wrong is told to VERIFY
    bit<8>  passes;    // through ingress
    bit<8>  in_path;   // 1 from outside, 2 resubmitted, 3 recirculated
    bit<8>  out_path;  // 1 unicast, 2 multicast, 3 and 4 cloned at ingress and at egress
    bit<8>  class;
    bit<16> instance;
    bit<8>  wrong;     // 1: the ingress parser was stopped
    bit<32> in_port;
}

struct headers_t { test_t test; }
struct empty_t {}

error { WrongSum }

parser IngressParserImpl(packet_in packet, out headers_t hdr, inout empty_t meta,
                         in psa_ingress_parser_input_metadata_t istd, in empty_t resubmit_meta,
                         in empty_t recirculate_meta) {
    InternetChecksum() sum;
    state start {
        packet.extract(hdr.test);
        transition select(hdr.test.op) {
            VERIFY: check_sum;
            default: accept;
        }
    }
    state check_sum {
        sum.clear();
        sum.add({ hdr.test.a, hdr.test.b });
        verify(sum.get() == hdr.test.sum, error.WrongSum);
        transition accept;
    }
}

control IngressImpl(inout headers_t hdr, inout empty_t meta, in psa_ingress_input_metadata_t istd,
                    inout psa_ingress_output_metadata_t ostd) {
    Hash<bit<32>>(PSA_HashAlgorithm_t.CRC32) crc32;
    Hash<bit<16>>(PSA_HashAlgorithm_t.IDENTITY) identity;
    Meter<bit<8>>(4, PSA_MeterType_t.PACKETS) meter;
    Counter<bit<32>, bit<8>>(4, PSA_CounterType_t.PACKETS) counter;
    Counter<bit<32>, bit<8>>(4, PSA_CounterType_t.BYTES) octets;
    Register<bit<32>, bit<8>>(4) register;

    action set_result(bit<32> result) {
        hdr.test.result = result;
    }
    action unknown() { hdr.test.result = 0xffffffff; }
    table results {
        key = { hdr.test.a: ternary; }
        actions = { set_result; unknown; }
    }
    apply {
        hdr.test.passes = hdr.test.passes + 1;
        if (istd.packet_path == PSA_PacketPath_t.NORMAL) {
            hdr.test.in_path = 1;
        } else if (istd.packet_path == PSA_PacketPath_t.RESUBMIT) {
            hdr.test.in_path = 2;
        } else if (istd.packet_path == PSA_PacketPath_t.RECIRCULATE) {
            hdr.test.in_path = 3;
        }
        hdr.test.in_port = (PortIdUint_t)istd.ingress_port;
        send_to_port(ostd, (PortId_t)(PortIdUint_t)hdr.test.port);
        ostd.class_of_service = (ClassOfService_t)3;
        if (istd.parser_error != error.NoError) {
            hdr.test.wrong = 1;
        }
        if (hdr.test.op == HASH) {
            hdr.test.result = crc32.get_hash({ hdr.test.a, hdr.test.b });
        } else if (hdr.test.op == HASH_IN_RANGE) {
            hdr.test.result = (bit<32>)identity.get_hash((bit<16>)100, { hdr.test.a }, (bit<16>)10);
        } else if (hdr.test.op == METER) {
            PSA_MeterColor_t color = meter.execute(hdr.test.a[7:0]);
            if (color == PSA_MeterColor_t.GREEN) {
                hdr.test.result = 1;
            } else if (color == PSA_MeterColor_t.YELLOW) {
                hdr.test.result = 2;
            } else {
                hdr.test.result = 3;
            }
        } else if (hdr.test.op == TABLE) {
            results.apply();
        } else if (hdr.test.op == RESUBMIT) {
            bit<32> seen = register.read(0);
            hdr.test.result = seen;
            if (istd.packet_path != PSA_PacketPath_t.RESUBMIT) {
                register.write(0, seen + 1);
                ostd.resubmit = true;
            }
        } else if (hdr.test.op == CLONE_AT_INGRESS) {
            ostd.clone = true;
            ostd.clone_session_id = (CloneSessionId_t)5;
        } else if (hdr.test.op == DROP_BUT_CLONE) {
            ostd.clone = true;
            ostd.clone_session_id = (CloneSessionId_t)5;
            ingress_drop(ostd);
        } else if (hdr.test.op == MULTICAST) {
            multicast(ostd, (MulticastGroup_t)1);
        } else if (hdr.test.op == RECIRCULATE) {
            if (istd.packet_path != PSA_PacketPath_t.RECIRCULATE) {
                send_to_port(ostd, PSA_PORT_RECIRCULATE);
            }
        } else if (hdr.test.op == COUNT) {
            counter.count(hdr.test.a[7:0]);
            octets.count(hdr.test.a[7:0]);
        }
    }
}

control IngressDeparserImpl(packet_out packet, out empty_t clone_i2e_meta, out empty_t resubmit_meta,
                            out empty_t normal_meta, inout headers_t hdr, in empty_t meta,
                            in psa_ingress_output_metadata_t istd) {
    apply { packet.emit(hdr.test); }
}

parser EgressParserImpl(packet_in packet, out headers_t hdr, inout empty_t meta,
                        in psa_egress_parser_input_metadata_t istd, in empty_t normal_meta,
                        in empty_t clone_i2e_meta, in empty_t clone_e2e_meta) {
    state start {
        packet.extract(hdr.test);
        transition accept;
    }
}

control EgressImpl(inout headers_t hdr, inout empty_t meta, in psa_egress_input_metadata_t istd,
                   inout psa_egress_output_metadata_t ostd) {
    apply {
        if (istd.packet_path == PSA_PacketPath_t.NORMAL_UNICAST) {
            hdr.test.out_path = 1;
        } else if (istd.packet_path == PSA_PacketPath_t.NORMAL_MULTICAST) {
            hdr.test.out_path = 2;
        } else if (istd.packet_path == PSA_PacketPath_t.CLONE_I2E) {
            hdr.test.out_path = 3;
        } else if (istd.packet_path == PSA_PacketPath_t.CLONE_E2E) {
            hdr.test.out_path = 4;
        }
        hdr.test.class = (ClassOfServiceUint_t)istd.class_of_service;
        hdr.test.instance = (EgressInstanceUint_t)istd.instance;
        hdr.test.port = (bit<8>)(PortIdUint_t)istd.egress_port;
        if (hdr.test.op == CLONE_AT_EGRESS && istd.packet_path != PSA_PacketPath_t.CLONE_E2E) {
            ostd.clone = true;
            ostd.clone_session_id = (CloneSessionId_t)5;
        } else if (hdr.test.op == DROP_AT_EGRESS) {
            egress_drop(ostd);
        }
    }
}

control EgressDeparserImpl(packet_out packet, out empty_t clone_e2e_meta, out empty_t recirculate_meta,
                           inout headers_t hdr, in empty_t meta, in psa_egress_output_metadata_t istd,
                           in psa_egress_deparser_input_metadata_t edstd) {
    InternetChecksum() sum;
    apply {
        sum.clear();
        sum.add({ hdr.test.a, hdr.test.b, hdr.test.result });
        sum.subtract({ hdr.test.result });
        hdr.test.sum = sum.get();
        packet.emit(hdr.test);
    }
}

IngressPipeline(IngressParserImpl(), IngressImpl(), IngressDeparserImpl()) ingress;
EgressPipeline(EgressParserImpl(), EgressImpl(), EgressDeparserImpl()) egress;
PSA_Switch(ingress, PacketReplicationEngine(), egress, BufferingQueueingEngine()) main;

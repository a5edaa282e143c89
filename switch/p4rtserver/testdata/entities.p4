// A program with one of everything that P4Runtime can name, for the tests of the P4Runtime server. What it does to packets matters little but for these:
//   - a frame from a port is looked up in "forward" by destination MAC; without an entry it goes to the CPU as a packet-in;
//   - a packet-out leaves by the port that its header names, and counts in pkts[egress_port];
//   - last_len[ingress_port] keeps the length of the last frame, and digests report new source addresses.
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 255;

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> _pad;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> len;
    bit<16> id;
    bit<3>  flags;
    bit<13> frag;
    bit<8>  ttl;
    bit<8>  proto;
    bit<16> csum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   eth;
    ipv4_t       ipv4;
}

enum bit<8> Class { LOW = 1, HIGH = 2 }

struct learn_t {
    bit<48> src;
    bit<9>  port;
}

struct meta_t {
    bit<8>  class;
    bit<2>  colour;
    bit<32> hash_input;
}

parser MyParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    @name("trill_types") value_set<bit<16>>(4) trill_types;
    state start {
        transition select(std.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_eth;
        }
    }
    state parse_packet_out {
        pkt.extract(hdr.packet_out);
        transition parse_eth;
    }
    state parse_eth {
        pkt.extract(hdr.eth);
        transition select(hdr.eth.type) {
            0x0800: parse_ipv4;
            trill_types: parse_trill;
            default: accept;
        }
    }
    state parse_trill {
        meta.class = 7;
        transition accept;
    }
    state parse_ipv4 {
        pkt.extract(hdr.ipv4);
        transition accept;
    }
}

control MyVerify(inout headers_t hdr, inout meta_t meta) { apply {} }
control MyCompute(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(512, CounterType.packets_and_bytes) pkts;
    counter(4, CounterType.bytes) classes;
    direct_counter(CounterType.packets_and_bytes) forward_stats;
    direct_meter<bit<2>>(MeterType.bytes) route_meter;
    meter(16, MeterType.packets) port_meter;
    register<bit<32>>(512) last_len;
    register<bit<9>>(8) narrow;
    register<bit<128>>(65536) objects;
    register<int<16>>(4) deltas;

    action drop() { mark_to_drop(std); }
    action send(bit<9> port) { std.egress_spec = port; forward_stats.count(); }
    action to_cpu(bit<7> reason) {
        std.egress_spec = CPU_PORT;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = std.ingress_port;
        hdr.packet_in.reason = reason;
    }
    action flood(bit<16> group) { std.mcast_grp = group; forward_stats.count(); }
    action mirror(bit<32> session) { clone(CloneType.I2E, session); forward_stats.count(); }

    table forward {
        key = { hdr.eth.dst: exact; }
        actions = { send; flood; mirror; @defaultonly to_cpu; @tableonly drop; }
        default_action = to_cpu(1);
        counters = forward_stats;
        size = 8;
    }

    action set_class(bit<8> class) { route_meter.read(meta.colour); meta.class = class; }
    table route {
        key = { hdr.ipv4.dst: lpm; }
        actions = { set_class; NoAction; }
        const default_action = NoAction();
        meters = route_meter;
        size = 64;
    }

    action mark(bit<8> class) { meta.class = class; }
    table acl {
        key = {
            hdr.ipv4.src: ternary @name("src");
            hdr.ipv4.len: range @name("len");
            hdr.ipv4.proto: optional @name("proto");
            std.ingress_port: exact @name("port");
        }
        actions = { mark; drop; NoAction; }
        default_action = NoAction();
        size = 32;
    }

    table fixed {
        key = { meta.class: exact; }
        actions = { mark; NoAction; }
        const entries = {
            1: mark(11);
            2: mark(12);
        }
        default_action = NoAction();
    }

    table fixed_ternary {
        key = { meta.class: ternary; hdr.eth.type: range; }
        actions = { mark; NoAction; }
        const entries = {
            (1 &&& 0x0f, 0 .. 0x5ff): mark(21);
            (_, 0x600 .. 0xffff): mark(22);
            (2, _): mark(23);
        }
        const default_action = NoAction();
    }

    action send_plain(bit<9> port) { std.egress_spec = port; }
    action_profile(8) nexthops;
    table nexthop {
        key = { meta.class: exact; }
        actions = { send_plain; drop; NoAction; }
        implementation = nexthops;
        size = 16;
    }

    @max_group_size(4)
    action_selector(HashAlgorithm.crc16, 16, 10) ecmp;
    table balance {
        key = { hdr.ipv4.dst: exact; hdr.ipv4.src: selector; hdr.ipv4.proto: selector; }
        actions = { send_plain; drop; NoAction; }
        implementation = ecmp;
        size = 16;
    }

    table keyless {
        actions = { mark; NoAction; }
        default_action = NoAction();
    }

    apply {
        last_len.write((bit<32>)std.ingress_port, std.packet_length);
        if (std.ingress_port == CPU_PORT) {
            std.egress_spec = hdr.packet_out.egress_port;
            pkts.count((bit<32>)hdr.packet_out.egress_port);
            hdr.packet_out.setInvalid();
        } else {
            digest<learn_t>(1, { hdr.eth.src, std.ingress_port });
            forward.apply();
            if (hdr.ipv4.isValid()) {
                route.apply();
                acl.apply();
                fixed.apply();
                fixed_ternary.apply();
                port_meter.execute_meter((bit<32>)std.ingress_port & 15, meta.colour);
                classes.count((bit<32>)meta.colour);
                if (meta.class == 99) { nexthop.apply(); }
                if (meta.class == 98) { balance.apply(); }
                keyless.apply();
            }
            bit<9> n; narrow.read(n, 0); narrow.write(0, n + 1);
            bit<128> o; objects.read(o, 0); objects.write(0, o + 1);
            int<16> d; deltas.read(d, 0); deltas.write(0, d - 1);
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        // A clone to the CPU carries the packet-in header too.
        if (std.egress_port == CPU_PORT && !hdr.packet_in.isValid()) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.reason = 2;
        }
    }
}

control MyDeparser(packet_out pkt, in headers_t hdr) {
    apply { pkt.emit(hdr); }
}

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;

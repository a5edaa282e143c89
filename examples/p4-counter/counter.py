# SPDX-License-Identifier: Apache-2.0
"""Load a P4 program into a switch, send packets through it, and read its counters."""

import sys

import p4runtime_sh.shell as sh

if len(sys.argv) != 4:
    sys.exit("usage: counter.py HOST:PORT P4INFO JSON")
address, p4info, program = sys.argv[1:]

# The controller with the greatest election ID may write. Others can read meanwhile.
sh.setup(
    device_id=1,
    grpc_addr=address,
    election_id=(0, 1),
    config=sh.FwdPipeConfig(p4info, program),
    verbose=False,
)
try:
    # The program counts each packet from the controller for the port through which it leaves.
    for port in (1, 2, 2):
        packet = sh.PacketOut(payload=bytes(64))
        packet.metadata["egress_port"] = str(port)
        packet.metadata["_pad"] = "0"
        packet.send()

    # The switch processes packets in order but answers reads meanwhile, so wait for the last
    # packet.
    counter = sh.CounterEntry("MyIngress.pkts")
    seen = {1: 0, 2: 0}
    while sum(seen.values()) < 3:
        for port in seen:
            counter.index = port
            counter.read(lambda entry: seen.update({entry.index: entry.packet_count}))
    for port, packets in seen.items():
        print(f"port {port}: {packets} packets")

    # A direct counter belongs to a table entry, and starts at 0 with the entry.
    entry = sh.TableEntry("MyIngress.forward")(action="MyIngress.send")
    entry.match["hdr.eth.dst"] = "02:00:00:00:00:02"
    entry.action["port"] = "2"
    entry.insert()
    direct = sh.DirectCounterEntry("MyIngress.forward_stats")
    direct.table_entry.match["hdr.eth.dst"] = "02:00:00:00:00:02"
    direct.read(lambda e: print(f"entry for 02:00:00:00:00:02: {e.packet_count} packets"))
finally:
    sh.teardown()

# SPDX-License-Identifier: Apache-2.0
"""One session of p4runtime-shell with a switch, run inside the switch's network namespace by
test_p4runtime_shell.py.

    shell_session.py P4INFO JSON

Prints one JSON object: for each step what came of it. The switch has ports 1 and 2 (s1 and s2,
whose other ends are h1 and h2), device id 1, and its P4Runtime server at 127.0.0.1:9559. Only
published clients are used: p4runtime-shell, and for registers, which it has no command for, the
protobufs (of the package p4runtime).
"""

import json
import os
import socket
import struct
import sys
import time
import traceback

import grpc
import p4runtime_sh.shell as sh
from p4.v1 import p4runtime_pb2
from p4runtime_sh.p4runtime import P4RuntimeWriteException

ETH_P_ALL = 3


def table_entries() -> dict:
    """Insert, read, modify and delete a route. The result also has the switch's errors for a second
    insert and for a delete of a missing entry.
    """
    entry = sh.TableEntry("ipv4_lpm")(action="forward")
    entry.match["ipv4_dst"] = "10.0.2.0/24"
    entry.action["dst_mac"] = "02:00:00:00:02:02"
    entry.action["port"] = "2"
    entry.insert()
    seen = [str(e.action) for e in sh.TableEntry("ipv4_lpm").read()]
    refused = {}
    try:
        entry.insert()
    except P4RuntimeWriteException as error:
        refused["insert"] = str(error)
    entry.action["port"] = "1"
    entry.modify()
    changed = [str(e.action) for e in sh.TableEntry("ipv4_lpm").read()]
    entry.delete()
    left = len(list(sh.TableEntry("ipv4_lpm").read()))
    try:
        entry.delete()
    except P4RuntimeWriteException as error:
        refused["delete"] = str(error)
    return {"seen": seen, "changed": changed, "left": left, "refused": refused}


def events(index: int) -> int:
    """How often the switch has counted an event of p4src/include/events.p4."""
    counter = sh.CounterEntry("events")
    counter.index = index
    counts = []
    counter.read(lambda entry: counts.append(entry.packet_count))
    return counts[0]


def packets() -> dict:
    """A packet-out leaves by port 2. A packet from and to the controller's address arrives at port
    1, and becomes a packet-in if that port is not a host's. The counter of events counts both.
    """
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    listener.bind(("h2", 0))
    listener.settimeout(5)
    arrivals = sh.PacketIn()
    out = sh.PacketOut(payload=b"\x02" * 12 + b"\x88\xb5" + b"out of the shell".ljust(46, b"."))
    out.metadata["egress_port"] = "2"
    out.metadata["submit_to_ingress"] = "0"
    out.metadata["padding"] = "0"
    out.send()
    while True:
        frame = listener.recv(2000)
        if frame[12:14] == b"\x88\xb5":
            break
    route = sh.TableEntry("ipv4_lpm")(action="to_controller")
    route.match["ipv4_dst"] = "169.254.78.67"
    route.insert()
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("h1", 0))
    header = bytes.fromhex("45000044ffff0000401100000a000101a9fe4e43")
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + (0xFFFF - total).to_bytes(2, "big") + header[12:]
    # A READ of 16-byte values, from and to the controller's address.
    read = struct.pack("!BBHHHIIQ16s", 1, 0, 0, 0, 8, 7, 0x01000001, 0, b"for you!")
    frame_in = b"\x02" * 12 + b"\x08\x00" + header + struct.pack("!HHHH", 4000, 20035, 8 + len(read), 0) + read
    sender.send(frame_in)  # a host's packet, because port_trust has no entry for the port
    until = time.monotonic() + 5
    while (closed := events(60)) == 0 and time.monotonic() < until:  # EVENT_DROP_CLOSED_PORT
        time.sleep(0.02)
    trust = sh.TableEntry("port_trust")(action="fabric_port")
    trust.match["ingress_port"] = "1"
    trust.insert()
    sender.send(frame_in)
    packet_in = []
    arrivals.sniff(lambda message: packet_in.append(message.packet), timeout=3)
    return {
        "out": frame[14:].rstrip(b".").decode(),
        "in": [bytes(p.payload)[66:74].decode() for p in packet_in],
        "ingress_port": [int.from_bytes(p.metadata[0].value, "big") for p in packet_in],
        "packet_out_events": events(25),  # EVENT_PACKET_OUT
        "closed_port_events": closed,
    }


def meters() -> dict:
    """Set, read and remove the rate limit of a host's port. The limit that is read is the one that
    was set.
    """
    meter = sh.MeterEntry("host_rate")
    meter.index = 1
    meter.cir = meter.pir = 1000
    meter.cburst = meter.pburst = 64
    meter.modify()

    def of_port(port: int) -> list[int | None]:
        found = sh.MeterEntry("host_rate")
        found.index = port
        seen = []
        found.read(lambda entry: seen.append([entry.cir, entry.cburst, entry.pir, entry.pburst]))
        return seen[0]

    set_to, other = of_port(1), of_port(2)
    meter = sh.MeterEntry("host_rate")  # without a configuration: no bound
    meter.index = 1
    meter.modify()
    return {"set": set_to, "other": other, "after": of_port(1)}


def registers() -> dict:
    """A register cell, written and read with P4Runtime's own messages."""
    register = next(r for r in sh.context.p4info.registers if r.preamble.alias == "session_request")

    def cell() -> p4runtime_pb2.Entity:
        entity = p4runtime_pb2.Entity()
        entity.register_entry.register_id = register.preamble.id
        entity.register_entry.index.index = 7
        return entity

    request = p4runtime_pb2.WriteRequest(device_id=1)
    request.election_id.high, request.election_id.low = 0, 1
    update = request.updates.add(type=p4runtime_pb2.Update.MODIFY)
    update.entity.CopyFrom(cell())
    update.entity.register_entry.data.bitstring = (0x12345678).to_bytes(4, "big")
    try:
        sh.client.stub.Write(request)
        read = p4runtime_pb2.ReadRequest(device_id=1)
        read.entities.append(cell())
        values = [
            e.register_entry.data.bitstring.hex() for answer in sh.client.stub.Read(read) for e in answer.entities
        ]
    except grpc.RpcError as error:
        return {"refused": error.code().name}
    return {"values": values}


def main() -> None:
    """All steps, in order."""
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", 9559), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    sh.setup(
        device_id=1,
        grpc_addr="127.0.0.1:9559",
        election_id=(0, 1),
        config=sh.FwdPipeConfig(*sys.argv[1:3]),
        verbose=False,
    )
    time.sleep(0.2)
    result = {
        "tables": sorted(t.preamble.alias for t in sh.context.p4info.tables),
        "entries": table_entries(),
        "packets": packets(),
        "meters": meters(),
        "registers": registers(),
    }
    sh.teardown()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    status = 1
    try:
        main()
        status = 0
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the shell's packet-in thread waits for ever

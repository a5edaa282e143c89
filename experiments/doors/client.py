#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The load of ``make bench-nodeapi`` in Python: one call at a time through one interface, as
``netcraq-doors client`` does in Go.
"""

from __future__ import annotations

import json
import platform
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client" / "python"))

NAMESPACE, KEY = "default", "services/barista/leader"
VALUE_SIZE, ECHO_SIZE = 64, 128
TIMEOUT = 5.0

Opened = tuple[Callable[[], None], str]


def dial(address: str) -> socket.socket:
    """Connect a socket to a path, or to tcp://host:port."""
    if address.startswith("tcp://"):
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        made = socket.create_connection((host, int(port)))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(address)
    return made


def check(size: int) -> None:
    """Fail if the value does not have the written size."""
    if size != VALUE_SIZE:
        raise ValueError(f"a value of {size} bytes, not {VALUE_SIZE}")


def echo(address: str) -> Opened:
    """Open a bare socket with an echo protocol, to measure the cost of the socket alone."""
    made, message = dial(address), b"x" * ECHO_SIZE

    def get() -> None:
        made.sendall(message)
        left = ECHO_SIZE
        while left:
            left -= len(made.recv(left))

    return get, "socket"


def json_lines(address: str) -> Opened:
    """Open the node API with the Python library."""
    from netcraq import node

    client = node.connect(socket=address)
    return lambda: check(len(client.get(KEY).value or b"")), "netcraq.node"


def compact(address: str) -> Opened:
    """Open the compact framing, with a client that supports only a get."""
    import cbor2

    made, number = dial(address), 0
    made.sendall(b"\0NC1")

    def get() -> None:
        nonlocal number
        number += 1
        body = cbor2.dumps([number, "get", {"key": KEY}, 0, 0, 0])
        made.sendall(struct.pack(">I", len(body)) + body)
        got = made.recv(65536)
        while len(got) < 4 or len(got) < 4 + struct.unpack_from(">I", got)[0]:
            got += made.recv(65536)
        found, item, error, _ = cbor2.loads(got[4:])
        if error or found != number:
            raise ValueError(f"answered with {error or found}")
        check(len(item["value"]))

    from importlib.metadata import version

    return get, f"cbor2 {version('cbor2')}, a client of its own"


def grpc_unary(address: str) -> Opened:
    """Open gRPC, with message classes made at run time, because protoc's output depends on its
    version.
    """
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.internal import api_implementation

    file = descriptor_pb2.FileDescriptorProto(name="doors.proto", package="netcraq.doors", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for message, fields in {
        "GetRequest": [("namespace", field.TYPE_STRING), ("key", field.TYPE_STRING), ("eventual", field.TYPE_BOOL)],
        "Item": [
            ("key", field.TYPE_STRING),
            ("found", field.TYPE_BOOL),
            ("value", field.TYPE_BYTES),
            ("version", field.TYPE_STRING),
        ],
    }.items():
        made = file.message_type.add(name=message)
        for number, (name, kind) in enumerate(fields, 1):
            made.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    described = [pool.FindMessageTypeByName(f"netcraq.doors.{name}") for name in ("GetRequest", "Item")]
    if hasattr(message_factory, "GetMessageClass"):
        request, item = map(message_factory.GetMessageClass, described)
    else:
        request, item = map(message_factory.MessageFactory(pool).GetPrototype, described)
    target = address.removeprefix("tcp://") if address.startswith("tcp://") else f"unix:{address}"
    call = grpc.insecure_channel(target).unary_unary(
        "/netcraq.doors.Doors/Get", request_serializer=request.SerializeToString, response_deserializer=item.FromString
    )
    how = f"grpcio {grpc.__version__}, protobuf {api_implementation.Type()}"
    return lambda: check(len(call(request(namespace=NAMESPACE, key=KEY), timeout=TIMEOUT).value)), how


DOORS = {"echo": echo, "json": json_lines, "compact": compact, "grpc": grpc_unary}


def main(door: str, address: str, seconds: str, warm: str) -> None:
    """Wait for a line on standard input, measure, and print the result as JSON."""
    get, version = DOORS[door](address)
    for _ in range(int(warm)):
        get()
    print("ready", flush=True)
    sys.stdin.readline()
    took: list[int] = []
    cpu, began = time.process_time_ns(), time.perf_counter_ns()
    now, end = began, began + int(float(seconds) * 1e9)
    while now < end:
        get()
        then, now = now, time.perf_counter_ns()
        took.append(now - then)
    elapsed, cpu = (time.perf_counter_ns() - began) / 1e9, time.process_time_ns() - cpu
    took.sort()
    print(
        json.dumps(
            {
                "calls": len(took),
                "seconds": elapsed,
                "p50_us": took[len(took) // 2] / 1e3,
                "p99_us": took[len(took) * 99 // 100] / 1e3,
                "cpu_us": cpu / 1e3,
                "version": f"{version}, Python {platform.python_version()}",
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

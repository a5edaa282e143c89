# SPDX-License-Identifier: Apache-2.0
"""NetChain and NetCache as their authors wrote them for BMv2, in P4_14. They are compiled, filled
in with the authors' own commands through ``simple_switch_CLI``, and given packets like those of the
authors' programs, and odd ones. The frames that come out, the CLI's output, and the registers at
the end (NetChain's values are visible in its answers) must equal BMv2's.

Packets whose result these programs leave undefined, because they read fields of invalid headers,
are left out: for NetCache, packets of other protocols, and truncated values that it caches; for
NetChain, packets whose chain ends before the tail.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .exchange import FENCE, PACKET
from .outcome import Outcome
from .sandbox import Tools, run

PACKETS = 400
"""How many packets each program is given."""

_SEED = 20181


@dataclass
class Step:
    """A packet to send: its port, a description, its destination, and the bytes of the UDP payload
    or, with ``whole``, of the complete frame.
    """

    port: int
    what: str
    source: str
    target: str
    payload: bytes = b""
    udp: int = 8888
    ttl: int = 64
    whole: bytes | None = None


@dataclass
class Original:
    """A program at one place of its network: its file, its ports, the commands that fill it in, its
    packets, and commands by the number of the packet before which they run.
    """

    name: str
    program: str
    ports: list[int]
    commands: list[str]
    steps: list[Step]
    fence: bytes = b""
    fence_port: int = 7
    reachable: frozenset[str] = frozenset()
    before: dict[int, list[str]] = field(default_factory=dict)


def _address(text: str) -> bytes:
    return bytes(int(x) for x in text.split("."))


def ipv4(source: str, target: str, protocol: int, body: bytes, ttl: int = 64) -> bytes:
    """An Ethernet frame with an IPv4 packet that has a correct checksum."""
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0x1234, 0, ttl, protocol, 0)
    header += _address(source) + _address(target)
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack(">H", total ^ 0xFFFF) + header[12:]
    return bytes.fromhex("aabbccddee41aabbccddee010800") + header + body


def udp(source: str, target: str, port: int, payload: bytes, ttl: int = 64) -> bytes:
    """A frame with a UDP datagram from port 5555, without a UDP checksum."""
    return ipv4(source, target, 17, struct.pack(">HHHH", 5555, port, 8 + len(payload), 0) + payload, ttl)


def frames(original: Original) -> Iterator[tuple[int, str, str]]:
    """The port, the frame and the fence of each step, in hexadecimal. The fence takes the same path
    as the packet, so it comes out after the packet, and changes nothing.
    """
    for number, x in enumerate(original.steps):
        marked = struct.pack(">HH", PACKET, number)
        frame = x.whole + marked if x.whole is not None else udp(x.source, x.target, x.udp, x.payload + marked, x.ttl)
        behind = original.fence + struct.pack(">HH", FENCE, number)
        to = x.target if x.target in original.reachable else min(original.reachable)
        yield x.port, frame.hex(), udp(x.source, to, original.fence_port, behind).hex()


# ---- NetChain: the switches s1 to s3 hold the keys; the clients are at s4

_KEYS = range(2018, 2018 + 120)
_GROUPS = 20
_CHAIN = ("10.0.100.1", "10.0.100.2", "10.0.100.3")
_READ, _READ_REPLY, _WRITE, _WRITE_REPLY = 10, 11, 12, 13
_REPLY_PORT = 8889


def chained(hops: tuple[str, ...], op: int, key: int, value: int = 0, seq: int = 0) -> bytes:
    """NetChain's headers: the chain with its end mark, and the operation."""
    group = (key - _KEYS[0]) // (len(_KEYS) // _GROUPS) & 0xFFFF
    route = b"".join(_address(x) for x in (*hops, "0.0.0.0"))
    return route + struct.pack(">BBH", op, 4, seq) + key.to_bytes(16) + value.to_bytes(16) + struct.pack(">H", group)


def _netchain_step(r: random.Random, place: int, sequences: dict[int, int]) -> Step:
    """A packet for the switch at a place: 0 to 2 hold the keys, 3 has the clients."""
    me = _CHAIN[place] if place < 3 else _CHAIN[0]
    key = r.choice(_KEYS[:12]) if r.random() < 0.8 else r.choice(_KEYS)
    client = r.choice(("10.0.0.1", "10.0.0.2"))
    port = r.choice((1, 2))
    kind = r.choices(
        ("write", "read", "passes", "stranger", "op", "reply", "other", "cut", "long", "ttl", "lost"),
        (34, 28, 8, 4, 5, 6, 6, 3, 2, 2, 2),
    )[0]
    value = r.getrandbits(128)
    # A write that is not at the chain's head has passed it already, and has a number.
    seq = 0 if place == 0 else max(0, sequences.get(key, 0) + r.choice((1, 1, 1, 0, -1, 5)))
    rest = _CHAIN[min(place, 2) :] if place < 3 else _CHAIN
    write = chained(rest, _WRITE, key, value, seq)
    if kind == "write":
        sequences[key] = max(seq, sequences.get(key, 0))
        return Step(port, kind, client, me, write)
    if kind == "read":
        return Step(port, kind, client, me, chained(_CHAIN[::-1], _READ, key))
    if kind == "passes":
        there = r.choice([x for x in (*_CHAIN, "10.0.100.4") if x != me])
        return Step(port, kind, client, there, chained(_CHAIN, r.choice((_READ, _WRITE)), key, value, seq))
    if kind == "stranger":
        return Step(port, kind, client, me, chained(rest, _WRITE, r.getrandbits(128), value, seq))
    if kind == "op":
        return Step(port, kind, client, me, chained(rest, r.choice((0, 1, 14, 77, 255)), key, value, seq))
    if kind == "reply":
        op = r.choice((_READ_REPLY, _WRITE_REPLY))
        return Step(port, kind, me, client, chained((), op, key, value, seq), _REPLY_PORT)
    if kind == "other":
        body = struct.pack(">HHIIHHHH", 5555, 80, 1, 2, 0x5010, 8192, 0, 0) + r.randbytes(r.randrange(40))
        frame = r.choice(
            (
                ipv4(client, "10.0.0.1", 6, body),
                ipv4(client, "10.0.0.2", 1, bytes(8) + r.randbytes(20)),
                udp(client, "10.0.0.1", 53, r.randbytes(30)),
                bytes(12) + bytes.fromhex("0806") + bytes(28),
            )
        )
        return Step(port, kind, client, "10.0.0.1", whole=frame)
    if kind == "cut":
        size = r.choice((1, 3, 17, 21, len(write) - 5))
        return Step(port, kind, client, me, write[:size])
    if kind == "long":
        return Step(port, kind, client, me, chained(_CHAIN * 4, r.choice((_READ, _WRITE)), key, value, seq))
    if kind == "ttl":
        return Step(port, kind, client, me, write, ttl=r.choice((0, 1)))
    return Step(port, kind, client, "192.0.2.9", write)


def netchain(source: Path) -> list[Original]:
    """NetChain's switches by their places. At the head, the commands of its controller for failover
    and recovery are run, as when the middle switch fails.
    """
    made = []
    for place, role in enumerate((100, 101, 102, None)):
        name = "commands.txt" if place == 0 else f"commands_{place}.txt"
        commands = (source / "controller" / "config" / name).read_text().splitlines()
        for index, key in enumerate(_KEYS if role else ()):
            commands += [
                f"table_add get_my_address get_my_address_act {key} => {_CHAIN[place]} {role}",
                f"table_add find_index find_index_act {key} => {index}",
                f"register_write value_reg {index} {index}",
            ]
        r = random.Random(_SEED + place)
        sequences: dict[int, int] = {}
        steps = [_netchain_step(r, place, sequences) for _ in range(PACKETS)]
        routes = {x.split()[3] for x in commands if x.startswith("table_add ipv4_route")}
        x = Original(
            f"netchain-s{place + 1}",
            "netchain",
            [1, 2, 3, 4, 5],
            commands,
            steps,
            reachable=frozenset(routes),
        )
        if place == 0:
            add, failed = "table_add failure_recovery", f"{_CHAIN[1]}&&&255.255.255.255 0.0.0.0&&&0.0.0.0"
            x.before = {
                PACKETS // 2: [f"{add} failover_act {failed} 0&&&0 => 3"],
                PACKETS * 5 // 8: [f"{add} drop_packet_act {failed} {n}&&&255 => 2" for n in range(_GROUPS // 2)],
                PACKETS * 3 // 4: [
                    f"{add} failure_recovery_act {failed} {n}&&&255 => 10.0.100.4 1" for n in range(_GROUPS)
                ],
            }
        made.append(x)
    return made


# ---- NetCache: one switch with a client, a server and a controller

_CLIENT, _SERVER, _CONTROLLER = "10.0.0.1", "10.0.0.2", "10.0.0.3"
_GET, _GOT, _HOT, _PUT, _PUT_DONE, _UPDATE, _UPDATED = 0, 1, 2, 4, 5, 8, 9


def cached(op: int, key: int, rest: bytes = b"") -> bytes:
    """NetCache's headers: a key is its number and twelve zero bytes."""
    return struct.pack(">BI", op, key) + bytes(12) + rest


def _netcache_step(r: random.Random) -> Step:
    hit, miss = r.randrange(1, 100, 2), r.choice((2, 2, 2, 2, 4, 6, 8, 100))
    value = r.randbytes(128)
    kind = r.choices(
        ("update", "hit", "miss", "reply", "put", "ask", "hot", "stranger", "op", "cut", "ttl", "lost"),
        (14, 22, 40, 5, 4, 3, 2, 3, 2, 2, 2, 1),
    )[0]
    by = {"client": (1, kind, _CLIENT, _SERVER), "server": (2, kind, _SERVER, _CLIENT)}
    by["controller"] = (3, kind, _CONTROLLER, _SERVER)
    if kind == "update":
        return Step(2, kind, _SERVER, _CONTROLLER, cached(_UPDATED, hit, value))
    if kind == "hit":
        return Step(*by["client"], cached(_GET, hit))
    if kind == "miss":
        return Step(*by["client"], cached(_GET, miss))
    if kind == "reply":
        return Step(*by["server"], cached(_GOT, r.choice((hit, miss)), value))
    if kind == "put":
        from_client = r.random() < 0.5
        who, op = ("client", _PUT) if from_client else ("server", _PUT_DONE)
        return Step(*by[who], cached(op, r.choice((hit, miss)), value))
    if kind == "ask":
        return Step(*by["controller"], cached(_UPDATE, hit))
    if kind == "hot":
        return Step(*by["server"], cached(_HOT, miss, r.randbytes(16)))
    if kind == "stranger":
        return Step(2, kind, _SERVER, _CONTROLLER, cached(_UPDATED, miss, value))
    if kind == "op":
        return Step(*by["client"], cached(r.choice((3, 77, 255)), r.choice((hit, miss)), value[:9]))
    if kind == "cut":
        return Step(*by["server"], cached(_GOT, miss, value[: r.choice((1, 15, 18, 60, 120))]))
    if kind == "ttl":
        return Step(*by["client"], cached(_GET, r.choice((hit, miss))), ttl=r.choice((0, 1)))
    return Step(1, kind, _CLIENT, "192.0.2.9", cached(_GET, r.choice((hit, miss))))


def netcache(source: Path) -> list[Original]:
    """NetCache's switch. More than 128 packets read the same uncached key, so the switch reports it
    as hot.
    """
    commands = (source / "mininet" / "commands.txt").read_text().splitlines()
    r = random.Random(_SEED)
    steps = [_netcache_step(r) for _ in range(PACKETS)]
    reads = [x for x in steps if x.what == "miss"]
    for x in reads[:: max(1, len(reads) // 140)]:
        x.payload = cached(_GET, 2)
    fence = cached(_PUT, 0xEEEEEEEE)
    there = frozenset((_CLIENT, _SERVER, _CONTROLLER))
    return [Original("netcache", "netcache", [1, 2, 3], commands, steps, fence, 8888, there)]


# ---- Running and judging


def compiled(source: Path, program: str, folder: Path) -> Path | str:
    """The program's JSON, or the reason why it does not compile."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder.resolve() / f"{program}.json"
    command = ["p4c-bm2-ss", "--std", "p4-14", "-o", str(out), f"{program}.p4"]
    done = subprocess.run(command, cwd=source / "p4src", capture_output=True, text=True, timeout=300, check=False)
    if done.returncode or not out.exists():
        wrong = [x for x in done.stderr.splitlines() if "error" in x.lower()]
        return f"{program}.p4 does not compile: {(wrong or [str(done.returncode)])[0]}"
    return out


Result = dict[str, object]
"""What exchange.py writes."""

_REFERENCES: dict[str, Result | str] = {}


def exchanged(original: Original, program: Path, work: Path, tools: Tools) -> Result | str:
    """Run a program with its packets on an engine. Returns the result, or the reason why it cannot
    run.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    shutil.copy(program, work / "program.json")
    shutil.copy(Path(__file__).with_name("exchange.py"), work / "exchange.py")
    steps: list[dict[str, object]] = [{"commands": original.commands}]
    for number, (port, frame, fence) in enumerate(frames(original)):
        if number in original.before:
            steps.append({"commands": original.before[number]})
        steps.append({"port": port, "frame": frame, "fence": fence})
    task = {"program": "program.json", "ports": original.ports, "steps": steps}
    (work / "task.json").write_text(json.dumps(task))
    command = [str(tools.python), "exchange.py", "task.json", "out.json"]
    result = run(command, tools, work, work / "output.log", 400)
    if result.code is None:
        return "not done after 400 s"
    if result.code != 0 or not (work / "out.json").exists():
        return (result.output.strip().splitlines() or [f"exchange.py ended with {result.code}"])[-1][:300]
    return json.loads((work / "out.json").read_text())


def judge(original: Original, ours: Result, theirs: Result) -> Outcome:
    """Compare a result with BMv2's. It passes only if all parts are equal."""
    mine, wanted = (
        {int(n): sorted(map(tuple, x)) for n, x in y["came"].items()}  # type: ignore[attr-defined]
        for y in (ours, theirs)
    )
    numbers = range(len(original.steps))
    other = [n for n in numbers if mine.get(n) != wanted.get(n)]
    if other:
        n = other[0]
        said = f"packet {n}, {original.steps[n].what}: {_short(mine.get(n))}; on BMv2 {_short(wanted.get(n))}"
        return Outcome(False, f"{len(numbers) - len(other)} of {len(numbers)} packets as BMv2; {said}")
    for what in ("strange", "said", "registers"):
        if ours[what] != theirs[what]:
            return Outcome(False, f"{what}: {_apart(str(ours[what]), str(theirs[what]))}")
    came = sum(len(x) for x in mine.values())
    return Outcome(True, f"{len(numbers)} of {len(numbers)} packets as BMv2, {came} frames of {len(mine)}")


def _short(came: list[tuple[int, str]] | None) -> str:
    return "; ".join(f"port {port} {frame}" for port, frame in came) if came else "nothing"


def _apart(a: str, b: str) -> str:
    """Describes where two texts begin to differ."""
    at = next((i for i, (x, y) in enumerate(itertools.zip_longest(a, b)) if x != y), 0)
    begin = max(0, at - 40)
    return f"{a[begin : at + 60]!r}, on BMv2 {b[begin : at + 60]!r}"


def attempt(original: Original, source: Path, work: Path, tools: Tools, reference: Tools) -> Outcome:
    """Run a program on an engine, and compare it with BMv2, which ``reference`` has. BMv2's result
    is computed once for all engines.
    """
    shared = work.parents[2] / "originals" / original.name
    program = compiled(source, original.program, shared.parent)
    if isinstance(program, str):
        return Outcome(False, program)
    if original.name not in _REFERENCES:
        _REFERENCES[original.name] = exchanged(original, program, shared, reference)
    theirs = _REFERENCES[original.name]
    if isinstance(theirs, str):
        return Outcome(False, f"on BMv2: {theirs}")
    ours = exchanged(original, program, work, tools)
    if isinstance(ours, str):
        return Outcome(False, ours)
    log = (work / "switch.log").read_text(errors="replace")
    engines = sorted(set(re.findall(r'\bengine="?(\w+)', log)))
    judged = judge(original, ours, theirs)
    return Outcome(judged.passed, judged.reason, "+".join(engines))

# SPDX-License-Identifier: Apache-2.0
"""p4lang/tutorials: the solution of each exercise, started by its own Makefile, with its own
scripts on its own hosts. An exercise's README says what it must show. This program judges the
scripts' output.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .outcome import Outcome
from .sandbox import Tools, run

Judge = Callable[[dict[str, str]], str | None]
"""Judges what was printed, by name: None where all is well, else what is wrong."""


@dataclass(frozen=True)
class Exercise:
    """The commands to type at Mininet's prompt, and a function that judges the result.

    ``out/NAME`` in a line is a file for the output of a command. ``judge`` gets its content under
    NAME, and all output at the prompt under ``""``.
    """

    name: str
    lines: tuple[str, ...]
    judge: Judge
    timeout: float = 240


def received(text: str) -> int:
    """The number of packets that a ``receive.py`` reports."""
    return text.count("got a packet")


def unreachable(text: str) -> str | None:
    """The losses that ``pingall`` or ``ping`` report; None if there are none."""
    lost = re.findall(r"(\d+)% (?:dropped|packet loss)", text)
    if not lost:
        return "no ping has ended"
    return None if set(lost) == {"0"} else f"pings lost {', '.join(x + '%' for x in lost)}"


def fields(text: str, name: str) -> list[str]:
    """The values of a field in the output of scapy's ``show2``."""
    return re.findall(rf"^[ |#]*{name} *= *(\S+)", text, re.MULTILINE)


def _basic(out: dict[str, str]) -> str | None:
    if lost := unreachable(out[""]):
        return lost
    return None if received(out["h4"]) == 1 and "P4 is cool" in out["h4"] else "h4 got no message"


def _tunnel(out: dict[str, str]) -> str | None:
    if received(out["h2"]) != 2:
        return f"h2 got {received(out['h2'])} of 2 messages"
    if fields(out["h2"], "dst_id") != ["2"]:
        return f"tunnels at h2: {fields(out['h2'], 'dst_id')}, not one of 2"
    return None if received(out["h3"]) == 0 else "h3 got a message for tunnel 2"


def _calc(out: dict[str, str]) -> str | None:
    got = re.findall(r"^(?:> )*(\d+)$", out["calc"], re.MULTILINE)
    return None if got == ["3", "4", "2", "7", "5"] else f"3, 4, 2, 7, 5 are {', '.join(got) or 'nothing'}"


def _ecn(out: dict[str, str]) -> str | None:
    tos = set(fields(out["h2"], "tos"))
    return None if tos == {"0x1", "0x3"} else f"tos is {', '.join(sorted(tos)) or 'nothing'}, not 0x1 and then 0x3"


def _mri(out: dict[str, str]) -> str | None:
    counts, ids = set(fields(out["h2"], "count")), set(fields(out["h2"], "swid"))
    if counts != {"2"} or ids != {"1", "2"}:
        return f"counts {sorted(counts)} and switches {sorted(ids)}, not 2 of 1 and 2"
    if all(x == "0" for x in fields(out["h2"], "qdepth")):
        return "no queue was ever seen: qdepth is 0 always"
    return None


def _firewall(out: dict[str, str]) -> str | None:
    for name in ("h2", "h3"):
        if "bits/sec" not in out[name]:
            return f"h1 cannot connect to {name}"
    return "h3 can connect to h1" if "bits/sec" in out["back"] else None


def _flowcache(out: dict[str, str]) -> str | None:
    # A flow's first packets go through the controller, or are lost while it decides.
    if not re.search(r"icmp_seq=8 ", out["ping"]):
        return unreachable(out["ping"]) or "no ping has ended"
    if "PacketIn" not in out["controller"]:
        return "the controller got no packet"
    return None if "Deleted flow_cache entry" in out["controller"] else "no idle flow was deleted"


def _monitor(out: dict[str, str]) -> str | None:
    rates = [float(x) for x in re.findall(r"Switch \d+ - Port \d+: (\S+) Mbps", out["probes"])]
    if len(rates) < 8:
        return f"{len(rates)} rates of links, fewer than one probe's 8"
    return None if max(rates) > 0.1 else "no link was ever used, with iperf on it"


def _balance(out: dict[str, str]) -> str | None:
    two, three = received(out["h2"]), received(out["h3"])
    # With 12 flows, the probability that one host gets all of them is 1 in 2,048.
    return None if two and three and two + three == 12 else f"h2 got {two} and h3 {three} of 12 messages"


def _controller(out: dict[str, str]) -> str | None:
    if lost := unreachable(out["ping"]):
        return lost
    for name in ("s1 MyIngress.ingressTunnelCounter 100", "s2 MyIngress.egressTunnelCounter 100"):
        if not re.search(rf"{re.escape(name)}: [1-9]", out["controller"]):
            return f"{name} has counted nothing"
    return None


def _qos(out: dict[str, str]) -> str | None:
    tos = fields(out["h2"], "tos")
    return None if {"0xb1", "0xb9"} <= set(tos) else f"tos is {tos}, not 0xb9 for UDP and 0xb1 for TCP"


def _routing(out: dict[str, str]) -> str | None:
    ttl = fields(out["h2"], "ttl")
    return None if ttl == ["59"] else f"ttl is {ttl}, not 59 after five switches"


def _receive(host: str) -> str:
    return f"{host} ./receive.py > out/{host} 2>&1 &"


def _until(said: str, name: str) -> str:
    """A command that waits until a script has printed something, and then a moment for its next
    step.
    """
    return f"sh until grep -q '{said}' out/{name}; do sleep 0.2; done; sleep 2"


_BOTH_RECEIVE = (_receive("h2"), _receive("h3"), _until("sniffing", "h2"), _until("sniffing", "h3"))
"""h2 and h3 listen."""

_BESIDE_A_FLOOD = (
    _receive("h2"),
    "h22 iperf -s -u > out/h22 2>&1 &",
    _until("sniffing", "h2"),
    'h1 ./send.py 10.0.2.2 "P4 is cool" 12 > out/h1 2>&1 &',
    _until("Sent", "h1"),
    "h11 iperf -c 10.0.2.22 -t 8 -u > out/h11 2>&1",
    "sh sleep 4",
)
"""h1 sends to h2 while iperf fills the queue that they share."""


EXERCISES = (
    Exercise(
        "basic",
        ("pingall", _receive("h4"), _until("sniffing", "h4"), 'h1 ./send.py 10.0.4.4 "P4 is cool"', "sh sleep 2"),
        _basic,
    ),
    Exercise(
        "basic_tunnel",
        (
            *_BOTH_RECEIVE,
            'h1 ./send.py 10.0.2.2 "P4 is cool"',
            'h1 ./send.py 10.0.3.3 "P4 is cool" --dst_id 2',
            "sh sleep 2",
        ),
        _tunnel,
    ),
    Exercise("calc", ("h1 printf '1+2\\n7-3\\n6&3\\n6|1\\n6^3\\nquit\\n' | python3 calc.py > out/calc 2>&1",), _calc),
    Exercise(
        "ecn",
        _BESIDE_A_FLOOD,
        _ecn,
    ),
    Exercise(
        "firewall",
        (
            "h2 iperf -s > out/server2 2>&1 &",
            "h3 iperf -s > out/server3 2>&1 &",
            "h1 iperf -s > out/server1 2>&1 &",
            "sh sleep 1",
            "h1 iperf -t 2 -c 10.0.2.2 > out/h2 2>&1",
            "h1 iperf -t 2 -c 10.0.3.3 > out/h3 2>&1",
            "h3 timeout -s KILL 6 iperf -t 2 -c 10.0.1.1 > out/back 2>&1",
        ),
        _firewall,
    ),
    Exercise(
        "flowcache",
        (
            "sh ./mycontroller.py > out/controller 2>&1 &",
            _until("on s3", "controller"),
            "h1 ping -c 8 h2 > out/ping 2>&1",
            "sh for i in $(seq 75); do grep -q Deleted out/controller && break; sleep 0.2; done",
        ),
        _flowcache,
    ),
    Exercise(
        "link_monitor",
        (
            "h4 iperf -s > out/h4 2>&1 &",
            "h1 ./receive.py > out/probes 2>&1 &",
            _until("sniffing", "probes"),
            "h1 ./send.py > out/send 2>&1 &",
            _until("Sent", "send"),
            "h1 iperf -t 4 -c 10.0.4.4 > out/iperf 2>&1",
            "sh sleep 2",
        ),
        _monitor,
    ),
    Exercise(
        "load_balance",
        (
            *_BOTH_RECEIVE,
            'h1 for i in 1 2 3 4 5 6 7 8 9 10 11 12; do ./send.py 10.0.0.1 "P4 is cool"; done',
            "sh sleep 2",
        ),
        _balance,
    ),
    Exercise(
        "mri",
        _BESIDE_A_FLOOD,
        _mri,
    ),
    Exercise("multicast", ("pingall",), lambda out: unreachable(out[""])),
    Exercise(
        "p4runtime",
        (
            "sh ./mycontroller.py > out/controller 2>&1 &",
            _until("egress tunnel rule on s1", "controller"),
            "h1 ping -c 3 h2 > out/ping 2>&1",
            "sh sleep 4",
        ),
        _controller,
    ),
    Exercise(
        "qos",
        (
            _receive("h2"),
            _until("sniffing", "h2"),
            'h1 ./send.py --p=UDP --des=10.0.2.2 --m="P4 is cool" --dur=1',
            'h1 ./send.py --p=TCP --des=10.0.2.2 --m="P4 is cool" --dur=1',
            "sh sleep 2",
        ),
        _qos,
    ),
    Exercise(
        "source_routing",
        (
            _receive("h2"),
            _until("sniffing", "h2"),
            "h1 printf '2 3 2 2 1\\nq\\n' | ./send.py 10.0.2.2",
            "sh sleep 2",
        ),
        _routing,
    ),
)
"""All exercises of the repository as of 2026."""


def prepare(source: Path, work: Path, exercise: str) -> Path:
    """Copy an exercise and what it uses, with the solution instead of the skeleton."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source / "utils", work / "utils")
    there = work / "exercises" / exercise
    built = shutil.ignore_patterns("build", "logs", "pcaps", "*.pdf", "*.png")
    shutil.copytree(source / "exercises" / exercise, there, ignore=built)
    if (source / "bin").is_dir():
        shutil.copytree(source / "bin", work / "bin")
    solutions = list((there / "solution").iterdir())
    for solution in solutions:
        # Some exercises keep table entries with their topology.
        places = [p for p in there.rglob(solution.name) if p.parent.name != "solution"]
        for place in places or [there / solution.name]:
            shutil.copy(solution, place)
    for script in there.glob("*.py"):
        script.chmod(0o755)
    (there / "out").mkdir()
    return there


IPERF = (("basic", "h1", "h4"), ("basic_tunnel", "h1", "h2"), ("firewall", "h1", "h3"))
IPERF += (("link_monitor", "h1", "h4"), ("multicast", "h1", "h2"))
"""Exercises whose links have no bandwidth of their own, and two hosts of each."""


def iperf(name: str, client: str, server: str, source: Path, work: Path, tools: Tools) -> Outcome:
    """Run one TCP stream of 5 s between two hosts of an exercise. The observation is its rate."""
    there = prepare(source, work, name)
    lines = [f"{server} iperf -s > out/server 2>&1 &", "sh sleep 2", f"{client} ping -c 2 {server}"]
    lines += [f"{client} iperf -f m -t 5 -c {server} > out/client 2>&1", "exit", ""]
    result = run(["make", "run"], tools, there, work / "prompt.log", 120, "\n".join(lines))
    client_said = there / "out" / "client"
    rate = rate_of(client_said.read_text(errors="replace") if client_said.exists() else "")
    if rate is None:
        return Outcome(False, "no connection: " + result.output.strip()[-160:])
    return Outcome(True, f"{rate:g} Mbit/s", _loaded(there / "logs"))


def rate_of(said: str) -> float | None:
    """The last rate in the output of ``iperf -f m``, in Mbit/s."""
    rates = re.findall(r"([\d.]+) Mbits/sec", said)
    return float(rates[-1]) if rates else None


def attempt(exercise: Exercise, source: Path, work: Path, tools: Tools) -> Outcome:
    """Run an exercise with ``make run``, and judge it."""
    there = prepare(source, work, exercise.name)
    script = "\n".join([*exercise.lines, "exit", ""])
    result = run(["make", "run"], tools, there, work / "prompt.log", exercise.timeout, script)
    out = {"": result.output}
    for line in exercise.lines:
        for name in re.findall(r"> out/(\w+)", line):
            path = there / "out" / name
            out[name] = path.read_text(errors="replace") if path.exists() else ""
    if result.code is None:
        return Outcome(False, f"not done after {exercise.timeout:g} s")
    if "did not start correctly" in result.output:
        return Outcome(False, "a switch did not start: " + _last(there / "logs" / "s1.log"))
    reason = exercise.judge(out)
    if reason is None and result.code != 0:
        reason = f"make run ended with {result.code}"
    return Outcome(reason is None, reason or "", _loaded(there / "logs"))


def _last(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "no log"


def _loaded(logs: Path) -> str:
    """The engine that ran the programs, according to the switches' logs; BMv2's name none."""
    said = [log.read_text(errors="replace") for log in logs.glob("s*.log")]
    engines = {x for text in said for x in re.findall(r'\bengine="?(\w+)', text)}
    return "+".join(sorted(engines))

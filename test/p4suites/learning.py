# SPDX-License-Identifier: Apache-2.0
"""The exercises and examples of nsg-ethz/p4-learning, on p4-utils' runner, with its Thrift and
P4Runtime switches. Each network is started by its own script, which compiles the program, starts
switches and controllers, and fills tables. Then this program types the commands of the network's
README, and all hosts ping each other.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from .outcome import Outcome
from .ptf import copy
from .sandbox import Tools, run

# Networks that need more than a switch and hosts: routing daemons, or a chip's model.
_BEYOND = re.compile(r"addRouter|addTofino|addFRRouter")

_COLOUR = re.compile(r"\x1b\[\d*m")


@dataclass(frozen=True)
class Typed:
    """The commands that a README tells the reader to type at a network's prompt, before and after
    the hosts ping each other, and patterns that the output must then match. ``includes`` are files
    that the README tells the reader to put among p4c's.
    """

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()


def _background(host: str, script: str, ready: str) -> tuple[str, str]:
    """A script to run in the background, and a command that waits until it prints ``ready``."""
    log = f"typed-{host}.log"
    wait = f"sh for i in $(seq 100); do grep -q '{ready}' {log} && break; sleep 0.2; done"
    return f"{host} python3 -u {script} >{log} 2>&1 &", wait


def _later(*logs: str) -> tuple[str, ...]:
    return ("sh sleep 2", *(f"sh cat typed-{x}.log" for x in logs))


def _learn(mode: str, switches: int = 1) -> Typed:
    begun = tuple(
        f"sh python3 l2_learning_controller.py s{n + 1} {mode} >typed-s{n + 1}.log 2>&1 &" for n in range(switches)
    )
    return Typed(before=(*begun, "sh sleep 6"), seen=("h1 -> h2",))


def _registers(name: str, values: str) -> Typed:
    read = f"sh echo register_read {name} | simple_switch_CLI --thrift-port 9090"
    return Typed(after=("h1 python3 send.py 10.0.1.2 200", "sh sleep 1", read), seen=(f"{name}= *{values}",))


_ROUTES = Typed(before=("sh python3 routing-controller.py >typed.log 2>&1",), seen=("h1 -> h2",))
_MESSAGE = Typed(
    before=_background("h2", "receive.py", "sniffing"),
    after=('h1 python3 send.py 10.0.0.2 "a message"', *_later("h2")),
    seen=("got a packet", "load *= *.*a message"),
)

TYPED = {
    "examples/copy_to_cpu/network.py": Typed(
        before=_background("sh", "receive.py", "sniffing"),
        after=("h1 python3 send.py 10.1.2.2", *_later("sh")),
        seen=("Controller got a packet", "reason *= 200"),
    ),
    "examples/counter/network_direct.py": Typed(
        after=("sh python3 read_counters.py direct",), seen=(r"direct_port_counter\[0\]= *\(\d+ bytes, [1-9]",)
    ),
    "examples/counter/network_indirect.py": Typed(
        after=("sh python3 read_counters.py indirect",), seen=(r"port_counter\[1\]= *\(\d+ bytes, [1-9]",)
    ),
    "examples/digest_messages/network.py": Typed(
        before=_background("sh", "get_digest.py", "connecting"), after=_later("sh"), seen=(r"src ip: 10\.",)
    ),
    "examples/heavy_hitter/network.py": Typed(
        before=("h2 python3 -u receive.py >typed-h2.log 2>&1 &", "sh sleep 4"),
        after=("h1 python3 send.py 10.0.2.2 1500 >/dev/null", "sh sleep 2", "sh tail -1 typed-h2.log"),
        seen=("total: 1000$",),
    ),
    "examples/l2_learning/network_cpu.py": _learn("cpu"),
    "examples/l2_learning/network_cpu_multi.py": _learn("cpu", 4),
    "examples/l2_learning/network_digest.py": _learn("digest"),
    "examples/l2_learning/network_digest_multi.py": _learn("digest", 4),
    "exercises/04-L2_Learning/thrift/solution/network_cpu.py": _learn("cpu"),
    "exercises/04-L2_Learning/thrift/solution/network_digest.py": _learn("digest"),
    "exercises/04-L2_Learning/p4runtime/solution/network_cpu.py": _learn("cpu"),
    "exercises/04-L2_Learning/p4runtime/solution/network_digest.py": _learn("digest"),
    "examples/multiqueueing/network.py": Typed(
        after=("sh echo set_queue_rate 500 3 7 | simple_switch_CLI --thrift-port 9090", "h2 ping -c 2 10.0.1.3"),
        seen=("2 received",),
        includes=("v1model.p4",),
    ),
    "examples/reflector/network.py": Typed(
        after=("h1 (echo; sleep 2) | timeout 20 python3 -u send_receive.py 2>/dev/null",),
        seen=("A packet was reflected",),
    ),
    "examples/repeater/network.py": _MESSAGE,
    "examples/resubmit_recirculate/network_resubmit.py": _registers("resubmit_register", "255, 255, 255"),
    "examples/resubmit_recirculate/network_recirculate.py": _registers("recirculate_register", "255, 254, 253, 252"),
    "examples/simple_int/network.py": Typed(
        before=_background("h2", "receive.py", "sniffing"),
        after=('h1 python3 send.py 10.0.2.2 "a message" 1', *_later("h2")),
        seen=("got a packet", "swid *= 2", "swid *= 1"),
    ),
    "examples/verify_checksum/network.py": Typed(
        before=_background("h2", "receive.py", "sniffing"),
        after=("h1 python3 send.py 10.0.1.2 valid", *_later("h2")),
        seen=("got a packet",),
    ),
    "exercises/01-Reflector/solution/network.py": Typed(
        after=("h1 (echo; sleep 2) | timeout 20 python3 -u ../send_receive.py 2>/dev/null",),
        seen=("A packet was reflected",),
    ),
    "exercises/07-Count-Min-Sketch/solution/network.py": Typed(
        after=(
            "sh python3 cm-sketch-controller.py --option set_hashes",
            "h1 python3 send.py --n-pkt 1000 --n-hh 2 --n-sfw 0 --p-hh 1",
            "sh sleep 2",
            "sh python3 cm-sketch-controller.py --eps 0.1 --n 1000 --mod 28 --option decode",
        ),
        seen=(r"by the cms: [1-9]\d*/[1-9]",),
    ),
    "exercises/08-Simple_Routing/thrift/solution/network.py": _ROUTES,
    "exercises/08-Simple_Routing/p4runtime/solution/network.py": _ROUTES,
    "exercises/09-Traceroutable/solution/network.py": _ROUTES,
    "exercises/11-Packet-Loss-Detection/solution/network.py": Typed(
        before=("sh python3 -u packet-loss-controller.py --option run >typed.log 2>&1 &", "sh sleep 6"),
        after=("h1 python3 send.py --n-pkt 100 --n-drops 5 --fail-hops 1", "sh sleep 3", "sh cat typed.log"),
        seen=("h1 -> h2",),
    ),
    "exercises/12-Fast-Reroute/solution/network.py": Typed(
        before=("sh echo exit | python3 controller.py >typed.log 2>&1",), seen=("h1 -> h2 h3",)
    ),
}
"""By network: the commands besides ``pingall``. Other networks need no more commands."""

_RSVP = Typed(
    before=(
        "sh (echo add_reservation h1 h3 1000 1 1; echo add_reservation h3 h1 1000 1 1; sleep 200) | "
        "python3 -u rsvp_controller.py >typed.log 2>&1 &",
        "sh sleep 5",
    ),
    seen=("h1 -> .*h3",),
)
TYPED |= {
    f"exercises/04-RSVP/{api}/solution/{name}.py": _RSVP
    for api in ("thrift", "p4runtime")
    for name in ("network", "network_simple")
}

# Scripts for BMv2 subscribe with nnpy, which must be built. pynng, which need not be built, speaks
# the same protocol.
_NNPY = """
import pynng
AF_SP, SUB, SUB_SUBSCRIBE = 1, 33, 1
class Socket:
    def __init__(self, domain, protocol):
        self._socket = pynng.Sub0()
    def connect(self, address):
        self._socket.dial(address)
    def setsockopt(self, level, option, value):
        self._socket.subscribe(value.encode() if isinstance(value, str) else value)
    def recv(self, flags=0):
        return self._socket.recv()
"""


def networks(source: Path) -> list[str]:
    """The paths of the scripts that start a network, in examples and in solutions of exercises."""
    found = [*source.glob("examples/**/network*.py"), *source.glob("exercises/**/solution/network*.py")]
    wanted = [p for p in found if "generator" not in p.name and not _BEYOND.search(p.read_text())]
    return sorted(str(p.relative_to(source)) for p in wanted)


def pings(output: str) -> str:
    """Which hosts reached which, as the last ``pingall`` prints it: ``h1 -> h2 X``, a line per
    host.
    """
    last = output.split("testing ping reachability")[-1]
    lines = re.findall(r"^(?:mininet> )?(\w+ -> (?:\w+ ?)+?) *$", last, re.MULTILINE)
    return "; ".join(x.strip() for x in lines)


def attempt(script: str, source: Path, utils: Path, work: Path, tools: Tools) -> Outcome:
    """Start a network, type the commands of its README, and make its hosts ping each other. If the
    network runs, ``reason`` says which hosts reached which. The same result on BMv2 decides whether
    that is right.
    """
    there = (copy(source, work) / script).parent
    (work / "modules").mkdir()
    (work / "modules" / "nnpy.py").write_text(_NNPY)
    python = {"PYTHONPATH": f"{utils}:{work / 'modules'}:{os.environ.get('PYTHONPATH', '')}"}
    typed = TYPED.get(script, Typed())
    # Wait for controllers to end. Those that run forever get 6 s.
    ended = "sh for i in $(seq 30); do pgrep -f '[p]ython.*controller' >/dev/null || break; sleep 0.2; done"
    # On a busy machine, a controller may start to work only after the first hosts have pinged
    # without success. Then all hosts ping once more, and that result counts. The same holds if the
    # script fills in some ten thousand entries.
    late = typed.before or "execScript" in (there / Path(script).name).read_text() or "convergence" in script
    again = ("pingall 2",) if late else ()
    text = "\n".join((ended, *typed.before, *again, "pingall 2", *typed.after, "exit")) + "\n"
    compiler = shutil.which("p4c-bm2-ss") or ""
    folder = Path(compiler).resolve().parents[1] / "share" / "p4c" / "p4include"
    mounts = "".join(f"mount --bind {shlex.quote(x)} {shlex.quote(str(folder / x))} && " for x in typed.includes)
    command = ["sh", "-c", f"{mounts}exec python3 {shlex.quote(Path(script).name)}"]
    result = run(command, tools, there, work / "prompt.log", 400, text, python)
    said = _COLOUR.sub("", result.output)
    if result.code is None:
        return Outcome(False, "not done after 400 s")
    reached = pings(said)
    wrong = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): .*", said, re.MULTILINE)
    if wrong:
        return Outcome(False, wrong[0][:200])
    if not reached and "testing ping reachability" not in said:
        return Outcome(False, "the network did not come up: " + said.strip()[-160:])
    missing = [x for x in typed.seen if not re.search(x, said, re.MULTILINE)]
    reached = reached or "there is one host"
    return Outcome(not missing, f"not seen: {missing[0]!r}; {reached}" if missing else reached)

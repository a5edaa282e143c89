# SPDX-License-Identifier: Apache-2.0
"""Suites of the Packet Test Framework: p4-guide's, with its own scripts; ngsdn-tutorial's tests and
program, with the switch instead of Stratum's container; and those of p4lang/tutorials.
"""

from __future__ import annotations

import itertools
import re
import shutil
import textwrap
from pathlib import Path

from .outcome import Outcome
from .sandbox import Tools, run

_START = re.compile(r"^(\S+) \.\.\. ?", re.MULTILINE)


def tests(output: str) -> dict[str, Outcome]:
    """PTF's verdict on each test. A test may print anything before its verdict."""
    found: dict[str, Outcome] = {}
    starts = list(_START.finditer(output))
    for start, following in itertools.zip_longest(starts, starts[1:]):
        said = output[start.end() : following.start() if following else len(output)]
        if "." not in start[1]:
            continue
        # The failures follow the last test, each between lines of 70 characters.
        verdicts = re.findall(r"(?:^|\s)(ok|FAIL|ERROR|skipped)\b.*$", said.split("\n" + 70 * "=")[0], re.MULTILINE)
        word = verdicts[-1] if verdicts else "no verdict"
        reason = "" if word == "ok" else _why(output, start[1]) or word
        found[start[1]] = Outcome(word == "ok", reason)
    return found


def _why(output: str, name: str) -> str:
    """The last line of a failed test's traceback. Packets may be printed after it."""
    said = re.search(rf"^(?:FAIL|ERROR): {re.escape(name)}\n-+\n(.*?)\n\n", output, re.MULTILINE | re.DOTALL)
    if not said:
        return ""
    raised = re.findall(r"^[\w.]*(?:Error|Exception)\b.*$", said[1], re.MULTILINE)
    return (raised or said[1].strip().splitlines())[-1][:160]


GUIDE = (
    "demo1",
    "demo1-bitselect-key",
    "demo2",
    "demo7",
    "lpmtester",
    "lpmtester/lpmwidth20bits",
    "ptf-tests/duplicatekeys",
    "ptf-tests/idletimeout",
    "ptf-tests/matchkinds",
    "ptf-tests/packetinout",
    "ptf-tests/registeraccess",
)
"""The folders of p4-guide with a ``runptf.sh`` for BMv2 (the others are for DPDK)."""


def copy(source: Path, work: Path) -> Path:
    """Copy a repository, without its history."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work, symlinks=True, ignore=shutil.ignore_patterns(".git", "*.pdf", "*.png"))
    return work


def guide(source: Path, work: Path, folder: str, tools: Tools) -> dict[str, Outcome]:
    """Run p4-guide's tests in a folder, with its ``runptf.sh``."""
    there = copy(source, work)
    script = f"{there}/bin/veth_setup.sh && ./runptf.sh"
    # lpmtester sends several thousand packets, and waits for each.
    seconds = 1500 if folder.startswith("lpmtester") else 300
    result = run(["bash", "-c", script], tools, there / folder, work / "output.log", seconds)
    found = {f"{folder}: {name}": x for name, x in tests(result.output).items()}
    return found or {folder: Outcome(False, "no test has run: " + result.output.strip()[-160:])}


def tutorial(source: Path, work: Path, exercise: str, tools: Tools) -> dict[str, Outcome]:
    """Run the tests of an exercise of p4lang/tutorials, with ``make test``."""
    there = copy(source, work) / "exercises" / exercise
    (there / "logs").mkdir(exist_ok=True)
    result = run(["make", "test"], tools, there, work / "output.log", 300)
    return tests(result.output) or {exercise: Outcome(False, "no test has run: " + result.output.strip()[-160:])}


# ngsdn's runner is written in Python 2 and starts docker. This script does the runner's work.
_PUSH = textwrap.dedent("""
    import sys, time
    import grpc
    from google.protobuf import text_format
    from p4.v1 import p4runtime_pb2 as p4, p4runtime_pb2_grpc
    address, p4info, program = sys.argv[1:]
    stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(address))
    def ask():
        request = p4.StreamMessageRequest()
        request.arbitration.device_id = 1
        request.arbitration.election_id.low = 1
        yield request
        time.sleep(600)
    stream = stub.StreamChannel(ask())
    next(stream)
    request = p4.SetForwardingPipelineConfigRequest(device_id=1, action=3)
    request.election_id.low = 1
    text_format.Merge(open(p4info).read(), request.config.p4info)
    request.config.p4_device_config = open(program, "rb").read()
    stub.SetForwardingPipelineConfig(request)
    stream.cancel()
""")

_NGSDN = textwrap.dedent("""
    set -e
    for i in 0 1 2 3 4 5 6 7; do
      a=veth$((2 * i)) b=veth$((2 * i + 1))
      ip link add $a mtu 9500 type veth peer name $b mtu 9500
      sysctl -qw net.ipv6.conf.$a.disable_ipv6=1 net.ipv6.conf.$b.disable_ipv6=1
      ip link set $a up; ip link set $b up
      interfaces="$interfaces -i $((i + 1))@$a" peers="$peers -i $((i + 1))@$b"
    done
    mkdir -p build
    p4c-bm2-ss --arch v1model -o build/bmv2.json --p4runtime-files build/p4info.txt --Wdisable=unsupported \\
      solution/p4src/main.p4
    python3 -m lib2to3 -w -n -x import ptf/lib solution/ptf/tests >/dev/null 2>&1
    simple_switch_grpc --device-id 1 $interfaces --log-console --no-p4 -- \\
      --grpc-server-addr 127.0.0.1:28000 --cpu-port 255 >switch.log 2>&1 &
    for try in $(seq 100); do
      python3 -c 'import socket; socket.create_connection(("127.0.0.1", 28000))' 2>/dev/null && break
      sleep 0.2
    done
    python3 push.py 127.0.0.1:28000 build/p4info.txt build/bmv2.json
    PYTHONPATH=$PWD/ptf/lib ptf --test-dir solution/ptf/tests $peers \\
      --test-params="p4info='build/p4info.txt';grpcaddr='127.0.0.1:28000';device_id='1';cpu_port='255'"
""")

# Changes that 2to3 does not make: strings are not bytes in Python 3.
_NGSDN_BYTES = (
    (r'"".join\(chr\(b\) for b in bytes_\)', "bytes(bytes_)"),
    (r"return (mac_addr_string\.replace\(':', ''\))\.decode\('hex'\)", r"return bytes.fromhex(\1)"),
    (r"(return|s =) (\('0' \* .*)\.decode\('hex'\)", r"\1 bytes.fromhex(\2)"),
    (r'unicode\(ip_addr_string, "utf-8"\)', "ip_addr_string"),
    (r'addr\.decode\("utf-8"\)', "addr"),
    (r"\bstr\((pkt2?)\)", r"bytes(\1)"),
    (r"type\(x\) == str", "isinstance(x, str)"),
    # P4Runtime's canonical form of numbers, which PI has sent since 2021
    (r"meta\.value = (encode\(.*\))", r'meta.value = \1.lstrip(b"\\0") or b"\\0"'),
)

# The program was written in 2020, and current p4c lacks its clone3, which named the metadata that a
# clone keeps. So a field of the program's metadata keeps the ingress port.
_PORT = r"standard_metadata\.ingress_port"
_CLONE3 = (
    (r"struct local_metadata_t \{", r"\g<0> @field_list(1) bit<9> kept_port;"),
    (rf"transition select\({_PORT}\)", r"local_metadata.kept_port = standard_metadata.ingress_port; \g<0>"),
    (rf"clone3\((CloneType\.I2E, \w+), \{{ {_PORT} \}}\)", r"clone_preserving_field_list(\1, 1)"),
    (rf"(cpu_in\.ingress_port *=) *{_PORT}", r"\1 local_metadata.kept_port"),
)


def adapt(path: Path, patterns: tuple[tuple[str, str], ...]) -> None:
    """Replace patterns in a file of a copy."""
    text = path.read_text()
    for old, new in patterns:
        text = re.sub(old, new, text)
    path.write_text(text)


def ngsdn(source: Path, work: Path, tools: Tools) -> dict[str, Outcome]:
    """Run ngsdn-tutorial's tests of its solution."""
    there = copy(source, work)
    (there / "push.py").write_text(_PUSH)
    adapt(there / "solution" / "p4src" / "main.p4", _CLONE3)
    for folder in (there / "ptf" / "lib", there / "solution" / "ptf" / "tests"):
        for path in folder.glob("*.py"):
            adapt(path, _NGSDN_BYTES)
    result = run(["bash", "-c", _NGSDN], tools, there, work / "output.log", 300)
    return tests(result.output) or {"ngsdn": Outcome(False, "no test has run: " + result.output.strip()[-300:])}

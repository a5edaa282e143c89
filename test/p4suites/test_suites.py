# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from p4suites import corpus, exchange, learning, originals, outcome, programs, ptf, sandbox, sources, tutorials
from p4suites.outcome import Outcome

HERE = Path(__file__).resolve().parent


def test_a_source_that_is_not_there_says_what_to_clone(tmp_path):
    assert "git clone https://github.com/p4lang/tutorials" in sources.TUTORIALS.find({})
    assert "has no utils/run_exercise.py" in sources.TUTORIALS.find({"P4_TUTORIALS": str(tmp_path)})
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "run_exercise.py").touch()
    assert sources.TUTORIALS.find({"P4_TUTORIALS": str(tmp_path)}) == tmp_path


def test_nothing_there_is_skipped_by_name(tmp_path):
    switch = tmp_path / "netcraq-switch"
    switch.touch()
    environment = {k: v for k, v in os.environ.items() if k not in ("P4_TUTORIALS", "NGSDN")}
    command = [sys.executable, "-m", "p4suites", "--suite", "tutorials,ngsdn", "--engine", "interp"]
    command += ["--switch", str(switch), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SKIPPED") == 2, done.stdout


def test_a_suite_that_there_is_not_is_refused(tmp_path):
    command = [sys.executable, "-m", "p4suites", "--suite", "tutorial"]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no tutorial: tutorials," in done.stderr


PTF_OUTPUT = """\
demo1.FwdTest ... Using packet manipulation module: ptf.packet_scapy
===== a line of its own =====
ok
demo1.DupEntryTest ... a line
FAIL
routing.SkipTest ... ok

======================================================================
FAIL: demo1.DupEntryTest
----------------------------------------------------------------------
Traceback (most recent call last):
  File "demo1.py", line 1, in runTest
AssertionError: did not receive pkt

----------------------------------------------------------------------
Ran 3 tests in 0.700s
"""


def test_ptf_verdicts():
    assert ptf.tests(PTF_OUTPUT) == {
        "demo1.FwdTest": Outcome(True),
        "demo1.DupEntryTest": Outcome(False, "AssertionError: did not receive pkt"),
        "routing.SkipTest": Outcome(True),
    }
    assert ptf.tests("Could not import file bridging.py") == {}


def test_go_verdicts():
    lines = [
        '{"Action":"output","Test":"T/f/a","Output":"    x_test.go:9: fails as listed (why): d"}',
        '{"Action":"pass","Test":"T/f/a"}',
        '{"Action":"pass","Test":"T/f/b"}',
        '{"Action":"output","Test":"T/f/c","Output":"    x_test.go:9: refused"}',
        '{"Action":"skip","Test":"T/f/c"}',
        '{"Action":"pass","Test":"T"}',
        "not JSON",
    ]
    assert corpus.read("\n".join(lines), "T") == {
        "f/a": Outcome(False, "fails as listed (why): d"),
        "f/b": Outcome(True),
        "f/c": Outcome(False, "refused"),
    }


def test_which_programs_an_engine_takes():
    lines = [
        '{"Action":"pass","Test":"TestLoads/a/interp"}',
        '{"Action":"pass","Test":"TestLoads/a/tc-0"}',
        '{"Action":"pass","Test":"TestLoads/b/tc-0"}',
        '{"Action":"output","Test":"TestLoads/b/xdp-0","Output":"    loads_test.go:9: /a/b.json: no such thing"}',
        '{"Action":"skip","Test":"TestLoads/b/xdp-0"}',
        '{"Action":"pass","Test":"TestLoads/b/xdp-510"}',
        '{"Action":"pass","Test":"TestLoads/b"}',
        '{"Action":"fail","Test":"TestLoads/of-this-repository/tc-0"}',
        '{"Action":"pass","Test":"TestLoads"}',
    ]
    assert programs.read("\n".join(lines), {"a", "b", "c"}) == {
        "a": Outcome(True),
        "b": Outcome(False, "xdp-0: no such thing"),
        "c": Outcome(False, "nothing was said of it"),
    }


def test_programs_of_a_checkout(tmp_path):
    samples = tmp_path / "testdata" / "p4_16_samples"
    for folder in (samples, tmp_path / "testdata" / "p4_14_samples", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
        (folder / "a.p4").write_text("V1Switch(A()) main;")
    (samples / "psa.p4").write_text("PSA_Switch(A()) main;")
    assert [(str(p.relative_to(tmp_path)), more) for p, more in programs.sources(tmp_path)] == [
        ("testdata/p4_16_samples/a.p4", ()),
        ("testdata/p4_14_samples/a.p4", ("--std", "p4-14")),
    ]
    assert [p.parent.name for p, _ in programs.sources(tmp_path / "elsewhere")] == ["elsewhere"]


def test_judges():
    heard = "got a packet\n###[ IP ]###\n     tos       = {}\n     ttl       = {}\n"
    by_name = {x.name: x.judge for x in tutorials.EXERCISES}
    assert by_name["source_routing"]({"h2": heard.format("0x0", 59)}) is None
    assert "not 59" in by_name["source_routing"]({"h2": heard.format("0x0", 62)})
    assert "not 59" in by_name["source_routing"]({"h2": ""})
    assert by_name["ecn"]({"h2": heard.format("0x1", 62) + heard.format("0x3", 62)}) is None
    assert "0x1" in by_name["ecn"]({"h2": heard.format("0x1", 62)})
    assert by_name["qos"]({"h2": heard.format("0xb9", 62)}) is not None
    assert by_name["multicast"]({"": "*** Results: 0% dropped (12/12 received)"}) is None
    assert by_name["multicast"]({"": "*** Results: 8% dropped (11/12 received)"}) == "pings lost 8%"
    assert by_name["multicast"]({"": ""}) == "no ping has ended"
    assert by_name["calc"]({"calc": "> 1+2\n3\n> 7-3\n4\n> 6&3\n2\n> 6|1\n7\n> 6^3\n5\n> "}) is None
    assert by_name["calc"]({"calc": "> 1+2\nDidn't receive response\n"}) is not None
    all_bits = {"h2": "9 Mbits/sec", "h3": "9 Mbits/sec", "back": ""}
    assert by_name["firewall"](all_bits) is None
    assert by_name["firewall"]({**all_bits, "back": "9 Mbits/sec"}) == "h3 can connect to h1"
    hop = "###[ MRI ]###\n|  count = 2\n|  |###[ SwitchTrace ]###\n|  |  swid = {}\n|  |  qdepth = {}\n"
    assert by_name["mri"]({"h2": hop.format(2, 0) + hop.format(1, 9)}) is None
    assert "qdepth is 0" in by_name["mri"]({"h2": hop.format(2, 0) + hop.format(1, 0)})


def test_every_exercise_reads_what_it_judges():
    for x in tutorials.EXERCISES:
        assert x.lines, x.name
        assert x.judge({name: "" for name in ("", "h2", "h3", "h4", "calc", "back", "ping", "controller", "probes")})


def test_who_reached_whom():
    said = "s1 -> Thrift port: 9090\nmininet> *** Ping: testing\nh1 -> h2 X \nh2 -> h1 h3 \n*** Results: 33% dropped"
    assert learning.pings(said) == "h1 -> h2 X; h2 -> h1 h3"


def original(tmp_path):
    (tmp_path / "mininet").mkdir()
    (tmp_path / "mininet" / "commands.txt").write_text("mirroring_add 3 3\n")
    return originals.netcache(tmp_path)[0]


def test_packets_of_an_original_are_told_apart(tmp_path):
    x = original(tmp_path)
    sent = list(originals.frames(x))
    assert len(sent) == originals.PACKETS
    assert sum(step.payload == originals.cached(0, 2) for step in x.steps) > 128
    for number, (_, frame, fence) in enumerate(sent):
        assert frame.endswith(f"{exchange.PACKET:04x}{number:04x}")
        assert fence.endswith(f"{exchange.FENCE:04x}{number:04x}")
    words = bytes.fromhex(sent[0][1])[14:34]
    total = sum(int.from_bytes(words[i : i + 2]) for i in range(0, 20, 2))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF


def test_an_original_must_be_as_on_bmv2(tmp_path):
    x = original(tmp_path)
    theirs = {"came": {"0": [[1, "aa"], [3, "bb"]], "7": [[2, "cc"]]}, "strange": [], "said": [], "registers": "r= 1"}
    late = {**theirs, "came": {"7": [[2, "cc"]], "0": [[3, "bb"], [1, "aa"]]}}
    assert originals.judge(x, late, theirs) == Outcome(True, "400 of 400 packets as BMv2, 3 frames of 2")
    lost = originals.judge(x, {**theirs, "came": {"0": [[1, "aa"], [3, "bb"]]}}, theirs)
    assert not lost.passed
    assert lost.reason.startswith(f"399 of 400 packets as BMv2; packet 7, {x.steps[7].what}: nothing; on BMv2 port 2")
    assert not originals.judge(x, {**theirs, "came": {**theirs["came"], "9": [[1, "dd"]]}}, theirs).passed
    assert originals.judge(x, {**theirs, "registers": "r= 2"}, theirs).reason == "registers: 'r= 2', on BMv2 'r= 1'"
    assert not originals.judge(x, {**theirs, "strange": [[1, "ee"]]}, theirs).passed


def test_table():
    ours = {"a": Outcome(True, "h1 -> h2"), "b": Outcome(True, "h1 -> X"), "c": Outcome(False, "fails")}
    theirs = {"a": Outcome(True, "h1 -> h2"), "b": Outcome(True, "h1 -> h2"), "c": Outcome(True, "h1 -> h2")}
    text = outcome.table({"s": {"interp": ours, "bmv2": theirs}})
    assert "| s | interp | 2 of 3 | 1 |" in text
    assert "| s | bmv2 | 3 of 3 |  |" in text
    assert "s on interp: b: h1 -> X; on BMv2 h1 -> h2" in text
    assert "s on interp: c: fails" in text


def test_rates():
    said = "[  1] 0.0000-2.0363 sec   381 MBytes  1570 Mbits/sec\n[  1] 0.0000-5.0 sec  9 MBytes  830.5 Mbits/sec\n"
    assert tutorials.rate_of(said) == 830.5
    assert tutorials.rate_of("connect failed: Connection refused") is None
    text = outcome.seen({"auto": {"basic": Outcome(True, "830 Mbit/s")}, "bmv2": {"qos": Outcome(True, "90 Mbit/s")}})
    assert text.splitlines()[2:] == ["| basic | 830 Mbit/s |  |", "| qos |  | 90 Mbit/s |"]


@pytest.fixture
def tools(tmp_path):
    switch = tmp_path / "netcraq-switch"
    switch.write_text('#!/bin/sh\necho "$0" "$@"\n')
    switch.chmod(0o755)
    return sandbox.Tools(tmp_path / "tools", "interp", switch, Path(sys.executable))


def test_names_of_bmv2_mean_the_engine(tools):
    done = subprocess.run(
        ["simple_switch_grpc", "-i", "1@a b"], env=tools.environment(), capture_output=True, text=True, check=True
    )
    name, *arguments = done.stdout.split()
    assert Path(name).name == "simple_switch_grpc"
    assert arguments == ["--engine", "interp", "-i", "1@a", "b"]


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare"
)


@needs_namespaces
def test_nothing_is_left_of_a_script(tools, tmp_path):
    script = "ip link add left0 type veth peer name right0 && echo made; sleep 300 & exit 3"
    result = sandbox.run(["sh", "-c", script], tools, tmp_path, tmp_path / "log", 60)
    assert result == sandbox.Result(3, "made\n")
    assert not Path("/sys/class/net/left0").exists()


def runs(process: str) -> bool:
    """Whether a process with that number exists and has not ended. If no process reaps orphans, as
    in a container, an ended process keeps its entry.
    """
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@needs_namespaces
def test_nothing_is_left_of_a_run_that_is_killed(tools, tmp_path):
    code = (
        "import sys; from pathlib import Path; from p4suites.sandbox import Tools, run\n"
        f"tools = Tools(Path({str(tmp_path / 'again')!r}), 'interp', Path({str(tmp_path / 'netcraq-switch')!r}), "
        "Path(sys.executable))\n"
        f"run(['sh', '-c', 'echo begun; sleep 300'], tools, Path('/'), Path({str(tmp_path / 'log')!r}), 300)"
    )
    runner = subprocess.Popen([sys.executable, "-c", code], cwd=HERE.parent)
    deadline = time.monotonic() + 60
    while not (tmp_path / "log").exists() or "begun" not in (tmp_path / "log").read_text():
        assert runner.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()
    assert children
    runner.kill()
    runner.wait()
    while any(runs(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_namespaces
def test_a_script_that_does_not_end_is_ended(tools, tmp_path):
    begun = time.monotonic()
    result = sandbox.run(["sh", "-c", "echo begun; sleep 300 & wait"], tools, tmp_path, tmp_path / "log", 1)
    assert result.code is None
    assert result.output == "begun\n"
    assert time.monotonic() - begun < 60

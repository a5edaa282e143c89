# SPDX-License-Identifier: Apache-2.0
"""The command line: ``python -m e2e`` from ``test``, with ``PYTHONPATH=../cni-plugin``."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from e2e import binaries, checks, conformance, install, kills, other_network, settings, worker, workload_report
from e2e.acceptance import CheckError
from e2e.checks import CONFORMANCE, DIST, IF_NAMED, QUICK_START
from e2e.cluster import Cluster, Say, missing
from e2e.families import CHOICES
from e2e.node import NodeError
from e2e.paper_workload import Comparison

WITHOUT_CLUSTER = ("./cni-plugin/kube/...", "./cni-plugin/agent/...", "./etcd-monitor/gateway/...")
"""Go packages with tests against a real API server."""


def main() -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="make e2e-k8s",
        description="A real Kubernetes of three nodes on this machine, with NetCRAQ as its network.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="build Kubernetes, etcd and CoreDNS into the cache, and print its path")
    run = verbs.add_parser("run", help="start the cluster, run the checks, and stop it")
    run.add_argument(
        "--only",
        help=f"the checks to run, of {', '.join(dict.fromkeys(name for all_ in checks.CLUSTERS.values() for name in all_))}",
        type=lambda text: text.split(","),
    )
    run.add_argument("--keep", action="store_true", help="keep the cluster up after the checks, until Ctrl-C")
    run.add_argument("--no-gateway", action="store_true", help="run without etcd-monitor in front of etcd")
    run.add_argument(
        "--repetitions",
        type=int,
        default=1,
        metavar="N",
        help="repetitions of the workload, without and with NetCRAQ (default 1)",
    )
    run.add_argument(
        "--family",
        default="ipv4",
        choices=CHOICES,
        help="the address families of nodes, pods and services (default ipv4)",
    )
    run.add_argument(
        "--cni",
        default="own",
        choices=("own", *other_network.NAMES),
        help="the cluster's network: NetCRAQ's own, or another one, after which NetCRAQ is chained (default own)",
    )
    run.add_argument("--proxy-mode", default="iptables", choices=("iptables", "nftables"), help="kube-proxy's mode")
    run.add_argument(
        "--control-planes",
        type=int,
        default=1,
        choices=(1, 3),
        help="number of nodes with an etcd member, a gateway and an API server (default 1)",
    )
    run.add_argument(
        "--seconds",
        type=float,
        default=60,
        metavar="N",
        help="length of the checks kills and, if --only names it, worker attacks (default 60)",
    )
    run.add_argument(
        "--focus",
        default=conformance.FOCUS,
        metavar="REGEXP",
        help="specs that --only conformance runs (default %(default)s)",
    )
    run.add_argument(
        "--skip",
        default=conformance.SKIP,
        metavar="REGEXP",
        help="specs that conformance leaves out (default %(default)s)",
    )
    inside = verbs.add_parser("on", help="run a command on a node of the running cluster: on n1 kubectl get nodes")
    inside.add_argument("node")
    inside.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    match options.verb:
        case "build":
            print(binaries.kubernetes(Say()))
            return 0
        case "on":
            return on(options.node, options.command)
        case _:
            return go(options)


def on(node: str, command: list[str]) -> int:
    """Run a command on a node of another process's cluster."""
    folder = settings.OUT / "nodes" / node
    pid = (folder / "pid").read_text()
    path = json.loads((folder / "init.json").read_text())["path"]
    environment = (
        "HOME=/root",
        f"PATH={path}",
        "KUBECONFIG=/etc/kubernetes/admin.conf",
        f"TERM={os.environ.get('TERM', 'dumb')}",
    )
    os.execvp("nsenter", ["nsenter", "-t", pid, "-a", "--wd=/", "--", "env", "-i", *environment, *command])


def facts() -> dict[str, str]:
    """The machine and the versions with which the numbers are measured."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=settings.ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "Kubernetes": settings.KUBERNETES,
        "etcd": settings.etcd(),
        "commit": commit or "unknown",
        "machine": f"{os.uname().machine}, {os.cpu_count()} processors ({len(os.sched_getaffinity(0))} used), Linux {os.uname().release}",
        "taken": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def without_cluster(problems: list[str], left_out: Iterable[str]) -> int:
    """Run the tests that need only a real API server and etcd, and print the tests that are left
    out. Returns the exit status.
    """
    print("No cluster can be had on this machine:", *problems, sep="\n  ")
    print("Left out:", ", ".join(left_out))
    print("Instead, a real API server and its etcd:", ", ".join(WITHOUT_CLUSTER), flush=True)
    folder = binaries.kubernetes(Say())
    command = [binaries.compiler(), "test", "-count", "1", *WITHOUT_CLUSTER]
    return subprocess.run(
        command, cwd=settings.ROOT, env={**os.environ, "NETCRAQ_KUBE_BIN": str(folder)}, check=False
    ).returncode


def go(options: argparse.Namespace) -> int:
    """Bring the cluster up and run the checks. Returns the exit status."""
    wanted = checks.of(options.cni, options.control_planes)
    refusal = checks.refusal(options.only or (), options.cni, options.control_planes, gateway=not options.no_gateway)
    if refusal:
        print(refusal)
        return 2
    if options.only:
        named, options.only = options.only, checks.with_needs(options.only, wanted)
        if also := [name for name in options.only if name not in named]:
            print(f"--only {','.join(named)} needs {', '.join(also)}, which are made, too")
    problems = missing(options.control_planes)
    if problems:
        return without_cluster(problems, options.only or wanted)
    quick, release, judged = (bool(options.only) and name in options.only for name in (QUICK_START, DIST, CONFORMANCE))
    if options.cni != "own" and options.family != "ipv4":
        print(f"--cni {options.cni} is for --family ipv4: the other network of the tests has one family")
        return 2
    if options.control_planes > 1 and (options.cni != "own" or options.family != "ipv4" or options.no_gateway):
        print("--control-planes 3 is for --cni own, --family ipv4, with gateways: no other is tested")
        return 2
    say, results, failed, comparison = Say(), {}, "", Comparison(options.repetitions)
    try:
        with (
            Cluster(
                say,
                gateway=not options.no_gateway,
                proxy_mode=options.proxy_mode,
                families=CHOICES[options.family],
                cni=options.cni,
                control_planes=options.control_planes,
                tainted=judged,
            ) as cluster,
            contextlib.ExitStack() as after,
        ):
            if not options.no_gateway and len(cluster.controls) == 1:  # several gateways place only pinned keys
                after.enter_context(install.prometheus(cluster))
            if "kills" in wanted:
                wanted = {**wanted, "kills": functools.partial(kills.kills, seconds=options.seconds)}
            if options.only and "worker" in options.only:
                wanted = {**wanted, "worker": functools.partial(worker.worker, seconds=options.seconds)}
            if judged:
                chosen = {"focus": options.focus, "skip": options.skip}
                wanted = {**wanted, CONFORMANCE: functools.partial(conformance.conformance, **chosen)}
            if not (quick or release or cluster.chained):
                install.install(cluster)
                say("NetCRAQ's manifests are applied")
            for name, check in wanted.items():
                if (options.only and name not in options.only) or (options.no_gateway and name in checks.NEED_GATEWAY):
                    continue
                if not options.only and options.family != "ipv4" and name not in checks.IN_EVERY_FAMILY:
                    continue
                if name in IF_NAMED and not options.only:
                    continue
                begin = time.monotonic()
                try:
                    made = getattr(comparison, check) if isinstance(check, str) else check
                    results[name] = {"seen": made(cluster), "seconds": round(time.monotonic() - begin, 1)}
                    say(f"ok    {name}: {results[name]['seen']}")
                except (CheckError, NodeError) as error:
                    failed = name
                    results[name] = {"failed": str(error)}
                    say(f"FAILED {name}: {error}")
                    break
            if options.keep:
                print("The cluster is up until Ctrl-C. For example: python -m e2e on n1 kubectl get pods -A")
                signal.pause()
    except KeyboardInterrupt:
        say("ended")
    except (NodeError, binaries.BuildError) as error:
        failed = "cluster"
        say(f"FAILED: {error}")
    if all(comparison.runs.values()):
        say(
            f"the workload's figures: {workload_report.write(comparison.runs, facts(), settings.OUT).relative_to(settings.ROOT)}"
        )
    Path(settings.OUT / "result.json").write_text(json.dumps(results, indent=1) + "\n")
    if failed:
        print(f"The nodes' logs are in {settings.OUT.relative_to(settings.ROOT)}/nodes/*/log")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

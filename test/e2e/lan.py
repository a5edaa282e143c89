# SPDX-License-Identifier: Apache-2.0
"""The network that the nodes share: a bridge in an unnamed network namespace, which ends with its
single process.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from e2e.families import Family

DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
"""Put before a command, ends it when its parent ends, however that ends."""


ROUTER = "02:00:5e:00:00:01"
"""The router's Ethernet address, which stays the same when ports are added or removed."""


class Lan:
    """A bridge with a port for each node."""

    def __init__(self, families: Sequence[Family]) -> None:
        self.families = families
        self._process = subprocess.Popen(
            [*DIE_WITH_PARENT, "unshare", "--net", "--", "sh", "-c", "echo; exec sleep infinity"],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # the namespace exists by then
        for command in (
            "ip link set lo up",
            f"ip link add br0 address {ROUTER} type bridge",
            *(f"ip address add {family.on_link(1)} dev br0" for family in families),
            "ip link set br0 up",
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        ):
            self.run(*command.split())
        # if br_netfilter is loaded, bridged frames would pass rules that do not exist here
        for family in ("iptables", "ip6tables"):
            self.run("sysctl", "-qw", f"net.bridge.bridge-nf-call-{family}=0", check=False)

    def command(self, *command: str) -> list[str]:
        """The command that runs ``command`` in the namespace."""
        return ["nsenter", "-t", str(self._process.pid), "-n", "--", *command]

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command in the namespace, and return its output."""
        done = subprocess.run(self.command(*command), capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def connect(self, index: int, pid: int, number: int) -> None:
        """Give the node whose first process is ``pid`` the interface eth0, with the addresses for a
        number.
        """
        port = f"port{index}"
        self.disconnect(index)
        card = f"02:00:5e:00:01:{number:02x}"  # a node keeps its Ethernet address over a restart
        peer = ("peer", "name", "eth0", "address", card, "netns", str(pid))
        self.run("ip", "link", "add", port, "type", "veth", *peer)
        self.run("ip", "link", "set", port, "master", "br0", "up")
        inside = (
            "ip link set lo up",
            *(
                f"ip address add {family.on_link(number)} dev eth0" + " nodad" * (":" in family.on_link(number))
                for family in self.families
            ),
            "ip link set eth0 up",
            *(f"ip route add default via {family.address(1)}" for family in self.families),
        )
        for command in inside:
            subprocess.run(["nsenter", "-t", str(pid), "-n", "--", *command.split()], check=True)

    @contextlib.contextmanager
    def echo(self, address: str) -> Iterator[str]:
        """A server at an address in the namespace, which answers with the client's address. Yields
        its URL.
        """
        program = (
            "import http.server, socket, sys\n"
            "class Who(http.server.BaseHTTPRequestHandler):\n"
            "    def do_GET(self):\n"
            "        self.send_response(200); self.end_headers(); self.wfile.write(self.client_address[0].encode())\n"
            "    def log_message(self, *_): pass\n"
            "http.server.HTTPServer.address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET\n"
            "server = http.server.HTTPServer((sys.argv[1], 8099), Who); print(flush=True); server.serve_forever()\n"
        )
        inside = self.command(sys.executable, "-c", program, address)
        process = subprocess.Popen([*DIE_WITH_PARENT, *inside], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it listens
            yield f"http://[{address}]:8099/" if ":" in address else f"http://{address}:8099/"
        finally:
            process.kill()
            process.wait()

    def disconnect(self, index: int) -> None:
        """Disconnect the node, if it is connected."""
        self.run("ip", "link", "delete", f"port{index}", check=False)

    @contextlib.contextmanager
    def cut(self, side: dict[int, int]) -> Iterator[None]:
        """Cut the network in two: the nodes of ``side`` (their numbers, by index) on one side, all
        others on the other. The router stays with the others, but reaches both sides, so a test can
        query either. No node of ``side`` can reach an API server through the router.
        """
        lone = [
            f"{family.address(number)}/{128 if ':' in family.link else 32}"
            for family in self.families
            for number in side.values()
        ]
        closed = ("INPUT", "-i", "br1", "-p", "tcp", "--dport", "6443", "-j", "DROP")
        self.run(*f"ip link add br1 address {ROUTER} type bridge".split())
        try:
            self.run("ip", "link", "set", "br1", "up")
            for program in ("iptables", "ip6tables"):
                self.run(program, "-A", *closed)
            for index in side:
                self.run("ip", "link", "set", f"port{index}", "master", "br1")
            for address in lone:
                self.run("ip", "route", "add", address, "dev", "br1")
            yield
        finally:
            for index in side:
                self.run("ip", "link", "set", f"port{index}", "master", "br0", check=False)
            for program in ("iptables", "ip6tables"):
                self.run(program, "-D", *closed, check=False)
            self.run("ip", "link", "delete", "br1", check=False)  # deletes its routes, too

    def close(self) -> None:
        """Remove the network."""
        self._process.kill()
        self._process.wait()


def write_files(folder: Path, names: dict[str, str], router: str) -> None:
    """Write the nodes' ``hosts`` and ``resolv.conf``. The name server does not answer, because all
    names that a test needs are in the cluster.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in names.items())]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    (folder / "resolv.conf").write_text(f"nameserver {router}\n")

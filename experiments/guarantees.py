#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of every guarantee of the shipped program, in nanoseconds (``make
bench-guarantees``).

Compiles the shipped program with one guarantee removed at a time, into a temporary folder, and
measures each of these variants in turn with the whole program (``bin/netcraq-programs``). Needs
p4c. Nobody can load a variant by mistake: none is kept, and a controller refuses them, because
their package has another name.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.figures import pairs, programs  # noqa: E402
from experiments.figures.systems import NETCHAIN, PAPER, Failed  # noqa: E402
from experiments.provenance import versions  # noqa: E402

WHOLE = "NetCRAQ with leases"
"""The measured variant of the shipped program: its chains require leases, which is the default."""

CHAIN, NAME = "include/chain.p4", "netcraq"


@dataclass(frozen=True)
class Edit:
    """A replacement in a source; the replaced text must occur exactly once."""

    file: str
    old: str
    new: str


def stage(call: str, instead: str = "") -> Edit:
    """Return the edit that removes a stage of Chain."""
    return Edit(CHAIN, f"        {call}\n", f"        {instead}\n")


CHECKSUMS = (
    "V1Switch(PacketParser(), NetcraqVerifyChecksum(), NetcraqIngress(), NetcraqEgress(), NetcraqComputeChecksum(),"
)
NO_CHECKSUMS = "V1Switch(PacketParser(), NoChecksum(), NetcraqIngress(), NetcraqEgress(), NoChecksum(),"
NOTHING = "control NoChecksum(inout headers_t hdr, inout metadata_t meta) {\n    apply { }\n}\n\n"
PACKAGE = '@pkginfo(name = "netcraq"'

GUARANTEES: dict[str, tuple[Edit, ...]] = {
    "sessions: a retry is executed once": (
        stage("    session_request.apply(hdr, meta);", "    meta.session.newer = true;"),
        stage("    session_version.apply(hdr, meta);"),
    ),
    "slot writer: and once after a failover": (stage("    slot_writer.apply(hdr, meta);"),),
    "leases: a member that was replaced does not answer": (
        stage("    lease.apply(hdr, meta);", "    meta.lease_live = true;"),
    ),
    "access: who may read and write which key": (stage("access.apply(hdr, meta);"),),
    "watches: clients are told of changes": (
        stage("watch.apply(hdr, meta);"),
        Edit("include/egress.p4", "            notify.apply(hdr, egress_port, drop);\n", "            drop = true;\n"),
    ),
    "peers: which switch may send what": (stage("peer.apply(hdr, meta);"),),
    "admission: ports, principals, formats": (
        Edit(
            "include/pipeline.p4",
            "            admission.apply(hdr, meta);\n",
            "            meta.is_netcraq = hdr.netcraq.isValid();\n            meta.trust = trust_t.FABRIC;\n",
        ),
    ),
    "rates: what a host may send": (
        Edit(
            "include/admission.p4",
            "                    METER_EXCEEDED(host_rate, meta.ingress_port, exceeded)\n",
            "",
        ),
    ),
    "CAS": (
        Edit(
            "include/version.p4",
            "                                        (hdr.netcraq.KV_OP == kv_op_t.WRITE ||\n"
            "                                         meta.version.latest == hdr.netcraq.version) &&\n",
            "                                        hdr.netcraq.KV_OP == kv_op_t.WRITE &&\n",
        ),
        Edit(
            "include/outcome.p4",
            "        if (hdr.netcraq.KV_OP == kv_op_t.CAS) {\n            hdr.netcraq.flags = STAMPED | BY_CAS;\n        }\n",
            "",
        ),
    ),
    "counters: events, reads and writes of keys": (
        Edit("include/arch_v1model.p4", "#define COUNT(CTR, INDEX) CTR.count(INDEX)\n", "#define COUNT(CTR, INDEX)\n"),
    ),
    "checksums of IPv4": (
        Edit("netcraq.p4", PACKAGE, NOTHING + PACKAGE),
        Edit("netcraq.p4", CHECKSUMS, NO_CHECKSUMS),
    ),
}


def variants() -> dict[str, tuple[Edit, ...]]:
    """Return all variants: each lacks one guarantee, and the last lacks all of them."""
    return {**GUARANTEES, "all of these": tuple(edit for edits in GUARANTEES.values() for edit in edits)}


def edited(folder: Path, edits: tuple[Edit, ...]) -> None:
    """Change the sources in a folder. ValueError if a text does not occur exactly once."""
    for edit in edits:
        path = folder / edit.file
        text = path.read_text()
        if (count := text.count(edit.old)) != 1:
            raise ValueError(f"{edit.file} has {count} times, and not once: {edit.old.strip()}")
        path.write_text(text.replace(edit.old, edit.new))


def compiler() -> Any:
    """Import ``p4src/compile.py`` as a module."""
    spec = importlib.util.spec_from_file_location("compile_p4", ROOT / "p4src" / "compile.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(into: Path, values: int = 128) -> None:
    """Compile all variants: NAME.json and NAME.p4info.txtpb."""
    compile_p4 = compiler()
    program = {"source": "netcraq.p4", "architecture": "v1model", "defines": {"VALUE_BITS": values}}
    for name, edits in variants().items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "p4src"
            shutil.copytree(ROOT / "p4src" / "include", folder / "include")
            shutil.copy(ROOT / "p4src" / "netcraq.p4", folder)
            edited(folder, edits)
            # This is the last edit: a controller recognizes the program by its package name.
            edited(folder, (Edit("netcraq.p4", PACKAGE, '@pkginfo(name = "netcraq-measured"'),))
            compile_p4.compile_all(folder, {name: program}, folder, warnings=True)
            (into / f"{name}.json").write_bytes(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
            shutil.copy(folder / f"{name}.p4info.txtpb", into)


QUERIES = (programs.READ, programs.WRITE, programs.DIRTY)


def saved(results: list[dict[str, Any]]) -> dict[str, dict[str, pairs.Estimate]]:
    """Return, for each variant and query, the nanoseconds that the query takes less than with the
    whole program, round by round.
    """
    each = programs.rounds(results)
    return {
        name: {
            query: pairs.estimate(
                [whole - own for whole, own in zip(each[WHOLE, query], each[name, query], strict=True)]
            )
            for query in QUERIES
        }
        for name in variants()
    }


def show(console: Console, engine: str, results: list[dict[str, Any]]) -> None:
    """Print the table of one engine."""
    each = programs.rounds(results)
    table = Table(title=f"{engine}: nanoseconds that a query of the client at the head takes in all four switches")
    for column in ("", *QUERIES):
        table.add_column(column.removesuffix(", all switches"))
    for system in (NETCHAIN, PAPER, WHOLE):
        table.add_row(system, *(f"{statistics.median(each[system, query]):.0f}" for query in QUERIES))
    table.add_section()
    for name, row in saved(results).items():
        cells = (f"{row[query].middle:+.0f} ({row[query].low:+.0f} to {row[query].high:+.0f})" for query in QUERIES)
        table.add_row(f"without {name}: less by", *cells)
    console.print(table)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="tc,xdp,interp", help="engines, with commas (default: tc,xdp,interp)")
    parser.add_argument("--rounds", type=int, default=10, help="number of rounds (default: 10)")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "guarantees.json")
    options = parser.parse_args()
    if not shutil.which("p4c-bm2-ss"):
        print("there is no p4c-bm2-ss on PATH: nothing was measured. Install p4c to compile the variants")
        return 0
    console = Console() if sys.stdout.isatty() else Console(width=150)
    measured: dict[str, Any] = {"conditions": versions(), "engines": {}}
    with tempfile.TemporaryDirectory(prefix="netcraq-guarantees-") as folder:
        make(Path(folder))
        for engine in options.engines.split(","):
            try:
                results = programs.run(engine, "--variants", folder, rounds=options.rounds)
            except Failed as failure:
                sys.exit(str(failure))
            measured["engines"][engine] = results
            show(console, engine, results)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(measured) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

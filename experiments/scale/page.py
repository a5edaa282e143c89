# SPDX-License-Identifier: Apache-2.0
"""The tables of a run, and the page docs/benchmarks/scale.md that shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.bench_page import markdown
from experiments.scale import costs, predict, study

PAGE = costs.ROOT / "docs" / "benchmarks" / "scale.md"
ENGINES = {costs.TC: "tc", costs.XDP: "XDP", costs.CHIP: "chip", "": ""}


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of texts."""
    out = Table(title=title)
    for column in columns:
        out.add_column(column)
    for row in rows:
        out.add_row(*map(str, row))
    return out


def count(value: float | None) -> str:
    """A rate with three digits: 1.23 M."""
    if value is None:
        return ""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def percent(value: float | None) -> str:
    """A share in percent, with three digits."""
    return "" if value is None else f"{100 * value:.3g} %"


def micro(value: float) -> str:
    """Microseconds."""
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def compared(found: list[predict.Comparison], programs: list[predict.Comparison]) -> Table:
    """Predictions beside measurements."""
    rows = []
    for case, program in zip(found, programs, strict=True):
        rows.append(
            (
                f"{case.system}, {ENGINES[case.engine]}",
                case.length,
                case.load,
                f"{case.measured:,.0f}",
                f"{case.predicted:,.0f}",
                f"{100 * case.error:+.0f} % ({100 * case.interval[0]:+.0f} to {100 * case.interval[1]:+.0f})"
                + ("" if case.within else " **outside**"),
                f"{program.measured:,.0f}",
                f"{100 * program.error:+.0f} %",
            )
        )
    columns = ("", "switches", "load", "measured ns", "predicted ns", "error", "programs: measured ns", "error")
    return table("", columns, rows)


def highest(rows: list[dict[str, Any]]) -> Table:
    """Highest rates by size."""
    return table(
        "",
        ("switches", "system", "chains of", "reads a second", "writes a second", "saturates first"),
        [
            (
                row["switches"],
                f"{row['system']}, {ENGINES[row['engine']]}",
                f"{row['chains']:,} of {row['members']}" + ("" if not row["hashed"] else ", anywhere"),
                count(row["reads_a_second"]),
                count(row["writes_a_second"]),
                row["bottleneck"],
            )
            for row in rows
        ],
    )


def mixes(rows: list[dict[str, Any]]) -> Table:
    """Highest rates by mix: one row for each mix, with both systems."""
    pairs: dict[tuple[float, float], dict[str, dict[str, Any]]] = {}
    for row in rows:
        pairs.setdefault((row["reads"], row["skew"]), {})[row["system"]] = row
    return table(
        "",
        ("reads", "skew", "NetCRAQ, operations a second", "saturates first", "NetChain", "saturates first", "ratio"),
        [
            (
                percent(reads),
                f"{skew:g}",
                count(ours["reads_a_second"] + ours["writes_a_second"]),
                ours["bottleneck"],
                count(theirs["reads_a_second"] + theirs["writes_a_second"]),
                theirs["bottleneck"],
                f"{ours['reads_a_second'] / theirs['reads_a_second']:.2f}",
            )
            for (reads, skew), both in pairs.items()
            for ours, theirs in ((both[costs.NETCRAQ], both[costs.NETCHAIN]),)
        ],
    )


def etcd(rows: list[dict[str, Any]]) -> Table:
    """Highest rates of etcd."""
    return table(
        "",
        ("system", "reads", "reads a second", "writes a second", "saturates first"),
        [
            (
                row["system"],
                percent(row["reads"]),
                count(row["reads_a_second"]),
                count(row["writes_a_second"]),
                row["bottleneck"],
            )
            for row in rows
        ],
    )


def latencies(rows: list[dict[str, Any]]) -> Table:
    """Latencies from the event loop."""
    columns = ("system", "switches", "operations a second", "read p50, p99 µs", "write p50, p99 µs", "busiest station")
    return table(
        "",
        columns,
        [
            (
                f"{row['system']}, {ENGINES[row['engine']]}".rstrip(", "),
                row["switches"] or "",
                count(row["rate"]),
                f"{micro(row['read_p50'])}, {micro(row['read_p99'])}",
                f"{micro(row['write_p50'])}, {micro(row['write_p99'])}",
                percent(row["busiest"]),
            )
            for row in rows
        ],
    )


def failures(rows: list[dict[str, Any]]) -> Table:
    """What a failure costs."""
    columns = (
        "system",
        "switches",
        "writes that wait",
        "for ms",
        "reads that wait",
        "for ms",
        "highest rate before, after",
    )
    return table(
        "",
        columns,
        [
            (
                row["system"],
                row["switches"] or "",
                percent(row["writes_waiting"])
                + (f" (mean switch: {percent(row['mean_writes_waiting'])})" if row["mean_writes_waiting"] else ""),
                f"{row['write_ms']:,.0f}"
                + (f" ({row['short_ms']:,.0f} with leases of 50 ms)" if row["short_ms"] else ""),
                percent(row["reads_waiting"]),
                f"{row['read_ms']:,.0f}",
                f"{count(row['rate_before'])}, {count(row['rate_after'])}" if row["rate_before"] else "",
            )
            for row in rows
        ],
    )


def placement(rows: list[dict[str, Any]]) -> Table:
    """Where keys live."""
    columns = (
        "switches",
        "placement",
        "moment",
        "reads answered by the network",
        "by the reader's leaf",
        "read p50, p99 µs",
        "write p50 µs",
        "busiest switch",
    )
    return table(
        "",
        columns,
        [
            (
                row["switches"],
                row["placement"],
                row["moment"],
                percent(row["hits"]),
                percent(row["near"]),
                f"{micro(row['read_p50'])}, {micro(row['read_p99'])}",
                micro(row["write_p50"]),
                percent(row["most_used"]),
            )
            for row in rows
        ],
    )


def numbers() -> Table:
    """The numbers that the model starts from."""
    rows = [(name, f"{cost.value:,.0f} {cost.unit}", cost.source) for name, cost in costs.NUMBERS.items()]
    return table("", ("number", "value", "source"), rows)


def roles() -> Table:
    """The time of each kind of packet."""
    kinds = (
        costs.READ,
        costs.PASS,
        costs.REPLY_PASS,
        costs.DIRTY_SENT,
        costs.DIRTY_READ,
        costs.HEAD,
        costs.REPLICA,
        costs.TAIL,
        costs.COMMIT,
    )
    each = [
        (system, engine)
        for engine in costs.engines()
        if engine != costs.CHIP
        for system in (costs.NETCRAQ, costs.NETCHAIN)
    ]

    def cell(system: str, engine: str, kind: str) -> str:
        dirty = system == costs.NETCHAIN and "dirty" in kind
        return "" if dirty else f"{costs.role(system, engine, kind):.0f}"

    rows = [(kind, *(cell(*which, kind) for which in each)) for kind in kinds]
    return table("", ("ns", *(f"{system}, {ENGINES[engine]}" for system, engine in each)), rows)


def tables(result: dict[str, Any]) -> dict[str, Table]:
    """All tables, by the name of their place in the page."""
    return {
        "compared": compared(predict.compare(), predict.compare("program_ns")),
        "highest": highest(result["sizes"]),
        "mixes": mixes(result["mixes"]),
        "etcd": etcd(result["etcd"]),
        "latencies": latencies(result["latencies"]),
        "failures": failures(result["failures"]),
        "placement": placement(result["placement"]),
        "numbers": numbers(),
        "roles": roles(),
    }


def facts(result: dict[str, Any]) -> dict[str, str]:
    """The numbers in the page's sentences."""
    errors = [case for case in predict.compare()]
    run, measured = result["run"], costs.measurements()["run"]
    at = {
        (r["system"], r["engine"], r["switches"], r["chains"], r["members"]): r["reads_a_second"]
        for r in result["sizes"]
        if r["hashed"] == (r["system"] == costs.NETCHAIN)
    }
    biggest = max(key[2] for key in at)

    def rate(system: str, chains: int, members: int = study.MEMBERS) -> float:
        return at[system, costs.TC, biggest, chains, members]

    groups = study.GROUPS_OF * biggest
    return {
        "within": str(sum(case.within for case in errors)),
        "cases": str(len(errors)),
        "worst": f"{100 * max(abs(case.error) for case in errors):.0f}",
        "date": run["date"].split()[0],
        "commit": run["commit"][:8],
        "seconds": f"{result['seconds']:.0f}",
        "measured": measured["date"].split()[0],
        "measured_commit": measured["commit"][:8],
        "measured_load": f"{measured['load_average']:.0f}",
        "biggest": f"{biggest:,}",
        "most": count(rate(costs.NETCRAQ, 200)),
        "one": count(rate(costs.NETCRAQ, 1)),
        "eight": count(rate(costs.NETCRAQ, 200, 8)),
        "theirs": count(rate(costs.NETCHAIN, groups)),
        "ratio": f"{rate(costs.NETCRAQ, 200) / rate(costs.NETCHAIN, groups):.1f}",
        "roles_source": costs.measurements()["roles_source"],
        "groups": str(study.GROUPS_OF),
        "frame": f"{costs.frame(costs.TC):.0f}",
        "renewals": f"{study.renewals(200, 200):,.0f}",
    }


def write(result: dict[str, Any], path: Path = PAGE) -> None:
    """Write the page from its template."""
    template = (Path(__file__).parent / "page.txt").read_text()
    for name, value in facts(result).items():
        template = template.replace("{" + name + "}", value)
    out = []
    for paragraph in template.split("\n\n"):
        plain = paragraph[:1] not in "#|-!<`" and not paragraph.startswith("    ")
        out.append(
            textwrap.fill(" ".join(paragraph.split()), 100, break_long_words=False, break_on_hyphens=False)
            if plain
            else paragraph
        )
    text = "\n\n".join(out)
    for name, made in tables(result).items():
        text = text.replace(f"{{{{{name}}}}}", "\n".join(markdown(made)).strip())
    path.write_text(text.rstrip() + "\n")

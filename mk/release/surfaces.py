# SPDX-License-Identifier: Apache-2.0
"""The promises of a version in addition to Go names (docs/reference/promises.md), read from a
checkout: the generated reference pages, the Kubernetes resources, JSON fields, and the names in the
libraries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import process
import yaml


@dataclass
class Surface:
    """What one part of a checkout offers to users, and demands from them. Offering less breaks
    users, and so does demanding more.
    """

    offered: set[str] = field(default_factory=set)
    demanded: set[tuple[str, str]] = field(default_factory=set)  # (what demands it, demanded thing)

    def breaks(self, after: Surface) -> list[str]:
        """The things that a later version of this surface breaks, one line each. If a whole thing
        is missing, its parts are not listed.
        """
        gone = self.offered - after.offered
        gone -= {name for name in gone if any(parent in gone for parent in parents(name))}
        more = {(who, what) for who, what in after.demanded - self.demanded if who in self.offered & after.offered}
        return sorted([f"{name} is gone" for name in gone] + [f"{who} demands {what}" for who, what in more])


def parents(name: str) -> Iterator[str]:
    """The names of all things that contain a thing: `a` and `a b` for `a b --c`."""
    for at in re.finditer(r"[ .(]", name):
        yield name[: at.start()]


def commands(text: str) -> Surface:
    """The commands in cli.md, and their flags."""
    surface, command = Surface(), ""
    for line in text.splitlines():
        if heading := re.match(r"## (.+)", line):
            command = heading[1]
            surface.offered.add(command)
        elif flags := re.match(r" {2,}(?:(-\w), )? *(--[\w-]+)", line):
            surface.offered |= {f"{command} {flag}" for flag in flags.groups() if flag}
    return surface


def table(text: str, *columns: int) -> Surface:
    """The names in the first column of a page's tables, with the given further columns."""
    surface = Surface()
    for line in text.splitlines():
        if line.startswith("| `"):
            row = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:]]
            name = row[0].strip("`")
            surface.offered |= {name, *(f"{name} with {row[column] or 'nothing'}" for column in columns)}
    return surface


def resource(text: str) -> Surface:
    """The fields of a resource's versions, their types and enumerations, and which are required."""
    surface, crd = Surface(), yaml.safe_load(text)

    def visit(name: str, schema: dict) -> None:
        surface.offered |= {name, f"{name} as {schema.get('type', 'anything')}"}
        surface.offered |= {f"{name} with {choice!r}" for choice in schema.get("enum", ())}
        surface.demanded |= {(name, key) for key in schema.get("required", ())}
        for key, below in schema.get("properties", {}).items():
            visit(f"{name}.{key}", below)
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                visit(f"{name}.*", schema[key])

    for version in crd["spec"]["versions"]:
        visit(f"{crd['spec']['names']['kind']} {version['name']}", version["schema"]["openAPIV3Schema"])
    return surface


def calls(text: str) -> Surface:
    """The calls of an OpenAPI document, their parameters, and what is required of a caller."""
    surface, document = Surface(), yaml.safe_load(text)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            call = f"{method.upper()} {path}"
            surface.offered.add(call)
            for parameter in operation.get("parameters", ()):
                surface.offered.add(f"{call} {parameter['name']}")
                if parameter.get("required"):
                    surface.demanded.add((call, parameter["name"]))
    for name, schema in document["components"]["schemas"].items():
        if schema.get("additionalProperties") is False:  # such a schema is part of requests only
            surface.offered.add(name)
            surface.demanded |= {(name, field) for field in schema.get("required", ())}
    return surface


def json_fields(text: str) -> Surface:
    """The JSON fields of the types in a Go file."""
    surface, owner = Surface(), ""
    for line in text.splitlines():
        if declared := re.match(r"type (\w+) ", line):
            owner = declared[1]
        elif tag := re.search(r'`json:"([^",]+)', line):
            surface.offered.add(f"{owner}.{tag[1]}")
    return surface


def declarations(text: str) -> Surface:
    """The exported names in a TypeScript declaration file, and the members of each."""
    surface, owner = Surface(), ""
    for line in text.splitlines():
        if exported := re.match(r"export (?:declare )?\w+ (\w+)", line):
            owner = exported[1]
            surface.offered.add(owner)
        elif member := re.match(r"  (?:static |readonly )*(\w+)[?]?[:(<]", line):
            surface.offered.add(f"{owner}.{member[1]}")
    return surface


#: Prints what the modules of a Python package offer: names, methods, and their parameters.
INSPECT = """
import importlib, inspect, pkgutil, netcraq
def public(owner, module):
    names = getattr(owner, "__all__", None) or [n for n in dir(owner) if not n.startswith("_")]
    for name in names:
        value = inspect.getattr_static(owner, name) if isinstance(owner, type) else getattr(owner, name)
        home = getattr(value, "__module__", None) or owner.__name__
        if not inspect.ismodule(value) and (isinstance(owner, type) or home == module or hasattr(owner, "__all__")):
            yield name, value
def show(name, value):
    print("offers", name, sep="\\t")
    function = getattr(value, "__func__", value)
    if isinstance(value, type):
        for key, below in public(value, value.__module__):
            show(f"{name}.{key}", below)
        function = value.__dict__.get("__init__", value)
    if inspect.isfunction(function):
        for p in inspect.signature(function).parameters.values():
            if p.name not in ("self", "cls") and not p.name.startswith("_"):
                print("offers", f"{name}({p.name})", sep="\\t")
                if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                    print("demands", name, p.name, sep="\\t")
for found in pkgutil.walk_packages(netcraq.__path__, "netcraq."):
    try:
        module = importlib.import_module(found.name)
    except ImportError:
        continue  # it needs an extra that is not installed
    for name, value in public(module, found.name):
        show(f"{found.name}.{name}", value)
for name, value in public(netcraq, "netcraq"):
    show(f"netcraq.{name}", value)
"""


def python(folder: Path) -> Surface:
    """The names in the Python package of a folder."""
    surface = Surface()
    for line in process.run(sys.executable, "-c", INSPECT, PYTHONPATH=str(folder)).splitlines():
        verb, *words = line.split("\t")
        if verb == "offers":
            surface.offered.add(words[0])
        else:
            surface.demanded.add((words[0], words[1]))
    return surface


#: The files to compare, as glob patterns, each with the function that reads a file's text.
FILES: tuple[tuple[str, Callable[[str], Surface]], ...] = (
    ("docs/reference/cli.md", commands),
    ("docs/reference/metrics.md", lambda text: table(text, 1)),
    ("docs/reference/errors.md", table),
    ("docs/reference/events.md", table),
    ("docs/reference/chart.md", lambda text: table(text, 1)),
    ("docs/reference/admin-api.yaml", calls),
    ("cni-plugin/deploy/crd/*.yaml", resource),
    ("pipelets/deploy/crd/*.yaml", resource),
    ("api/**/*.go", json_fields),
    ("client/js/index.d.cts", declarations),
)


def breaks(before: Path, after: Path) -> list[str]:
    """The things of the first checkout that the second one breaks for users, except Go names."""
    found = []
    for pattern, read in FILES:
        for path in sorted(before.glob(pattern)):
            name = path.relative_to(before)
            if str(name).endswith("_test.go"):
                continue
            now = read((after / name).read_text()) if (after / name).exists() else Surface()
            found += [f"{name}: {line}" for line in read(path.read_text()).breaks(now)]
    package = Path("client/python")
    if (before / package / "netcraq").exists():
        found += [f"{package}: {line}" for line in python(before / package).breaks(python(after / package))]
    return found

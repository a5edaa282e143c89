# SPDX-License-Identifier: Apache-2.0
"""Tests the content of the wheels. A wheel has only the package, without helpers of tests or of
labs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[3]
NETCRAQ = """
netcraq: __init__.py admin.py aio.py client.py names.py py.typed scapy_layer.py wire.py
netcraq/node: __init__.py aio.py blocking.py engine.py errors.py requests.py values.py
netcraq/streams: __init__.py aio.py arrow.py columns.py files.py memory.py reader.py step.py
"""
NETCRAQ_SWITCH = "netcraq_switch: __init__.py mininet.py p4utils.py py.typed"


@pytest.mark.parametrize(
    ("folder", "package", "files"),
    [("client/python", "netcraq", NETCRAQ), ("switch/python", "netcraq_switch", NETCRAQ_SWITCH)],
)
def test_wheel(folder: str, package: str, files: str, tmp_path: Path):
    """A wheel contains the listed files, needs no other package, and can be imported."""
    source = tmp_path / "source"  # a copy, because setuptools writes into the source folder
    source.mkdir()
    shutil.copy(ROOT / folder / "pyproject.toml", source)
    shutil.copytree(ROOT / folder / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source]
    subprocess.run(pip, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as z:
        shipped = {name for name in z.namelist() if ".dist-info/" not in name}
        (metadata,) = (z.read(name).decode() for name in z.namelist() if name.endswith(".dist-info/METADATA"))
    rows = (line.split(": ") for line in files.strip().splitlines())
    assert shipped == {f"{where}/{name}" for where, names in rows for name in names.split()}
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert needed == []
    # The option -S hides the packages that are installed on this machine.
    script = f"import sys; sys.path.insert(0, {str(wheel)!r}); import {package}; print({package}.__file__)"
    imported = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True)
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.startswith(str(wheel))

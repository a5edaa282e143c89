# SPDX-License-Identifier: Apache-2.0
"""Tests the package without the packages that its extras install."""

import subprocess
import sys


def test_modules_say_which_extra_they_need():
    """Only scapy_layer needs scapy, which is GPL, and only streams.arrow needs pyarrow."""
    script = """
import importlib, pkgutil, sys
class Missing:
    def find_spec(self, name, *_):
        if name in ("scapy", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import netcraq
for module in pkgutil.walk_packages(netcraq.__path__, "netcraq."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as e:
        print(module.name, e)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    lines = said.splitlines()
    parts_of_arrow = [line for line in lines if line.startswith(("netcraq.streams.columns ", "netcraq.streams.files "))]
    assert [line for line in lines if line not in parts_of_arrow] == [
        "netcraq.scapy_layer netcraq.scapy_layer needs scapy: pip install 'netcraq[scapy]'",
        "netcraq.streams.arrow netcraq.streams.arrow needs pyarrow: pip install 'netcraq[arrow]'",
    ]


def test_the_package_itself_imports_nothing_and_has_connect():
    """Importing the package does not import asyncio, and the package has the function connect."""
    script = """
import sys, netcraq
assert "asyncio" not in sys.modules
from netcraq.node import connect
assert netcraq.connect is connect
try:
    netcraq.nothing
except AttributeError as e:
    print(e)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "module 'netcraq' has no attribute 'nothing'\n"

# SPDX-License-Identifier: Apache-2.0
"""The package without what its extras bring."""

import subprocess
import sys


def test_all_modules_but_the_layer_do_without_scapy():
    """Scapy is GPL: who imports the client must not need it, and the layer says what is missing."""
    script = """
import importlib, pkgutil, sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "scapy":
            raise ModuleNotFoundError("No module named 'scapy'", name="scapy")
sys.meta_path.insert(0, Missing())
import netcraq
for module in pkgutil.walk_packages(netcraq.__path__, "netcraq."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as e:
        print(module.name, e)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    lines = [line for line in said.splitlines() if "pyarrow" not in line]
    assert lines == ["netcraq.scapy_layer netcraq.scapy_layer needs scapy: pip install 'netcraq[scapy]'"]


def test_the_package_itself_imports_nothing_and_has_connect():
    """Users of the packet do not pay for asyncio; applications find connect at once."""
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

# SPDX-License-Identifier: Apache-2.0
"""The checkouts of other projects. Environment variables name them; they are never downloaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A repository: the variable that names a checkout, its address, and a file in it."""

    variable: str
    address: str
    has: str

    def find(self, environment: Mapping[str, str] = os.environ) -> Path | str:
        """The checkout, or the reason why there is none and what to do."""
        clone = f"git clone {self.address}, and {self.variable}= its folder"
        value = environment.get(self.variable, "")
        if not value:
            return f"{self.variable} is not set: {clone}"
        path = Path(value).expanduser().resolve()
        if not (path / self.has).exists():
            return f"{self.variable}={value} has no {self.has}: {clone}"
        return path


TUTORIALS = Source("P4_TUTORIALS", "https://github.com/p4lang/tutorials", "utils/run_exercise.py")
UTILS = Source("P4_UTILS", "https://github.com/nsg-ethz/p4-utils", "p4utils/mininetlib/network_API.py")
LEARNING = Source("P4_LEARNING", "https://github.com/nsg-ethz/p4-learning", "exercises")
GUIDE = Source("P4_GUIDE", "https://github.com/jafingerhut/p4-guide", "bin/veth_setup.sh")
NGSDN = Source("NGSDN", "https://github.com/opennetworkinglab/ngsdn-tutorial", "ptf/lib/base_test.py")
P4C = Source("P4C", "https://github.com/p4lang/p4c", "testdata/p4_16_samples")
NETCHAIN = Source("NETCHAIN", "https://github.com/netx-repo/netchain-p4", "p4src/netchain.p4")
NETCACHE = Source("NETCACHE", "https://github.com/netx-repo/netcache-p4", "p4src/netcache.p4")

ALL = (TUTORIALS, LEARNING, GUIDE, NGSDN, P4C)
"""The sources with programs for v1model."""

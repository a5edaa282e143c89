# SPDX-License-Identifier: Apache-2.0
"""Runs the maintainer scripts of the Debian packages with commands that only record their calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FILES = Path(__file__).parent / "release" / "files"

#: Debian's deluser, as far as the script uses it: it refuses to remove a user that is not a system
#: user.
DELUSER = """
id=$(getent passwd netcraq | cut -d: -f3)
if [ "$id" -ge 1000 ]; then echo "The user \\`netcraq' is not a system user. Exiting."; exit 1; fi
"""


def purge(folder: Path, account: str, adduser: bool) -> list[str]:
    """The commands with which a purge removes things. `account` is the line of the account netcraq
    in passwd, or empty if it does not exist.
    """
    log = folder / "log"
    log.touch()
    note = f'echo "${{0##*/}} $*" >> {log}\n'
    commands = {"rm": note, "userdel": note, "getent": f"echo '{account}'\n" if account else "exit 2\n"}
    if adduser:
        commands["deluser"] = note + DELUSER
    for name, text in commands.items():
        (folder / name).write_text("#!/bin/sh\n" + text)
        (folder / name).chmod(0o755)
    (folder / "cut").symlink_to("/usr/bin/cut")
    script = FILES / "netcraq.postrm"
    done = subprocess.run(["/bin/sh", script, "purge"], env={"PATH": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return log.read_text().splitlines()


@pytest.mark.parametrize("adduser", [True, False])
@pytest.mark.parametrize(
    ("account", "own"),
    [
        ("netcraq:x:998:998:NetCRAQ node:/var/lib/netcraq:/usr/sbin/nologin", True),
        ("netcraq:x:1001:1001:Jane Doe:/home/netcraq:/bin/bash", False),
        ("netcraq:x:997:997:another program:/srv/netcraq:/usr/sbin/nologin", False),
        ("", False),
    ],
)
def test_purge_removes_its_own_user(tmp_path: Path, account: str, own: bool, adduser: bool) -> None:
    """A purge removes the package's state, and the account netcraq only if the package made it."""
    state, *users = purge(tmp_path, account, adduser)
    assert state == "rm -rf /var/lib/netcraq /var/lib/netcraq-controller"
    removal = "deluser --system --quiet netcraq" if adduser else "userdel netcraq"
    assert users == ([removal] if own else [])

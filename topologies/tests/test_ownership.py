# SPDX-License-Identifier: Apache-2.0
"""The ownership of resources in /run/netcraq."""

import socket

from topologies import ownership


def test_an_agent_on_the_same_machine_keeps_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "DIRECTORY", tmp_path)
    (tmp_path / "attachments").mkdir()
    (tmp_path / "lock").touch()
    (tmp_path / ("0" * 32)).write_text("{}")
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent.sock"))
        assert [path.name for path in ownership._notes()] == ["0" * 32]
        assert ownership._living() == {}

# SPDX-License-Identifier: Apache-2.0
"""Streams in ordinary pods: which records they receive, and which they cannot."""

from __future__ import annotations

from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.nodeapi import OTHER, SPACE, own
from e2e.podprograms import Program, languages

KEYS, VERSIONS = 8, 20


def streams(cluster: Cluster) -> str:
    """Pods follow a service's keys by push, while another node's pod writes the keys. A pod of
    another namespace cannot map the stream's memory, although a Role that the check `node-api`
    creates lets it read the keys.
    """
    known, _ = languages()
    doors, told = own(cluster), []
    commands = {language: command for language, command in known.items() if language != "Node.js"}
    for i, (language, command) in enumerate(commands.items()):
        here, writer = doors[-1 - i], doors[0]  # the last node also has the other namespace's pod
        prefix, last, stream = f"prices-{i}/", "gold", f"follow-{i}"
        keys = [f"{prefix}{key}" for key in range(KEYS)]
        follower = Program(cluster, SPACE, here.pod, *command, "follow", stream, prefix, last, str(KEYS))
        follower.event("following")
        for version in range(VERSIONS):
            value = str(version) if version < VERSIONS - 1 else last
            for answer in writer.ask(*(("put", {"key": key, "value": value}) for key in keys)):
                require("data" in answer, f"a key cannot be written: {answer}")
        found = follower.result()
        require(found["keys"] == keys, f"{language} is told of other keys' last values: {found}")
        told.append(
            f"{language} was told {found['records']} of {KEYS * VERSIONS} versions, each key's newest among them"
        )
    for language, command in commands.items():
        found = Program(cluster, OTHER, "other", *command, "spy", SPACE, "follow-0").result()
        push = found["push"]
        require(
            push.startswith("permission_denied: ") and "(rule roles)" in push,
            f"{language} maps {SPACE}'s stream: {found}",
        )
        require(found["pull"] == "it was had", f"{language} may read the keys, and not the stream: {found}")
    doors[-1].one("deleteStream", stream="follow-0")
    return f"{'; '.join(told)}; a pod of {OTHER}, who may read {SPACE}'s keys, and not watch them, maps nothing"

# SPDX-License-Identifier: Apache-2.0
"""Pods coordinate through the node API's libraries: keys, locks, an election, a service."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from e2e import fixtures
from e2e.acceptance import CheckError, require
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.node import NodeError
from e2e.nodeapi import OTHER, SPACE, own
from e2e.podprograms import Program, languages, pod_template

TTL = 3.0
"""Seconds that a lock's lease lives."""

LEADER_TTL = 5.0
"""... a leader's: longer than a chain stands still when it loses a member."""

SLACK = 3.0
"""Seconds that a busy machine may take besides."""

INSTANCES = 10

INSTANCE_TTL = 3.0

LOAD_PATIENCE = 30
"""Seconds that a call has while agents are replaced: it waits for a node's next agent, and that one
for a controller.
"""

MOMENT_BEFORE = 0.1
"""Seconds by which an instance may say too early that it has gone (testpod's momentBefore)."""


def after_death(ttl: float) -> float:
    """The seconds after which another program can own what a dead program held
    (docs/coordination.md, "Locks").
    """
    return ttl * 9 / 8


def libraries(cluster: Cluster) -> str:
    """In each language, a pod puts, gets and watches a key, and is denied a key of another
    namespace.
    """
    known, left_out = languages()
    said = []
    for (language, command), door in zip(known.items(), itertools.cycle(own(cluster)), strict=False):
        key = f"basics/{language}"
        found = Program(cluster, SPACE, door.pod, *command, "basics", key, OTHER).result()
        require(found["put"] == found["got"], f"{language} reads another value than it wrote: {found}")
        require(found["events"] > 0, f"{language} is told of nothing: {found}")
        for refused in found["refused"]:
            require(
                refused.startswith("permission_denied: ") and "(rule roles)" in refused,
                f"{language} gets at {OTHER}: {found}",
            )
        said.append(f"{language} was told of {found['events']} versions, {found['overtaken']} overtaken")
    if left_out:
        cluster.say(f"left out: {', '.join(left_out)}")
    return f"{'; '.join(said)}; each was refused {OTHER}'s keys"


def locks(cluster: Cluster) -> str:
    """In each language, a pod that holds a lock is killed. A pod on another node acquires the lock
    within its time to live, and the old token is refused.
    """
    known, _ = languages()
    doors, took = own(cluster), []
    names = list(known)
    for i, language in enumerate(names):
        next_language = names[(i + 1) % len(names)]
        here, there = doors[i % len(doors)], doors[(i + 1) % len(doors)]
        name = f"nightly-{i}"
        holder = Program(cluster, SPACE, here.pod, *known[language], "hold", name, str(TTL), "keep")
        token = int(holder.event("token")["token"])
        waiter = Program(cluster, SPACE, there.pod, *known[next_language], "hold", name, str(TTL), "release")
        waiter.event("waiting")
        time.sleep(TTL / 2)
        require("token" not in waiter.events[-1], f"two hold a lock: {holder.events}, {waiter.events}")
        pid = holder.event("waiting")["pid"]
        killed = Program(cluster, SPACE, here.pod, "/testpod", "kill", str(pid), "KILL").result()["at"]
        passed_on = waiter.event("token")
        answer = here.ask(("unlock", {"name": name, "token": str(token)}))[0]
        require(answer.get("error", {}).get("code") == "not_held", f"an old token is taken: {answer}")
        waiter.result()
        holder.forget()
        wait = passed_on["at"] - killed
        require(int(passed_on["token"]) > token, f"a token after {token}: {passed_on}")
        require(
            wait <= after_death(TTL) + SLACK,
            f"{language} was killed, and {next_language} had its lock {wait:.1f} s later, with a TTL of {TTL} s",
        )
        took.append(f"{next_language} had {language}'s after {wait:.1f} s")
    return f"locks whose holders were killed, with a time to live of {TTL:.0f} s: {', '.join(took)}; old tokens refused"


class Election:
    """Pods on all nodes campaign in an election. The last node's pod leads first."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        doors = list(reversed(own(cluster)))
        arguments = ("/testpod", "program", "lead", "writer", str(LEADER_TTL), str(seconds))
        self.leader = Program(cluster, SPACE, doors[0].pod, *arguments)
        self._first = int(self.leader.event("leads")["leads"])
        self._others = [Program(cluster, SPACE, door.pod, *arguments) for door in doors[1:]]
        for one in self._others:
            one.event("candidate")

    def passed_on(self, died: float) -> float:
        """The seconds until another pod leads, after the last node's pod has died at ``died``."""

        def led() -> Any:
            for one in self._others:
                one.check()
            return [event for one in self._others for event in list(one.events) if "leads" in event]

        try:
            return until("another pod leads", led, every=0.1)[0]["from"] - died
        except NodeError as error:
            raise CheckError(f"{error}; {[event for one in self._others for event in one.events]}") from error

    def judge(self, died: float) -> None:
        """Check all terms: no two overlap, and tokens grow."""
        terms = []
        for one in [self.leader, *self._others]:
            if one is self.leader:
                one.forget()
            else:
                one.result()
            ends = {event["led"]: event["until"] for event in one.events if "led" in event}
            terms += [
                (event["from"], ends.get(event["leads"], died), int(event["leads"]))
                for event in one.events
                if "leads" in event
            ]
        terms.sort()
        for (_, end, token), (begin, _, later) in itertools.pairwise(terms):
            require(end <= begin and token < later, f"two led at once, or tokens went back: {terms}")


def services(cluster: Cluster) -> str:
    """Ten instances of a service are rolled over while a pod calls them. The pod never calls an
    instance that ended longer ago than its time to live.
    """
    kubectl, name = cluster.kubectl, "orders"
    template = pod_template(name, "program", "instance", name, str(INSTANCE_TTL), probe=True)
    template["spec"]["terminationGracePeriodSeconds"] = 5
    deployment = fixtures.deployment(name, INSTANCES)
    deployment["metadata"]["namespace"] = SPACE
    deployment["spec"]["template"] = template
    deployment["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    kubectl.apply(deployment)
    kubectl.rollout(f"deployment/{name}", SPACE)
    door = own(cluster)[0]

    def listed() -> bool:
        return len(door.one("getService", service=name)["instances"]) == INSTANCES

    until("all instances are listed", listed)
    caller = Program(cluster, SPACE, door.pod, "/testpod", "program", "call", name, "300")
    pid, begin = caller.event("calling")["pid"], time.monotonic()
    kubectl("-n", SPACE, "rollout", "restart", f"deployment/{name}")
    kubectl.rollout(f"deployment/{name}", SPACE)
    rolled = time.monotonic() - begin
    time.sleep(2 * INSTANCE_TTL)  # by then the server must have dropped the last one that ended
    Program(cluster, SPACE, door.pod, "/testpod", "kill", str(pid), "TERM").result()
    found = caller.result()
    require(listed(), "other instances than the new ones are listed")
    kubectl("-n", SPACE, "delete", f"deployment/{name}", "--wait=false")
    require(found["gone"] >= INSTANCES // 2 and found["calls"] > 100, f"too few were called, or went: {found}")
    require(
        found["latest"] <= INSTANCE_TTL + MOMENT_BEFORE,
        f"instances were called that had been gone for longer than {INSTANCE_TTL} s: {found}",
    )
    return (
        f"{INSTANCES} instances rolled over in {rolled:.0f} s; {found['calls']} calls of {found['instances']}, "
        f"{found['failed']} without an answer, {found['none']} times nobody was named; the latest call of one "
        f"that had gone was {found['latest']:.1f} s after that, with a time to live of {INSTANCE_TTL:.0f} s"
    )


def loads(cluster: Cluster, seconds: float) -> Callable[[], str]:
    """Make a pod on each node count for some seconds. Returns a function that waits for the results
    and checks them.

    Whatever happens meanwhile, no call may fail, and each count must be exactly the number of
    acknowledged increments.
    """
    running = [
        Program(cluster, SPACE, door.pod, "/testpod", "program", "load", "load", str(seconds), str(LOAD_PATIENCE))
        for door in own(cluster)
    ]
    for one in running:
        one.event("counting")  # its keys exist; none can be made without the leading agent

    def judge() -> str:
        total = 0
        longest = 0.0
        for one in running:
            found = one.result(seconds + 90)
            require(not found["wrong"], f"{one.name}: {found}")
            require(not found["failed"] and not found["unknown"], f"{one.name}: calls failed: {found}")
            longest = max(longest, found["longest"])
            total += found["done"]
        return (
            f"{total} increments of {len(running)} pods: none failed, was lost or done twice; "
            f"the slowest took {longest:.1f} s of {LOAD_PATIENCE}"
        )

    return judge

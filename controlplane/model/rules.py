# SPDX-License-Identifier: Apache-2.0
"""The inputs of the searches: the configurations (bounds) of the model, and its mutants. A mutant
is the protocol without one of its rules.

The mutants are in mutants.json, because the simulator uses them too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

CHAIN_OF_2 = 0b110100  # nodes 0, 1; node 2 is spare
CHAIN_OF_3 = 0b100100
CHAIN_OF_1 = 0b111100  # node 0; nodes 1 and 2 are spare


@dataclass(frozen=True)
class Configuration:
    """The bounds of one search, as values of the model's macros."""

    name: str
    what: str
    bounds: dict[str, int]

    def flags(self) -> list[str]:
        """The compiler flags that set the bounds."""
        return [f"-D{k}={v}" for k, v in self.bounds.items()]


def bounds(chain: int, writes: tuple[int, int], reads: tuple[int, int], **more: int) -> dict[str, int]:
    """Bounds of a search: the first chain, and each client's numbers of writes and of reads."""
    return {"CHAIN": chain, "WRITES0": writes[0], "WRITES1": writes[1], "READS0": reads[0], "READS1": reads[1], **more}


CONFIGURATIONS = {
    c.name: c
    for c in [
        Configuration(
            "steady",
            "one configuration, with loss, duplication, reordering and retries; each client makes 2 WRITEs or CASes and 2 READs",
            bounds(CHAIN_OF_3, (2, 2), (2, 2), CASES=3, REDRIVE_FROM=2),
        ),
        Configuration(
            "steady-redrive",
            "as `steady`, and members re-propagate dirty versions at any moment; 2 WRITEs or CASes against 1 WRITE",
            bounds(CHAIN_OF_3, (1, 2), (1, 2), CASES=2),
        ),
        Configuration(
            "failover",
            "any 1 of 3 members is given up at any moment (crashed, cut off, or wrongly suspected); 2 WRITEs or CASes against 1 WRITE",
            bounds(CHAIN_OF_3, (1, 2), (1, 1), CASES=2, REMOVALS=1, REDRIVE_FROM=2),
        ),
        Configuration(
            "failover-redrive",
            "as `failover`, and members re-propagate dirty versions at any moment; 1 WRITE or CAS against 1 WRITE",
            bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=2, REMOVALS=1),
        ),
        Configuration(
            "failover-twice",
            "any 2 of 3 members are given up, the second at any moment of the first one's failover",
            bounds(CHAIN_OF_3, (1, 1), (1, 0), CASES=3, REMOVALS=2),
        ),
        Configuration(
            "fail-stop",
            "without leases (lease 0), as the paper assumes: a switch that is given up has stopped; 2 members are given up",
            bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=2, REMOVALS=2, REDRIVE_FROM=2, FAIL_STOP=1),
        ),
        Configuration(
            "takeover",
            "a member is given up, and a second controller takes over at any moment of the failover, while the first may still act",
            bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=2, REMOVALS=1, TAKEOVERS=1, REDRIVE_FROM=2),
        ),
        Configuration(
            "recovery",
            "a spare or a removed node joins a chain of 2; 1 member is given up before, during or after that",
            bounds(CHAIN_OF_2, (1, 1), (1, 1), CASES=2, REMOVALS=1, JOINS=1),
        ),
        Configuration(
            "recovery-twice",
            "as `recovery`, but 2 members are given up, so the joiner can be the only member",
            bounds(CHAIN_OF_2, (1, 1), (1, 0), REMOVALS=2, JOINS=1),
        ),
        Configuration(
            "recovery-all",
            "as `recovery`, with 1 member given up and a takeover at any moments; 1 WRITE",
            bounds(CHAIN_OF_2, (1, 0), (1, 1), REMOVALS=1, JOINS=1, TAKEOVERS=1),
        ),
        Configuration(
            "recovery-takeover",
            "a node joins a chain of 2, and a second controller takes over at any moment of the recovery",
            bounds(CHAIN_OF_2, (1, 1), (1, 1), CASES=2, JOINS=1, TAKEOVERS=1),
        ),
        Configuration(
            "passed",
            "writes pass through the joiner before the tail while it is filled (a chain of 1 is frozen); 1 member is given up",
            bounds(CHAIN_OF_2, (1, 1), (1, 1), CASES=2, REMOVALS=1, JOINS=1, PASSED=1),
        ),
        Configuration(
            "passed-twice",
            "as `passed`, but 2 members are given up, so the joiner can be the only member",
            bounds(CHAIN_OF_2, (1, 1), (1, 0), REMOVALS=2, JOINS=1, PASSED=1),
        ),
        Configuration(
            "passed-takeover",
            "as `passed`, and a second controller takes over at any moment",
            bounds(CHAIN_OF_2, (1, 1), (1, 1), CASES=2, JOINS=1, TAKEOVERS=1, PASSED=1),
        ),
        Configuration(
            "key-moves",
            "the key is removed from its slot and put into another one; 1 member is given up",
            bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=2, REMOVALS=1, MOVES=1),
        ),
        Configuration(
            "added",
            "the controller adds the key: its entries are hidden until a CAS of the controller is committed everywhere; 2 attempts",
            bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=3, FIRST=2),
        ),
        Configuration(
            "added-failover",
            "as `added`, and 1 member is given up at any moment",
            bounds(CHAIN_OF_3, (1, 0), (1, 1), CASES=1, REMOVALS=1, FIRST=2),
        ),
        Configuration(
            "added-grown",
            "a chain without keys takes in a former member, and the key is added; 1 member is given up",
            bounds(CHAIN_OF_1, (1, 0), (1, 1), REMOVALS=1, JOINS=1, FIRST=2, GROWS=1),
        ),
        Configuration(
            "added-grown-kept",
            "as `added-grown`, but the former member keeps its contents: values are hidden, session records stay",
            bounds(CHAIN_OF_1, (1, 0), (1, 1), REMOVALS=1, JOINS=1, FIRST=2, GROWS=1, GROWS_UNEQUAL=1),
        ),
        Configuration(
            "removed",
            "the controller closes the key and deletes it by CAS; another controller opens it again at any moment of that",
            bounds(CHAIN_OF_3, (2, 1), (1, 0), PUTS=1, CASES=1, DELETES=1),
        ),
        Configuration(
            "removed-failover",
            "as `removed`, and 1 member is given up; 1 WRITE or CAS",
            bounds(CHAIN_OF_3, (1, 1), (1, 0), PUTS=1, CASES=1, REMOVALS=1, DELETES=1),
        ),
        Configuration(
            "late-write",
            "a configuration's Write arrives late at a head that has written the key since; a node joins a chain of 1",
            bounds(CHAIN_OF_1, (1, 1), (1, 1), CASES=2, JOINS=1, LATE_AFTER_WRITES=1),
        ),
        Configuration(
            "emptied",
            "a member loses its tables and registers but stays connected, and 1 member is given up",
            bounds(CHAIN_OF_3, (1, 1), (1, 0), CASES=2, REMOVALS=1, EMPTIED=1),
        ),
        Configuration(
            "emptied-recovery",
            "as `emptied`, in a chain of 2, where 1 node joins; 1 WRITE",
            bounds(CHAIN_OF_2, (1, 0), (1, 1), REMOVALS=1, JOINS=1, EMPTIED=1),
        ),
        Configuration(
            "hostile",
            "another host sends arbitrary requests, and 1 member is given up",
            bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=2, REMOVALS=1, REDRIVE_FROM=2, FORGERIES=1),
        ),
        Configuration(
            "leased-anew",
            "the first client's session is leased to the second, and the first client's packets arrive late; 1 member is given up",
            bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=2, REMOVALS=1, LEASED=1),
        ),
        Configuration(
            "leased-by-hostile",
            "as `leased-anew`, but the session belonged to the hostile host before; 1 member is given up",
            bounds(CHAIN_OF_3, (0, 1), (1, 1), CASES=2, REMOVALS=1, LEASED=1, FORGERIES=1),
        ),
        Configuration(
            "leased-recovery",
            "a client's session is leased to another client while a node joins a chain of 2; 1 member is given up",
            bounds(CHAIN_OF_2, (1, 1), (1, 0), REMOVALS=1, JOINS=1, LEASED=1),
        ),
        Configuration(
            "same-value",
            "for EVENTUAL reads: no two ACKs or replies ever give one version two values",
            bounds(CHAIN_OF_3, (1, 2), (0, 1), CASES=2, REMOVALS=1, REDRIVE_FROM=2, SAME_VALUE=1),
        ),
        Configuration(
            "settles",
            "packets are lost for a while; at rest no member is dirty, and a client that asks once more gets an answer",
            bounds(CHAIN_OF_3, (1, 1), (0, 0), CASES=2, QUIET=1),
        ),
        Configuration(
            "settles-failover",
            "as `settles`, but 2 members are given up, and packets are lost throughout",
            bounds(CHAIN_OF_3, (1, 1), (0, 0), CASES=2, REMOVALS=2, QUIET=1),
        ),
        Configuration(
            "settles-takeover",
            "as `settles`, with 1 member given up and a second controller",
            bounds(CHAIN_OF_3, (1, 1), (0, 0), CASES=2, REMOVALS=1, TAKEOVERS=1, QUIET=1),
        ),
        Configuration(
            "settles-recovery",
            "as `settles`, for a chain of 2 with 1 member given up and 1 node that joins",
            bounds(CHAIN_OF_2, (1, 1), (0, 0), CASES=2, REMOVALS=1, JOINS=1, QUIET=1),
        ),
        Configuration(
            "settles-passed",
            "as `settles-recovery`, and writes pass through the joiner while it is filled",
            bounds(CHAIN_OF_2, (1, 1), (0, 0), CASES=2, REMOVALS=1, JOINS=1, QUIET=1, PASSED=1),
        ),
        Configuration(
            "settles-grown",
            "as `settles`, for a chain of 1 that takes in a former member while it has no keys; 1 member is given up",
            bounds(CHAIN_OF_1, (1, 1), (0, 0), CASES=2, REMOVALS=1, JOINS=1, QUIET=1, GROWS=1),
        ),
        Configuration(
            "settles-heard",
            "as `settles-grown`, but the former member keeps its session records; the controller announces its own session",
            bounds(CHAIN_OF_1, (1, 0), (0, 0), REMOVALS=1, JOINS=1, QUIET=1, GROWS=1, GROWS_UNEQUAL=1, POOL=1),
        ),
        Configuration(
            "settles-leased-anew",
            "as `settles`, for a session that is leased to the second client; 1 member is given up",
            bounds(CHAIN_OF_3, (1, 1), (0, 0), REMOVALS=1, LEASED=1, QUIET=1),
        ),
        Configuration(
            "settles-by-hostile",
            "as `settles`, for a session that belonged to the hostile host before; 1 member is given up",
            bounds(CHAIN_OF_3, (0, 1), (0, 0), REMOVALS=1, LEASED=1, FORGERIES=1, QUIET=1),
        ),
    ]
}

# Configurations for mutants whose violation needs fewer operations than CONFIGURATIONS have.
SMALL = {
    "two-writes": bounds(CHAIN_OF_3, (1, 1), (1, 1)),
    "two-by-one": bounds(CHAIN_OF_3, (2, 1), (1, 2), CASES=3),
    "two-by-one-no-cas": bounds(CHAIN_OF_3, (2, 1), (1, 2)),
    "guess": bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=2),
    "failover-kept": bounds(CHAIN_OF_3, (1, 1), (1, 0), REMOVALS=1, REDRIVE_FROM=2),
    "failover-small": bounds(CHAIN_OF_3, (1, 1), (1, 1), REMOVALS=1),
    "failover-cas": bounds(CHAIN_OF_3, (1, 2), (0, 1), CASES=2, REMOVALS=1, REDRIVE_FROM=2),
    "failover-no-cas": bounds(CHAIN_OF_3, (1, 1), (1, 1), REMOVALS=2),
    "failover-order": bounds(CHAIN_OF_3, (1, 1), (1, 1), REMOVALS=2, REDRIVE_FROM=2),
    "failover-one-writer": bounds(CHAIN_OF_3, (1, 0), (1, 1), REMOVALS=2),
    "recovery-one-writer": bounds(CHAIN_OF_2, (1, 0), (1, 1), REMOVALS=1, JOINS=1),
    "recovery-small": bounds(CHAIN_OF_2, (1, 1), (1, 1), JOINS=1),
    "recovery-no-cas": bounds(CHAIN_OF_2, (1, 1), (1, 1), REMOVALS=1, JOINS=1),
    "recovery-cas": bounds(CHAIN_OF_2, (1, 1), (1, 0), CASES=2, REMOVALS=1, JOINS=1),
    "passed-small": bounds(CHAIN_OF_2, (1, 1), (1, 1), JOINS=1, PASSED=1),
    "passed-one-writer": bounds(CHAIN_OF_2, (1, 0), (0, 2), JOINS=1, PASSED=1),
    "passed-taken-over": bounds(CHAIN_OF_2, (1, 0), (1, 1), JOINS=1, TAKEOVERS=1, PASSED=1),
    "recovery-two-reads": bounds(CHAIN_OF_2, (1, 1), (2, 0), REMOVALS=2, JOINS=1),
    "added-small": bounds(CHAIN_OF_3, (1, 1), (1, 1), FIRST=2),
    "removed-small": bounds(CHAIN_OF_3, (1, 1), (1, 0), PUTS=1, DELETES=1),
    "grown-small": bounds(CHAIN_OF_1, (1, 0), (1, 1), JOINS=1, FIRST=1, GROWS=1),
    "settles-grown-small": bounds(CHAIN_OF_1, (1, 0), (0, 0), REMOVALS=1, JOINS=1, QUIET=1, GROWS=1),
    "late-small": bounds(CHAIN_OF_1, (1, 1), (1, 1), JOINS=1),
    "emptied-small": bounds(CHAIN_OF_2, (1, 0), (1, 1), EMPTIED=1),
    "emptied-changed": bounds(CHAIN_OF_3, (1, 0), (1, 1), REMOVALS=1, EMPTIED=1),
    "dirty-cas": bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=3),
    "moves-small": bounds(CHAIN_OF_3, (1, 1), (1, 1), MOVES=1),
    "hostile-small": bounds(CHAIN_OF_3, (1, 1), (1, 1), FORGERIES=1),
    "hostile-writes": bounds(CHAIN_OF_3, (1, 1), (1, 1), FORGERIES=1, WRITES_ONLY=1),
    "leased-small": bounds(CHAIN_OF_3, (1, 1), (1, 1), LEASED=1),
    "settles-leased-small": bounds(CHAIN_OF_3, (1, 1), (0, 0), LEASED=1, QUIET=1),
    "settles-small": bounds(CHAIN_OF_3, (1, 1), (0, 0), QUIET=1),
    "settles-once": bounds(CHAIN_OF_3, (1, 1), (0, 0), REMOVALS=1, QUIET=1),
}


@dataclass(frozen=True)
class Mutant:
    """The protocol without one rule: an entry of mutants.json."""

    id: str  # a name that must not change, because the simulator uses it too
    about: str  # the part of the protocol to which the rule belongs
    rule: str  # the rule, in one sentence
    layer: str  # where the rule is enforced: "program" (the P4 program), "controller" or "client"
    paper: bool  # without the rule, the algorithm is the one of the paper
    redundant: bool  # no counter-example exists in the model
    shows: str  # the counter-example in words; if redundant, the reason why there is none
    macros: list[str]  # the model's macros that remove the rule
    where: list[str]  # configurations to search, in this order

    def flags(self, where: str) -> list[str]:
        """The compiler flags of the mutant's search in a configuration."""
        at = SMALL[where] if where in SMALL else CONFIGURATIONS[where].bounds
        return [f"-D{k}={v}" for k, v in at.items()] + [f"-D{d}" for d in self.macros]


MUTANTS = [Mutant(**m) for m in json.loads(Path(__file__).with_name("mutants.json").read_text())]

QUICK_CONFIGURATIONS = [
    "steady-redrive",
    "failover-redrive",
    "recovery-all",
    "settles",
    "settles-failover",
    "leased-by-hostile",
    "removed",
    "late-write",
    "settles-grown",
]
QUICK_MUTANTS = [
    "ACK_OF_ANYTHING",
    "NO_LEASE",
    "NO_PERIODIC",
    "KEY_RESTARTS_LOWER",
    "NO_SESSION_OWNER",
    "NO_WINDOW",
    "DIRTY_CAS_SENT_ON",
    "OUTCOME_FORGOTTEN",
    "TRUSTS_LEASE_REPLIES",
    "BLIND_DELETES",
    "GROWS_UNEQUAL",
]

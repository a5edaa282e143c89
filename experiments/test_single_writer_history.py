# SPDX-License-Identifier: Apache-2.0
"""The history checker finds each kind of violation, and reports no others."""

import math
import random

import pytest

from experiments.single_writer_history import Operation, violations


def write(number, asked, answered):
    return Operation("/k", True, number, asked, answered, "h1")


def read(number, asked, answered, who="h2"):
    return Operation("/k", False, number, asked, answered, who)


WRITES = [write(1, 10, 12), write(2, 20, 22), write(3, 30, 32)]


@pytest.mark.parametrize(
    "reads",
    [
        [],
        [read(0, 1, 2)],
        [read(0, 11, 11.5), read(1, 11.6, 11.8)],  # during the write, in order
        [read(1, 11, 15), read(0, 10.5, 14)],  # overlapping reads may see either
        [read(1, 12.5, 19), read(2, 23, 29)],
        [read(1, 19, 25), read(2, 19, 25)],
    ],
)
def test_what_can_happen(reads):
    assert violations(WRITES + reads) == []


@pytest.mark.parametrize(
    ("reads", "words"),
    [
        ([read(0, 12.5, 13)], "stale, value 1 had been written before"),
        ([read(1, 23, 24)], "stale, value 2 had been written before"),
        ([read(2, 18, 19)], "before it was written"),
        ([read(9, 40, 41)], "before it was written"),
        ([read(1, 10.5, 11), read(0, 11.2, 11.4, "h3")], "stale, value 1 had been read before"),
        ([read(None, 1, 2)], "a value that nobody wrote"),
    ],
)
def test_what_cannot(reads, words):
    [line] = violations(WRITES + reads)
    assert words in line
    assert line.startswith("/k: h")


def test_keys_do_not_mix():
    other = Operation("/other", False, 0, 50, 51)
    assert violations([*WRITES, other]) == []


def test_a_write_without_an_answer_may_have_happened_or_not_or_later():
    lost = write(4, 40, math.inf)
    for reads in ([read(3, 50, 51)], [read(4, 50, 51)], [read(3, 50, 51), read(4, 52, 53)]):
        assert violations([*WRITES, lost, *reads]) == []
    assert len(violations([*WRITES, lost, read(4, 50, 51), read(3, 52, 53)])) == 1
    assert len(violations([*WRITES, lost, write(5, 60, 61), read(4, 62, 63)])) == 1


def test_writes_that_overlap_are_not_checked():
    with pytest.raises(ValueError, match="the writes overlap"):
        violations([write(1, 1, 5), write(2, 4, 6)])


def test_it_agrees_with_trying_every_order():
    """Compare with a search on small random histories: for an order of all operations that respects
    their times, in which each read returns the last written value.
    """
    rng = random.Random(1)
    verdicts = set()
    for _ in range(3000):
        operations, now = [], 0.0
        for number in range(1, rng.randint(1, 3) + 1):
            now += rng.random()
            operations.append(write(number, now, now := now + rng.random()))
        for _ in range(rng.randint(1, 3)):
            asked = rng.random() * now
            operations.append(read(rng.randint(0, 3), asked, asked + rng.random()))
        possible = _some_order(operations, 0)
        assert (violations(operations) == []) == possible, operations
        verdicts.add(possible)
    assert verdicts == {True, False}


def _some_order(left, value):
    if not left:
        return True
    first_answer = min(operation.answered for operation in left)
    for operation in left:
        if operation.asked <= first_answer and (operation.write or operation.number == value):
            rest = [other for other in left if other is not operation]
            if _some_order(rest, operation.number if operation.write else value):
                return True
    return False

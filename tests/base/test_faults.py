"""The form of faults, and what each bound lets pass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import msgspec
import pytest

from dltune.base.documents import (
    AMOUNT,
    FILLED,
    LABEL,
    LEVEL,
    POSITIVE,
    SHARE,
    above,
    at_least,
    at_most,
    between,
    index,
    one_of,
    refuse,
    repeated,
    struct_faults,
)
from dltune.base.errors import UsageError


class Pool(msgspec.Struct):
    cores: int
    share: float | None = None
    names: tuple[str, ...] = ()


class Worker(msgspec.Struct):
    name: Annotated[str, LABEL, FILLED]
    pool: Pool | None = None
    times: tuple[Annotated[float, AMOUNT], ...] = ()
    low: float = 0.0
    high: Annotated[float | None, AMOUNT] = None

    def relation_faults(self) -> Iterator[str]:
        yield from at_least(self.low, "its low").of("", self, "high")


class Team(msgspec.Struct):
    workers: Annotated[tuple[Worker, ...], FILLED]
    by_host: dict[str, tuple[Worker, ...]] = {}
    rows: tuple[tuple[Annotated[int, at_least(1)], ...], ...] | None = None


def test_a_fault_names_field_value_and_bound() -> None:
    assert above(0).of("pool", Pool(0), "cores") == ["pool.cores must be above 0, got 0"]
    assert at_least(1).of("", Pool(0), "cores") == ["cores must be at least 1, got 0"]
    assert at_most(2.0, "the median").faults("x.min", 3.0, 1.0, 4.0) == [
        "x.min must be at most 2.0 (the median), got 3.0",
        "x.min must be at most 2.0 (the median), got 4.0",
    ]
    assert index(3, "ops").faults("op", 3) == [
        "op must be at least 0 and below 3 (the number of ops), got 3"
    ]
    assert one_of(("a", "b"), "a, b").faults("kind", "c\n") == [
        "kind must be one of a, b, got 'c\\n'"
    ]


@pytest.mark.parametrize(
    ("bound", "good", "bad"),
    [
        (AMOUNT, (0, 1e300), (-1e-9, math.inf, math.nan)),
        (POSITIVE, (1e-300, 7), (0.0, -1, math.inf, math.nan)),
        (SHARE, (0, 0.5, 1), (-0.1, 1.1, math.nan)),
        (LEVEL, (0.01, 0.99), (0, 1, math.nan)),
        (at_least(1), (1, 2), (0, math.nan)),
        (at_most(1), (1, -2), (1.5, math.nan)),
        (above(0), (0.1,), (0, -1, math.nan)),
        (between(2, 3), (2, 3), (1, 4)),
        (index(2, "nodes"), (0, 1), (-1, 2)),
        (one_of((1, 2), "two"), (1, 2), (3, "1", [])),
    ],
)
def test_what_a_bound_lets_pass(bound, good, bad) -> None:
    assert bound.faults("x", *good) == []
    assert len(bound.faults("x", *bad)) == len(bad)


def test_a_field_without_a_value_has_no_fault() -> None:
    assert SHARE.of("pool", Pool(1), "share") == []


def test_what_is_empty_and_what_is_there_twice() -> None:
    assert FILLED.of("pool", Pool(1), "names") == ["pool.names must not be empty"]
    assert FILLED.of("pool", Pool(1, names=("a",)), "names") == []
    assert FILLED.faults("pool.name", "a", " ") == ["pool.name must not be empty"]
    assert list(repeated("pools", "name", ["a", "b", "a"])) == [
        "pools must contain each name only once, got 'a' 2 times"
    ]


def test_a_struct_is_checked_with_all_that_it_contains() -> None:
    good = Worker("a", Pool(0), (0.0, 1.0), 1.0, 2.0)
    assert struct_faults("", Team((good,), {"here": (good,)}, ((1,), ()))) == []
    assert struct_faults("team", Team(())) == ["team.workers must not be empty"]
    bad = Worker("b", None, (1.0, -1.0), 2.0, 1.0)
    assert struct_faults("", Team((good, bad), {"here": (Worker(" "),)}, ((1,), (2, 0)))) == [
        "workers[1] (b).times[1] must be finite and not negative, got -1.0",
        "workers[1] (b).high must be at least 2.0 (its low), got 1.0",
        "by_host.here[0] ( ).name must not be empty",
        "rows[1][1] must be at least 1, got 0",
    ]


def test_twenty_faults_are_shown_and_the_rest_counted() -> None:
    refuse("file", [])
    with pytest.raises(UsageError) as caught:
        refuse("file", [f"fault {number}" for number in range(23)])
    told = str(caught.value).split("\n")
    assert (told[0], told[20], told[21]) == ("file is invalid:", "  fault 19", "  and 3 more")

"""Searches on recorded steps of real jobs, on a noisy machine.

docs/research/benchmarks/settings.md has the figures of `python scripts/bench/bench_search.py`, from
more trials.
"""

from __future__ import annotations

import random
import statistics
import sys
from pathlib import Path

import pytest

from dltune.tune.candidates import AS_GIVEN

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import bench_search
from settings_table import Table, load

RECORDED = Path(__file__).parent / "recorded"
COPIES = RECORDED / "copies.json.gz"
TABLES = sorted(path.name for path in RECORDED.glob("*.json.gz") if path != COPIES)
TRIALS = 200
# seconds of budget, and repetitions
BUDGET, REPETITIONS = 480.0, 15


@pytest.fixture(params=TABLES, ids=[name.partition(".")[0] for name in TABLES])
def table(request: pytest.FixtureRequest) -> Table:
    return load(RECORDED / request.param, COPIES)


def test_the_recording_of_copies_is_noisy() -> None:
    copies = load(COPIES)
    rest = [value for batch in copies.batches for found in batch.rest.values() for value in found]
    assert len(rest) >= 100
    assert statistics.pstdev(rest) > 0.02


def test_a_variable_that_nobody_reads_makes_no_difference() -> None:
    counts = bench_search.nothing(load(COPIES), TRIALS)
    assert counts["no difference seen"] / TRIALS >= 0.99


def test_the_search_is_no_worse_than_random_search(table: Table) -> None:
    mine = [
        bench_search.climbing(table, BUDGET, random.Random(n)).excess for n in range(REPETITIONS)
    ]
    random_s = [
        bench_search.rival("random", 3, table, BUDGET, random.Random(n)).excess
        for n in range(REPETITIONS)
    ]
    assert statistics.fmean(mine) <= statistics.fmean(random_s) + 0.01


def test_what_is_chosen_is_hardly_ever_slower_than_the_job_as_given(table: Table) -> None:
    given = table.ratio(AS_GIVEN) / table.ratio(table.best) - 1
    worse = [
        run.excess > given + 0.01
        for n in range(REPETITIONS)
        for run in [bench_search.climbing(table, BUDGET / 2, random.Random(n))]
    ]
    assert sum(worse) <= 1

"""Recorded combinations of settings: what they truly do, and steps drawn from them again."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.plan.settings.space import by_name
from dltune.schemas.settings import Choice

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import bench_search
import search_rivals
from settings_table import Replayed, Table, load

EFFECTS = {
    "batch_norm": {"fused": 0.85},
    "threads": {"2x1": 0.9, "1x2": 1.1},
    "allocator": {"glibc-keep": 0.95},
}


def written(
    file: Path,
    *,
    noise: float = 0.0,
    drift: float = 0.0,
    refused: Sequence[str] = (),
    seed: int = 0,
) -> Path:
    """A recording in which effects multiply. `drift`: of a round's level, which all share."""
    lot = random.Random(seed)
    values = {name: list(found) for name, found in EFFECTS.items()}
    every = itertools.product(*([None, *found] for found in values.values()))
    plain = [{n: v for n, v in zip(values, chosen, strict=True) if v} for chosen in every]
    left = [c for c in plain if c and not set(c.values()) & set(refused)]
    batches = []
    while left:
        candidates, left = [{}, *left[:5]], left[5:]
        steps = []
        for _ in range(12):
            level = math.exp(lot.gauss(0, drift))
            steps.append(
                [
                    round(
                        1e7
                        * level
                        * math.prod(EFFECTS[n][v] for n, v in candidate.items())
                        * math.exp(lot.gauss(0, noise))
                    )
                    for candidate in candidates
                ]
            )
        batches.append(
            {
                "candidates": candidates,
                "start_seconds": [5.0] * len(candidates),
                "turn_seconds": 0.5,
                "steps": steps,
                "refused": [],
            }
        )
    batches[0]["refused"] = [
        {"candidate": c, "verdict": "failed", "why": "it crashed"}
        for c in plain
        if set(c.values()) & set(refused)
    ]
    data = {"about": "made", "values": values, "batches": batches}
    file.write_bytes(gzip.compress(json.dumps(data).encode()))
    return file


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return load(written(tmp_path / "made.json.gz"))


def test_what_a_round_did_to_all_is_not_in_what_a_combination_does(tmp_path: Path) -> None:
    table = load(written(tmp_path / "made.json.gz", drift=0.5))
    assert len(table.recorded) == table.combinations == 12
    for candidate, ratio in table.recorded.items():
        expected = math.prod(EFFECTS[choice.setting][choice.value] for choice in candidate)
        assert ratio == pytest.approx(expected, rel=1e-5)
    assert [choice.value for choice in table.best] == [
        "glibc-keep",
        "fused",
        "2x1",
    ]


@given(st.integers(0, 99))
def test_what_is_drawn_has_the_recorded_ratios_and_noise(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    file = tmp_path_factory.mktemp("tables") / "made.json.gz"
    table = load(written(file, noise=0.02, drift=0.2, seed=seed))
    evaluator = Replayed(table, random.Random(seed), 1e9)
    fused = (Choice("batch_norm", "fused"),)
    for candidate in ((), fused):
        assert evaluator.start(candidate) is None
    taken = [evaluator.round([(), fused]) for _ in range(400)]
    logs = [math.log(one[fused] / one[()]) for one in taken]  # type: ignore[operator]
    assert statistics.fmean(logs) == pytest.approx(math.log(table.ratio(fused)), abs=0.02)
    assert 0.01 < statistics.stdev(logs) < 0.05
    assert (evaluator.turns, evaluator.spent) == (800, pytest.approx(2 * 5.0 + 800 * 0.5))


def test_what_was_refused_is_refused_again(tmp_path: Path) -> None:
    table = load(written(tmp_path / "made.json.gz", refused=["2x1"]))
    evaluator = Replayed(table, random.Random(0), 100.0)
    found = evaluator.start((Choice("threads", "2x1"),))
    assert found is not None
    assert (found.verdict, found.why) == ("failed", "it crashed")
    assert evaluator.left() == 95.0


def test_the_options_are_those_of_the_table_as_the_space_has_them(table: Table) -> None:
    found = [option.choice for option in table.options()]
    assert [choice.value for choice in found] == ["fused", "2x1", "1x2", "glibc-keep"]
    for option in table.options():
        assert option.joins == frozenset(by_name(option.choice.setting).joins)


@pytest.mark.parametrize("name", ["dltune", *search_rivals.RIVALS])
def test_every_search_finds_the_best_where_there_is_no_noise(table: Table, name: str) -> None:
    if name == "dltune":
        run = bench_search.climbing(table, 2000.0, random.Random(1))
    else:
        for package in {"Nelder-Mead": ["scipy"], "TPE": ["optuna"]}.get(name, []):
            pytest.importorskip(package)
        run = bench_search.rival(name, 1, table, 2000.0, random.Random(1))
    assert run.excess == pytest.approx(0.0, abs=1e-4)
    assert run.seconds < 2000.0


@pytest.mark.parametrize("budget", [1.0, 10.0, 20.0, 60.0])
def test_no_search_spends_much_more_than_its_budget(table: Table, budget: float) -> None:
    for run in (
        bench_search.climbing(table, budget, random.Random(1)),
        bench_search.rival("random", 3, table, budget, random.Random(1)),
    ):
        assert run.seconds <= budget + 5.0 + 0.5 + 2 * 2.5
        assert run.excess >= 0


def test_of_what_was_not_recorded_the_largest_part_that_was_counts(table: Table) -> None:
    memory, norm, threads = (
        Choice("allocator", "glibc-keep"),
        Choice("batch_norm", "fused"),
        Choice("threads", "2x1"),
    )
    alone = {(): 1.0, (memory,): 0.8, (norm,): 0.9, (threads,): 0.95}
    known = dataclasses.replace(table, recorded=alone | {(memory, norm): 0.85})
    assert known.ratio((memory, norm, threads)) == pytest.approx(0.85 * 0.95)
    assert known.best == (memory, threads)
    with pytest.raises(KeyError):
        known.ratio((Choice("threads", "1x2"),))


def test_what_was_not_recorded_is_the_product_of_what_was(tmp_path: Path, table: Table) -> None:
    file = written(tmp_path / "made.json.gz", refused=["1x2"])
    data = json.loads(gzip.decompress(file.read_bytes()))
    for batch in data["batches"]:  # each value alone
        kept = [n for n, one in enumerate(batch["candidates"]) if len(one) < 2]
        batch["candidates"] = [batch["candidates"][n] for n in kept]
        batch["steps"] = [[steps[n] for n in kept] for steps in batch["steps"]]
        batch["refused"] = [one for one in batch["refused"] if len(one["candidate"]) == 1]
    file.write_bytes(gzip.compress(json.dumps(data).encode()))
    alone = load(file)
    assert len(alone.recorded) == 4
    assert alone.best == table.best
    assert alone.ratio(alone.best) == pytest.approx(0.85 * 0.9 * 0.95, rel=1e-5)
    evaluator = Replayed(alone, random.Random(0), 100.0)
    assert evaluator.start(alone.best) is None
    fails = (Choice("batch_norm", "fused"), Choice("threads", "1x2"))
    refused = evaluator.start(fails)
    assert refused is not None
    assert refused.why == "it crashed"

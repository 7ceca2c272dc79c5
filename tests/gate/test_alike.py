"""Both sides of a round begin alike, and addresses are drawn anew in each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import decided
import pytest

from dltune.base.errors import UsageError
from dltune.gate import checkouts as worktrees
from dltune.gate import commands
from dltune.gate import fairness as module
from dltune.gate.checkouts import Side, in_checkout
from dltune.gate.fairness import alike
from dltune.gate.limits import Config, Limit
from dltune.gate.measurement import measure
from dltune.system import memory

SIDES = [Side(name, name, ("python", "train.py"), Path()) for name in ("base", "head")]
TIME = (Limit("time", ratio=1.1),)
KEPT = Config(allocator="glibc-keep")
WRITE = (
    "import os, sys\n"
    "told = {k: v for k, v in os.environ.items()}\n"
    "open(sys.argv[1], 'a').write(repr((told, hash('a'), id(object()))) + '\\n')\n"
)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONHASHSEED", "GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)


def given(config: Config | None = None, kind="whole", limits=TIME):
    return alike(config or Config(), kind, limits, decided.HERE, SIDES)


def test_a_seed_is_drawn_for_each_round() -> None:
    variables, notes = given()
    seeds = {variables()["PYTHONHASHSEED"] for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= int(seed) < 2**32 for seed in seeds)
    assert notes == []


def test_one_side_alone_is_measured_as_it_is() -> None:
    variables, notes = alike(Config(), "whole", TIME, decided.HERE, SIDES[:1])
    assert (variables(), notes) == ({}, [])


def test_each_has_its_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    variables, notes = given(Config(hash_seed="as-found"))
    assert (variables(), notes) == ({}, [])
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert "PYTHONHASHSEED" not in given()[0]()


@pytest.mark.skipif(memory.glibc() is None, reason="not glibc")
def test_the_allocator_keeps_what_is_freed() -> None:
    tunables = given(KEPT)[0]()["GLIBC_TUNABLES"].split(":")
    assert "glibc.malloc.trim_threshold=4294967296" in tunables


@pytest.mark.parametrize(
    ("kind", "metric", "left"),
    [
        ("whole", "page_faults", True),
        ("whole", "peak_bytes", True),
        ("steps", "page_faults", True),
        ("steps", "peak_bytes", False),
    ],
)
def test_what_it_would_change_is_measured_without_it(kind, metric, left) -> None:
    variables, notes = given(KEPT, kind, (*TIME, Limit(metric, ratio=1.1)))
    assert ("GLIBC_TUNABLES" not in variables()) == left
    assert (notes == [f"the allocator stays unchanged because {metric} is measured"]) == left


def test_the_user_s_allocator_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    variables, notes = given(KEPT)
    assert "GLIBC_TUNABLES" not in variables()
    assert notes == ["the allocator stays unchanged because the user sets it: MALLOC_ARENA_MAX=2"]


def test_an_allocator_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "find_allocator", lambda name, environment: None)
    with pytest.raises(UsageError, match="jemalloc"):
        given(Config(allocator="jemalloc"))


def test_fixed_addresses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "text", lambda path: "0")
    assert "address randomisation is off" in given()[1][0]


def test_two_checkouts_begin_alike(project: Path, tmp_path: Path) -> None:
    """Environments of one size, since the stack begins behind them; addresses drawn anew."""
    repo = worktrees.repository(project)
    commits = {n: worktrees.commit_of(repo, r) for n, r in (("base", "base"), ("head", "HEAD"))}
    told = tmp_path / "told"
    command = [sys.executable, "-c", WRITE, str(told)]
    with worktrees.checkouts(repo, commits) as checkouts:
        both = [in_checkout(n, n, checkouts[n], command) for n in commits]
        config = Config(limits=TIME, timed="whole", disturbed="keep")
        measure(both, decided.HERE, config, tell=lambda _: None, rounds=3)
    rounds = [eval(line) for line in told.read_text().splitlines()][2:]  # after the first runs
    assert len(rounds) == 6
    for first, second in zip(rounds[::2], rounds[1::2], strict=True):
        assert first[1] == second[1], "one hash seed"
        assert _size(first[0]) == _size(second[0])
    assert len({hashed for _, hashed, _ in rounds}) == 3
    assert len({address for *_, address in rounds}) > 1


def _size(environment: dict[str, str]) -> int:
    return sum(len(name) + len(value) + 2 for name, value in environment.items())


def test_rounds_of_a_disturbed_machine_are_taken_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both sides of them; what they measured is gone."""
    ran: list[str] = []

    def run(side: Side, **more) -> dict[str, float]:
        ran.append(side.name)
        return {"time": 1.0 + len(ran)}

    monkeypatch.setattr(commands, "run", run)
    answers = iter([True, False, False])
    monkeypatch.setattr("dltune.gate.fairness.Disturbance.turn", lambda self: lambda: next(answers))
    sides = [Side(name, name, ["true"], tmp_path) for name in ("base", "head")]
    config = Config(limits=TIME, timed="whole")
    monkeypatch.setattr("dltune.gate.commands.look", lambda *_, **__: ())
    found = measure(sides, decided.HERE, config, tell=lambda _: None, rounds=2)
    assert len(ran) == 6
    assert sorted(ran[:2]) == ["base", "head"]
    values = [*found.samples["time"].base, *found.samples["time"].head]
    assert min(values) > 3.0
    assert len(values) == 4

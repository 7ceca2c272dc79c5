from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.documents.bench import SCHEMA, Bench, Setting, Summary, Turn, check, load
from dltune.documents.profile import Samples
from dltune.errors import UsageError

TURN = Turn(0, (0.1, 0.2), 0.3, 4.0, 5.0)
SUMMARY = Summary(Samples(2, 0.1, 0.15, 0.2), None, None, 0.3, 4.0, 5.0)
SETTING = Setting("recommended", 2, 1, None, 0.1, (TURN,), SUMMARY)
BENCH = Bench(
    schema=SCHEMA,
    created="2026-01-01",
    dltune="0",
    partial=None,
    command=("python", "train.py"),
    machine=synthetic.machine(2),
    tensorflow="2.21.0",
    plan="00",
    strategy="s1+s2",
    reference="recommended",
    rounds=1,
    settings=(SETTING,),
)


def with_setting(**changes: object) -> Bench:
    return msgspec.structs.replace(BENCH, settings=(msgspec.structs.replace(SETTING, **changes),))


def with_turn(**changes: object) -> Bench:
    return with_setting(turns=(msgspec.structs.replace(TURN, **changes),))


def test_a_bench_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_bytes(msgspec.json.encode(BENCH))
    assert load(path) == BENCH


@pytest.mark.parametrize(
    ("bench", "told"),
    [
        (msgspec.structs.replace(BENCH, rounds=0), "rounds: 0 is below 1"),
        (msgspec.structs.replace(BENCH, reference="x"), "reference: 'x' is none of the settings"),
        (
            msgspec.structs.replace(BENCH, settings=(SETTING, SETTING)),
            "'recommended' is there 2 times",
        ),
        (with_setting(intra=0), "intra: 0 is below 1"),
        (with_setting(predicted=float("nan")), "predicted: nan"),
        (with_setting(summary=None), "a summary belongs to turns"),
        (with_setting(turns=(TURN, TURN)), "a second turn in round 0"),
        (with_turn(round=1), "round: 1 is not below 1 rounds"),
        (with_turn(steps=()), "at least one step"),
        (with_turn(steps=(0.0,)), "0.0 is not a time above 0"),
        (with_turn(cpu_seconds=-1.0), "cpu_seconds: -1.0 is negative"),
    ],
)
def test_what_cannot_be_true_is_told_with_its_place(
    tmp_path: Path, bench: Bench, told: str
) -> None:
    assert any(told in fault for fault in check(bench))
    path = tmp_path / "bench.json"
    path.write_bytes(msgspec.json.encode(bench))
    if "nan" not in told:
        with pytest.raises(UsageError, match="not usable"):
            load(path)

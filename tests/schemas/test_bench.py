from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.bench import SCHEMA, Bench, Setting, Summary, Turn, load
from dltune.schemas.profile import Framework, Samples

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
    framework=Framework("tensorflow", "2.21.0", "", ""),
    plan="00",
    strategy="per-type",
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
        (msgspec.structs.replace(BENCH, rounds=0), "rounds must be at least 1, got 0"),
        (
            msgspec.structs.replace(BENCH, reference="x"),
            "reference must be one of the settings, got 'x'",
        ),
        (
            msgspec.structs.replace(BENCH, settings=(SETTING, SETTING)),
            "settings must contain each name only once, got 'recommended' 2 times",
        ),
        (with_setting(intra=0), ".intra must be at least 1, got 0"),
        (
            with_setting(predicted=float("nan")),
            ".predicted must be finite and not negative, got nan",
        ),
        (with_setting(summary=None), ".summary must be null exactly when turns is empty"),
        (
            with_setting(turns=(TURN, TURN)),
            ".turns must contain each round only once, got 0 2 times",
        ),
        (with_turn(round=1), ".round must be at least 0 and below 1 (the number of rounds), got 1"),
        (with_turn(steps=()), ".turns[0].steps must not be empty"),
        (with_turn(steps=(0.0,)), ".steps[0] must be finite and above 0, got 0.0"),
        (with_turn(scheduling=(0.5, 1.5)), ".scheduling[1] must be at most 1, got 1.5"),
        (with_turn(cpu_seconds=-1.0), ".cpu_seconds must be finite and not negative, got -1.0"),
    ],
)
def test_what_cannot_be_true_is_told_with_its_place(
    tmp_path: Path, bench: Bench, told: str
) -> None:
    assert any(told in fault for fault in struct_faults("", bench))
    path = tmp_path / "bench.json"
    path.write_bytes(msgspec.json.encode(bench))
    if "nan" not in told:
        with pytest.raises(UsageError, match="is invalid"):
            load(path)

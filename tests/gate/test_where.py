"""What got slower stands out of what did not."""

from __future__ import annotations

import random
import statistics
import sys
from pathlib import Path

import decided
import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.gate import checkouts, formats, measurement
from dltune.gate.comparison import ab
from dltune.gate.formats import where
from dltune.gate.limits import Config, Limit
from dltune.gate.measurement import slower
from dltune.schemas import gate as doc
from dltune.schemas.gate import Slower
from dltune.system import topology
from dltune.system.checks.software import can_use_py_spy

# in short turns: whichever samples a busy machine misses, each function has its share of the rest;
# where py-spy looks (it starts the job), for so long that it comes in time
JOB = """
import os, time

def load():
    time.sleep({load})

def train():
    time.sleep(0.02)

def is_sampled():
    with open(f"/proc/{{os.getppid()}}/comm") as file:
        return file.read() == "py-spy\\n"

until = time.monotonic() + 3.0 * is_sampled()
turns = 0
while turns < 10 or time.monotonic() < until:
    load()
    train()
    turns += 1
"""


def rounds(count: int, lot: random.Random, **seconds: float) -> list[measurement.Amounts]:
    return [
        {"op": {name: value * lot.gauss(1.0, 0.05) for name, value in seconds.items()}}
        for _ in range(count)
    ]


def test_what_differs_is_told_and_noise_is_not() -> None:
    lot = random.Random(5)
    base, head = rounds(6, lot, a=1.0, b=1.0, c=1.0), rounds(6, lot, a=1.0, b=2.0, c=1.0)
    ((kind, what, (before, after, low, high)),) = slower(base, head)
    assert (kind, what) == ("op", "b")
    assert (before, after) == (pytest.approx(1, abs=0.1), pytest.approx(2, abs=0.2))
    assert 0 < low < after - before < high


def test_the_most_costly_comes_first_and_what_is_new_counts() -> None:
    lot = random.Random(5)
    base, head = rounds(6, lot, a=1.0, b=1.0), rounds(6, lot, a=1.5, b=1.0, new=2.0)
    assert [what for _, what, _ in slower(base, head)] == ["new", "a"]


def test_little_beside_much_is_left_out() -> None:
    base: list[measurement.Amounts] = [{"op": {"a": 1.0, "b": 1.0}} for _ in range(6)]
    head: list[measurement.Amounts] = [{"op": {"a": 9.0, "b": 1.01}} for _ in range(6)]
    assert [what for _, what, _ in slower(base, head)] == ["a"]


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_rounds_tell_nothing(count: int) -> None:
    lot = random.Random(5)
    assert list(slower(rounds(count, lot, a=1.0), rounds(count, lot, a=2.0))) == []


def test_seldom_where_nothing_changes() -> None:
    """What is told of unchanged code, of some hundred ops, in gates that failed by chance."""
    lot = random.Random(7)
    ops = {f"op{number}": 1.0 for number in range(100)}
    told = sum(bool(list(slower(rounds(4, lot, **ops), rounds(4, lot, **ops)))) for _ in range(200))
    assert told / 200 < 0.1


def test_a_kind_that_was_not_seen_in_a_round_does_not_count_there() -> None:
    base: list[measurement.Amounts] = [{"op": {"a": 1.0}, "python": {}} for _ in range(3)]
    head: list[measurement.Amounts] = [
        {"op": {"a": 1.0}, "python": {"f": 1.0 - i / 100}} for i in range(3)
    ]
    missing: list[measurement.Amounts] = [{"op": {"a": 1.0}}]
    ((kind, what, (before, after, *_)),) = slower(base + missing, head + missing)
    assert (kind, what) == ("python", "f")
    assert (before, after) == (0.0, pytest.approx(0.99))


@pytest.mark.parametrize(
    ("verdict", "asked"),
    [
        (decided.verdict(outcome="fail"), True),
        (decided.verdict(outcome="pass"), False),
        (decided.verdict("ops:*", outcome="fail"), True),
        (decided.verdict("startup", outcome="fail"), False),
        (decided.verdict("plan_step_time", outcome="fail"), False),
        (decided.verdict(outcome="fail", over="value"), False),
        (decided.verdict("page_faults", outcome="fail", unit="count"), False),
    ],
)
def test_it_is_asked_where_a_ratio_of_times_has_failed(verdict: doc.Verdict, asked: bool) -> None:
    assert measurement.asked([verdict]) == asked


@pytest.mark.skipif(can_use_py_spy()[0] is None, reason="py-spy cannot look here")
def test_a_function_of_a_command_timed_whole(git, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for load in (0, 0.1):
        (project / "job.py").write_text(JOB.format(load=load))
        git("add", ".")
        git("commit", "-qm", "job")
    config = Config(timed="whole", confidence=0.5, limits=(Limit("time", ratio=1.2),))
    found, _ = ab(
        project, "HEAD~1", [sys.executable, "job.py"], config, topology.local(), tell=lambda _: None
    )
    assert found.outcome == "fail"
    # intervals hold in 95 of 100 gates: what else is told by chance costs less
    first, *rest = found.slower
    assert (first.kind, first.what, first.changed) == ("python", "job.py:5 (load)", True)
    assert 0 < first.low < first.head - first.base < first.high
    assert all(0 < other.head - other.base < first.head - first.base for other in rest)
    # a share of what the command takes, and the largest, since it sleeps for most of the time
    (times,) = (one.values for one in found.measured["head"] if one.metric == "time")
    assert min(times) >= 10 * (0.1 + 0.02)
    assert 0 <= first.base < first.head <= statistics.median(times)


@pytest.mark.parametrize("name", decided.HOSTILE)
def test_it_is_shown_whatever_it_is_called(name: str) -> None:
    one = Slower("op", name, 0.001, 0.002, 0.0009, 0.0011, changed=True)
    result = decided.result(decided.verdict(outcome="fail"), slower=(one,))
    table = where(result)
    assert table is not None
    (row,) = table.rows
    assert row[2:] == ("1 ms", "2 ms", "1 ms", "900 us to 1.1 ms", "changed")
    text = formats.markdown(result)
    assert "slower parts of a step" in text
    assert "<script" not in text
    assert len(text.splitlines()) == len(formats.markdown(result).split("\n")) - 1


def test_it_comes_back_from_its_file() -> None:
    one = Slower("part", "python", 0.001, 0.002, 0.0009, 0.0011)
    result = decided.result(decided.verdict(outcome="fail"), slower=(one,))
    assert struct_faults("", result) == []
    assert msgspec.json.decode(msgspec.json.encode(result), type=doc.Result) == result
    bad = msgspec.structs.replace(result, slower=(msgspec.structs.replace(one, low=-1.0),))
    assert [fault.partition(":")[0] for fault in struct_faults("", bad)] != []


def test_files_that_the_change_touches(project: Path) -> None:
    repo = checkouts.repository(project)
    commits = (checkouts.commit_of(repo, "base"), checkouts.commit_of(repo, "HEAD"))
    assert "job.py" in checkouts.changed(repo, *commits)
    assert "inner/kept.txt" not in checkouts.changed(repo, *commits)

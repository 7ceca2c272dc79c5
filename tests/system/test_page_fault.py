from __future__ import annotations

import itertools
import resource
from types import SimpleNamespace

import pytest

from dltune.system import memory


def faults() -> int:
    """Of this thread so far, by the kernel's own account."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def test_a_fault_takes_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a second with each fault, and never else."""
    monkeypatch.setattr(memory, "time", SimpleNamespace(perf_counter=faults))
    assert 1 <= memory.fault_seconds() < 1.1


@pytest.mark.parametrize("interrupted", range(2 * memory.TURNS))
def test_other_work_in_one_of_the_turns_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, interrupted: int
) -> None:
    """In the first writes or in the second ones of a turn, whichever they are."""
    touches = itertools.count()

    def touch(_: object) -> float:
        number = next(touches)
        return (number == interrupted) + (2e-3, 1e-3)[number % 2]

    monkeypatch.setattr(memory, "_touch", touch)
    assert memory.fault_seconds() == pytest.approx(1e-3 / memory.PAGES)


def test_every_page_faults_once() -> None:
    """What is timed is faults: as many as pages were touched."""
    before = faults()
    memory.fault_seconds()
    assert faults() - before >= memory.PAGES * memory.TURNS

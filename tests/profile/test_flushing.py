from __future__ import annotations

import pytest
from told import execution

from dltune.profile.climb import Flushing

BASE, FLUSHED = 7, 8


def ran(flushing: Flushing, version: int, walls: list[float]) -> None:
    now = 0.0
    for number, wall in enumerate([*walls, 0.0]):
        flushing.add(execution(0, round(now * 1e9), [], number=number, version=version))
        now += wall


def test_the_flushed_steps_come_once_there_are_enough_of_the_others() -> None:
    flushing = Flushing(BASE, FLUSHED)
    ran(flushing, 3, [0.1] * 50)
    ran(flushing, BASE, [9.0, *[0.1] * 10])
    assert not flushing.turns(), "the first warms up, and a second is not over"
    flushing = Flushing(BASE, FLUSHED)
    ran(flushing, BASE, [9.0, *[0.1] * 20])
    assert (flushing.turns(), flushing.turns()) == (True, False)
    assert (flushing.known, flushing.ratio()) == (False, None)
    ran(flushing, FLUSHED, [9.0, *[0.05] * 40])
    assert flushing.known
    ratio = flushing.ratio()
    assert ratio is not None
    assert (ratio.pairs, ratio.median) == (20, pytest.approx(0.5))
    assert ratio.low == ratio.high == pytest.approx(0.5)


def test_few_steps_are_enough_where_they_are_long() -> None:
    flushing = Flushing(BASE, FLUSHED)
    ran(flushing, BASE, [3.0, *[2.0, 3.0, 2.0, 2.0, 2.0]])
    assert flushing.turns()
    ran(flushing, FLUSHED, [3.0, *[2.0, 2.0, 3.0, 2.0, 2.0]])
    ratio = flushing.ratio()
    assert ratio is not None
    assert ratio.median == pytest.approx(1.0)
    assert ratio.low <= 1 <= ratio.high

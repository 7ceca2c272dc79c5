"""Ways to wait: which are tried, and which of equals is taken."""

from __future__ import annotations

import synthetic
import synthetic_ranks

from dltune.systems.ranks.allreduce.decide import NAMES, REST, ways
from dltune.systems.ranks.allreduce.measurements import YIELDING, calls, unobserved
from dltune.systems.ranks.allreduce.model import Model, Setting
from dltune.systems.ranks.allreduce.section import Sleeps
from dltune.systems.ranks.simulation.job import ORIGINAL, Method
from dltune.systems.ranks.simulation.simulate import Outcome


def start() -> Setting:
    profile = synthetic_ranks.profile(synthetic.machine(2))
    return Model(profile, calls(profile), unobserved(2, 2, "mpi")).original


def outcome(seconds: float) -> Outcome:
    return Outcome("", (seconds,), 0.0, 0.0, 0.0, 0.0, 1, 0, 1, 0, 0.0, 0.0)


def test_among_equals_the_sleep_that_was_best_when_tried() -> None:
    found = ways(NAMES, start(), ORIGINAL, lambda *_: outcome(0.05))
    assert {way.names: way.sleeps for way in found} == {
        ("non-blocking",): Sleeps(30e-6, None),
        ("global-sleep",): Sleeps(None, 1),
        ("non-blocking", "global-sleep"): Sleeps(30e-6, 1),
        ("yield",): None,
        ("rest",): Sleeps(None, None, REST),
        ("non-blocking", "rest"): Sleeps(30e-6, None, REST),
        ("yield", "rest"): Sleeps(None, None, REST),
    }
    (yielding,) = (way for way in found if way.names == ("yield",))
    assert yielding.setting.waiting == YIELDING
    assert yielding.method == ORIGINAL
    (both,) = (way for way in found if way.names == ("yield", "rest"))
    assert both.setting.waiting == YIELDING
    assert both.method.rest == REST


def test_the_shortest_step_decides() -> None:
    def predict(_: Setting, method: Method) -> Outcome:
        short = method.between_tests == 100e-6 or method.agree_every == 5
        return outcome(0.04 if short else 0.05)

    found = {
        way.names: way.sleeps
        for way in ways(("non-blocking", "global-sleep"), start(), ORIGINAL, predict)
    }
    assert found[("non-blocking",)] == Sleeps(100e-6, None)
    assert found[("global-sleep",)] == Sleeps(None, 5)
    assert ("yield",) not in found


def test_nothing_wanted_nothing_tried() -> None:
    assert ways((), start(), ORIGINAL, lambda *_: outcome(0.05)) == []

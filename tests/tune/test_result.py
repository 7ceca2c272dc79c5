"""A search's trials as a plan tells them."""

from __future__ import annotations

import math

import pytest
from simulated import Simulated, candidate, option

from dltune.base.documents import struct_faults
from dltune.schemas.bench import Trial
from dltune.schemas.settings import SettingsPlan, Untried
from dltune.tune.candidates import AS_GIVEN, Candidate
from dltune.tune.result import UNCONFIRMED, section
from dltune.tune.search import Search


def told(search: Search, partial: str | None = None) -> SettingsPlan:
    before = [Untried("xla", None, "excluded by --only or --without")]
    made = section(search, command=["train"], untried=before, seconds=60.0, partial=partial)
    assert not struct_faults("settings", made)
    return made


def product(**factors: float) -> Simulated:
    return Simulated(lambda found: math.prod(factors.get(c.setting, 1.0) for c in found))


def test_a_search_that_found_something() -> None:
    evaluator = product(a=0.8, b=1.3, threads=0.9)
    search = Search(evaluator, [option("a"), option("b"), option("threads")], candidate("threads"))
    search.run()
    made = told(search)
    assert made.chosen == candidate("a", "threads")
    assert made.kind == "rounding"
    assert made.whole is not None
    assert made.whole.ratio == pytest.approx(0.72)
    assert made.whole.high is not None
    assert made.whole.high < 1
    assert made.recommended is not None
    assert made.recommended.ratio == pytest.approx(0.8)
    verdicts = {(e.choices, e.beside): e.verdict for e in made.effects}
    assert verdicts[candidate("b"), AS_GIVEN] == "hurts"
    assert made.untried == (Untried("xla", None, "excluded by --only or --without"),)
    assert made.partial is None


def test_a_removal_is_told_as_what_the_setting_does() -> None:
    def seconds(found: Candidate) -> float:
        names = {choice.setting for choice in found}
        return 0.6 if "b" in names else 0.9 if "a" in names else 1.0

    evaluator = Simulated(seconds, room=2)
    search = Search(evaluator, [option("a"), option("b")])
    search.run()
    made = told(search)
    assert made.chosen == candidate("b")
    effect = next(e for e in made.effects if e.beside == candidate("b"))
    assert effect.choices == candidate("a")
    assert effect.verdict == "no difference seen"


def test_what_the_final_rounds_did_not_confirm() -> None:
    turns = 0

    def seconds(found: Candidate) -> float:
        nonlocal turns
        turns += bool(found)
        return 0.7 if found and turns <= 9 else 1.0

    search = Search(Simulated(seconds), [option("a")])
    search.run()
    made = told(search)
    assert made.chosen == AS_GIVEN
    assert made.kind == "exact"
    assert made.whole is None
    assert made.effects[-1].why == UNCONFIRMED


def test_nothing_helps_and_the_recommendation_is_still_told() -> None:
    search = Search(product(threads=1.25), [option("threads")], candidate("threads"))
    search.run()
    made = told(search)
    assert made.chosen == AS_GIVEN
    assert made.recommended is not None
    assert made.recommended.ratio == pytest.approx(0.8)


def test_without_the_recommendation_among_the_choices_nothing_is_told_of_it() -> None:
    search = Search(product(a=0.8), [option("a")])
    search.run()
    made = told(search)
    assert made.whole is not None
    assert made.recommended is None


def test_a_few_rounds_of_the_recommendation_are_not_told_as_its_figure() -> None:
    search = Search(product(), [option("threads")], candidate("threads"))
    search.trials.append(Trial(candidate("threads"), AS_GIVEN, "undecided", (1.8,), "cut short"))
    made = told(search)
    assert made.recommended is None
    assert made.effects[0].measured is not None


def test_of_a_trial_that_was_taken_up_the_last_rounds_are_told() -> None:
    search = Search(product(), [option("a")])
    first = Trial(candidate("a"), AS_GIVEN, "no difference seen", (0.97,) * 12, "")
    search.trials += [first, Trial(candidate("a"), AS_GIVEN, "helps", (0.97,) * 20, "")]
    (effect,) = told(search).effects
    assert effect.verdict == "helps"
    assert effect.measured is not None
    assert effect.measured.rounds == 20
    search.trials[1] = Trial(candidate("a"), AS_GIVEN, "undecided", (0.97,) * 14, "cut short")
    (effect,) = told(search).effects
    assert effect.verdict == "no difference seen"


def test_what_there_was_no_time_for() -> None:
    evaluator = Simulated(lambda _: 1.0, budget=450)
    search = Search(evaluator, [option(name) for name in "abcdefgh"])
    search.run()
    made = told(search)
    assert search.exhausted
    late = [untried for untried in made.untried if untried.setting != "xla"]
    assert late
    assert {untried.why for untried in late} == {"the budget was spent"}

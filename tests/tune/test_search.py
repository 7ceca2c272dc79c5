"""The search where what every candidate takes is known."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import Simulated, candidate, option

from dltune.plan.settings.show import in_words
from dltune.schemas.bench import Trial
from dltune.schemas.profile import Framework
from dltune.tune.candidates import AS_GIVEN, Candidate, Refused
from dltune.tune.result import section
from dltune.tune.search import (
    DECIDING,
    FINAL,
    LEAST,
    MARGIN,
    BudgetTooSmallError,
    NothingToMeasureError,
    Search,
)

NAMES = "abcdefg"
FACTORS = st.dictionaries(st.sampled_from(NAMES), st.floats(0.5, 2.0), min_size=1)
CRASH = Refused("failed", "exit code 134")


def product(factors: Mapping[str, float]) -> Callable[[Candidate], float]:
    """Each setting multiplies the step's time by its own factor."""
    return lambda found: math.prod(factors.get(c.setting, 1.0) for c in found)


def verdicts(search: Search) -> dict[str, str]:
    """Of each setting tried alone beside an incumbent."""
    found = {}
    for trial in search.trials:
        more = [c for c in trial.candidate if c not in trial.against]
        if len(more) == 1:
            found.setdefault(f"{more[0].setting}={more[0].value}", trial.verdict)
    return found


@given(factors=FACTORS, room=st.integers(2, 6))
@settings(deadline=None, max_examples=40)
def test_finds_all_that_helps_where_gains_multiply(factors: dict[str, float], room: int) -> None:
    evaluator = Simulated(product(factors), room=room)
    search = Search(evaluator, [option(name) for name in factors])
    search.run()
    chosen = {choice.setting for choice in search.chosen}
    assert chosen >= {name for name, factor in factors.items() if factor < 1 - MARGIN}
    assert not chosen & {name for name, factor in factors.items() if factor > 1 + MARGIN}
    assert not search.exhausted
    assert not search.untried()


def test_what_is_for_another_framework_is_left_out() -> None:
    torch = Framework("pytorch", "2.13.0", "", "")
    evaluator = Simulated(product({"a": 0.8, "b": 0.5}), framework=torch)
    theirs = dataclasses.replace(option("b"), framework="tensorflow")
    ours = dataclasses.replace(option("a"), framework="pytorch")
    search = Search(evaluator, [theirs, ours, option("c")])
    search.run()
    assert search.chosen == candidate("a")
    assert not any("b" in str(started) for started in evaluator.started)
    told = section(search, command=("job",), untried=(), seconds=1.0, partial=None)
    assert [(one.setting, one.why) for one in told.untried] == [
        ("b", "it applies only to TensorFlow jobs")
    ]


def test_a_recommendation_for_another_framework_is_left_out() -> None:
    """As 32x2 on two sockets is for PyTorch."""
    torch = Framework("pytorch", "2.13.0", "", "")
    evaluator = Simulated(product({"a": 0.8, "b": 0.5}), framework=torch)
    theirs = dataclasses.replace(option("b"), framework="tensorflow")
    search = Search(evaluator, [theirs, option("a")], candidate("b"))
    search.run()
    assert search.chosen == candidate("a")
    assert not any("b" in str(started) for started in evaluator.started)
    assert (
        section(search, command=("job",), untried=(), seconds=1.0, partial=None).recommended is None
    )


def test_what_stands_already_is_not_said_to_start() -> None:
    evaluator = Simulated(product({"a": 0.8, "b": 0.7}))
    phases: list[str] = []
    search = Search(
        evaluator, [option("a"), option("b")], tell=lambda now: phases.append(now.phase)
    )
    search.run()
    starts = [phase for phase in phases if phase.startswith("starting ")]
    assert starts == [f"starting {in_words(one)}" for one in evaluator.started]


@given(
    table=st.dictionaries(st.frozensets(st.sampled_from("abcd")), st.floats(0.3, 3.0)),
    budget=st.floats(100, 3000),
    room=st.integers(2, 6),
)
@settings(deadline=None, max_examples=60)
def test_never_slower_than_the_job_as_given(
    table: dict[frozenset[str], float], budget: float, room: int
) -> None:
    """However the settings act together, and whatever the budget."""

    def seconds(found: Candidate) -> float:
        return table.get(frozenset(c.setting for c in found), 1.0) if found else 1.0

    evaluator = Simulated(seconds, budget=budget, room=room)
    search = Search(evaluator, [option(name, joins="abcd") for name in "abcd"])
    with contextlib.suppress(BudgetTooSmallError):
        search.run()
    assert seconds(search.chosen) <= 1.0
    assert search.chosen == AS_GIVEN or any(t.candidate == search.chosen for t in search.trials)


@given(
    factors=st.dictionaries(st.sampled_from(NAMES), st.floats(0.7, 1.4), min_size=1),
    budget=st.floats(50, 2000),
)
@settings(deadline=None, max_examples=40)
def test_the_budget_holds(factors: dict[str, float], budget: float) -> None:
    """But for what is begun when it ends: one more round, and a start."""
    evaluator = Simulated(product(factors), budget=budget)
    search = Search(evaluator, [option(name) for name in factors], candidate("a"))
    try:
        search.run()
    except BudgetTooSmallError as error:
        again = Simulated(product(factors), budget=budget + error.needed + 1)
        search = Search(again, [option(name) for name in factors], candidate("a"))
        search.run()
        assert search.trials
        return
    slowest = 4 * math.prod(max(factor, 1) for factor in factors.values())
    assert evaluator.left() > -(evaluator.start_seconds * 2 + slowest * 4)


def test_time_kept_for_final_rounds_is_for_trials_while_there_is_no_gain_to_judge_again() -> None:
    """Starts take so long that there is time for `b` beside a few final rounds alone."""
    evaluator = Simulated(product({"b": 0.7}), budget=375, start_seconds=60)
    search = Search(evaluator, [option("a"), option("b")])
    search.run()
    assert [trial.candidate for trial in search.trials] == [candidate("a"), candidate("b")]
    assert search.chosen == candidate("b")
    assert search.final is not None
    assert len(search.final.whole) >= LEAST


def test_a_pair_that_helps_only_together() -> None:
    def seconds(found: Candidate) -> float:
        names = {choice.setting for choice in found}
        return 0.7 if names >= {"a", "b"} else 1.02 if names & {"a", "b"} else 1.0

    search = Search(Simulated(seconds), [option("a", joins="b"), option("c"), option("b")])
    search.run()
    assert search.chosen == candidate("a", "b")
    assert verdicts(search)["a=on"] in ("hurts", "no difference seen")


def test_pairs_are_tried_only_where_they_join_and_are_not_hopeless() -> None:
    factors = {"a": 1.05, "b": 1.05, "c": 2.4, "d": 1.05}
    options = [option("a", joins="bc"), option("b"), option("c"), option("d")]
    search = Search(Simulated(product(factors)), options)
    search.run()
    tried = {frozenset(c.setting for c in t.candidate) for t in search.trials}
    assert frozenset("ab") in tried
    assert frozenset("ac") not in tried
    assert frozenset("ad") not in tried


def test_what_no_longer_helps_goes() -> None:
    """b makes a superfluous."""

    def seconds(found: Candidate) -> float:
        names = {choice.setting for choice in found}
        return 0.6 if "b" in names else 0.9 if "a" in names else 1.0

    # no room for both at once, so that a is adopted before b is tried
    search = Search(Simulated(seconds, room=2), [option("a"), option("b")])
    search.run()
    assert candidate("a") in search.incumbents
    assert search.chosen == candidate("b")


def test_the_best_value_of_a_setting() -> None:
    times = {"1": 0.9, "2": 0.7, "3": 0.8}
    options = [option("a", value) for value in times]
    search = Search(Simulated(lambda found: times[found[0].value] if found else 1.0), options)
    search.run()
    assert search.chosen == candidate("a=2")


def test_a_crash_costs_its_start_and_nothing_else() -> None:
    evaluator = Simulated(
        product({"b": 0.8}), refuses=lambda c: CRASH if "a" in {x.setting for x in c} else None
    )
    search = Search(evaluator, [option("a"), option("b"), option("c")])
    search.run()
    assert verdicts(search) == {"a=on": "failed", "b=on": "helps", "c=on": "no difference seen"}
    assert search.chosen == candidate("b")
    assert next(t.why for t in search.trials if t.verdict == "failed") == "exit code 134"


def test_a_crash_in_a_round() -> None:
    evaluator = Simulated(product({"b": 0.8}), ends={candidate("a"): (3, CRASH)})
    search = Search(evaluator, [option("a"), option("b")])
    search.run()
    assert verdicts(search) == {"a=on": "failed", "b=on": "helps"}
    assert evaluator.turns[candidate("a")] == 3


def test_what_has_no_effect_is_not_measured_and_its_other_values_are_not_tried() -> None:
    idle = Refused("no effect", "no layer of that kind")
    evaluator = Simulated(product({}), refuses=lambda c: idle if c else None)
    hooks = [option("a", "4", acts=True), option("a", "16", acts=True)]
    search = Search(evaluator, hooks)
    search.run()
    assert verdicts(search) == {"a=4": "no effect"}
    assert [o.choice.value for o in search.untried()] == ["16"]


def test_what_had_nothing_to_act_on_is_tried_beside_what_gives_it_something() -> None:
    """As batches that are prefetched by workers, of which the job as given has none."""
    idle = Refused("no effect", "no worker loads data")

    def refuses(found: Candidate) -> Refused | None:
        names = {choice.setting for choice in found}
        return idle if "prefetch" in names and "workers" not in names else None

    options = [
        option("prefetch", joins=["workers"], acts=True),
        option("alone", acts=True),
        option("workers", acts=True),
    ]
    factors = product({"prefetch": 0.8, "workers": 0.5, "alone": 1.0})
    evaluator = Simulated(factors, refuses=refuses)
    search = Search(evaluator, options)
    search.run()
    assert search.chosen == candidate("prefetch", "workers")
    assert evaluator.started.count(candidate("prefetch")) == 1


def test_a_value_that_is_in_force_says_nothing_of_the_others() -> None:
    so = Refused("no effect", "the job is like that")
    evaluator = Simulated(
        lambda found: 0.8 if found else 1.0, refuses=lambda c: so if c == candidate("a=1") else None
    )
    search = Search(evaluator, [option("a", "1"), option("a", "2")])
    search.run()
    assert verdicts(search) == {"a=1": "no effect", "a=2": "helps"}


def test_an_incumbent_that_dies_gives_way_to_the_one_before() -> None:
    evaluator = Simulated(
        product({"a": 0.8, "b": 0.95}),
        room=2,
        ends={candidate("a"): (DECIDING + 3, CRASH)},
    )
    search = Search(evaluator, [option("a"), option("b"), option("c")])
    search.run()
    assert candidate("a") not in search.incumbents
    assert "undecided" in {trial.verdict for trial in search.trials}
    assert candidate("b") in search.incumbents


def test_a_job_that_cannot_be_measured() -> None:
    with pytest.raises(NothingToMeasureError, match="134"):
        Search(Simulated(product({}), refuses=lambda _: CRASH), [option("a")]).run()
    ends = {AS_GIVEN: (5, CRASH)}
    with pytest.raises(NothingToMeasureError, match="134"):
        Search(Simulated(product({}), ends=ends), [option("a")]).run()


@pytest.mark.parametrize("dies", [(), ("a",)])
def test_an_incumbent_that_ends_once_is_started_again(dies: tuple[str, ...]) -> None:
    evaluator = Simulated(
        product({"a": 0.8, "b": 0.9}), room=2, ends={candidate(*dies): (DECIDING + 3, CRASH)}
    )

    def start(one: Candidate) -> Refused | None:
        if evaluator.turns.get(one):
            evaluator.ends = {}
        return Simulated.start(evaluator, one)

    evaluator.start = start  # type: ignore[method-assign]
    search = Search(evaluator, [option("a"), option("b"), option("c")])
    search.run()
    assert search.chosen == candidate("a", "b")
    assert evaluator.started.count(candidate(*dies)) > 1


def test_the_recommendation_comes_first_and_is_compared_at_the_end() -> None:
    factors = {"threads": 0.9, "a": 0.8}
    evaluator = Simulated(product(factors))
    search = Search(evaluator, [option("a"), option("threads")], candidate("threads"))
    search.run()
    assert evaluator.started[:2] == [AS_GIVEN, candidate("threads")]
    assert evaluator.expected[0] == (AS_GIVEN, candidate("threads"))
    assert search.chosen == candidate("a", "threads")
    assert search.final is not None
    assert search.final.whole == pytest.approx([0.72] * len(search.final.whole))
    assert search.final.recommended == pytest.approx([0.8] * len(search.final.recommended))


def test_a_recommendation_that_cannot_start_is_tried_once() -> None:
    evaluator = Simulated(
        product({"a": 0.8}), refuses=lambda one: CRASH if one == candidate("threads") else None
    )
    search = Search(evaluator, [option("a"), option("threads")], candidate("threads"))
    search.run()
    assert verdicts(search)["threads=on"] == "failed"
    assert evaluator.started[:3] == [AS_GIVEN, candidate("threads"), candidate("a")]
    assert search.chosen == candidate("a")


def test_luck_in_the_search_is_found_out_in_the_final_rounds() -> None:
    """The first rounds of `a` are better than it is."""
    turns = {"a": 0}

    def seconds(found: Candidate) -> float:
        if not found:
            return 1.0
        turns["a"] += 1
        return 0.7 if turns["a"] <= DECIDING else 1.0

    search = Search(Simulated(seconds), [option("a")])
    search.run()
    assert verdicts(search) == {"a=on": "helps"}
    assert search.final is not None
    assert not search.final.held
    assert search.chosen == AS_GIVEN


@pytest.mark.parametrize("budget", [220, 230, 240, 300])
def test_a_trial_about_to_prove_a_gain_may_use_some_of_the_final_rounds(budget: float) -> None:
    uneven = itertools.cycle([0.7, 0.9, 1.02, 0.75])
    search = Search(Simulated(lambda f: next(uneven) if f else 1.0, budget=budget), [option("a")])
    search.run()
    assert verdicts(search) == {"a=on": "helps"}
    assert search.chosen == candidate("a")
    assert search.final is not None
    assert len(search.final.whole) >= LEAST
    assert (len(search.final.whole) < FINAL) == (budget < 300)


def given_up(seed: int, budget: float = 1e9) -> Search:
    """`a` gains 6 % where rounds differ by 9 %; seven others do nothing."""
    evaluator = Simulated(product({"a": 0.94}), noise=0.06, seed=seed, budget=budget)
    found = Search(evaluator, [option(name) for name in "bcdefgha"])
    found.run()
    return found


def test_what_was_given_up_though_it_may_help_is_taken_up_where_there_is_time() -> None:
    found = given_up(3)
    first, second = (t for t in found.trials if t.candidate == candidate("a"))
    assert first.verdict == "no difference seen"
    assert second.verdict == "helps"
    assert second.ratios[: len(first.ratios)] == first.ratios
    assert found.chosen == candidate("a")
    pairs = [(t.candidate, t.against) for t in found.trials]
    assert all(pairs.count(pair) <= 2 for pair in pairs)
    hurried = given_up(3, found.evaluator.spent / 2)
    pairs = [(t.candidate, t.against) for t in hurried.trials]
    assert len(pairs) == len(set(pairs))


@given(
    factors=st.dictionaries(st.sampled_from(NAMES), st.floats(0.6, 1.5), min_size=2),
    kept=st.integers(0, 12),
    room=st.integers(2, 6),
)
@settings(deadline=None, max_examples=40)
def test_a_search_taken_up_ends_as_one_that_was_not_interrupted(
    factors: dict[str, float], kept: int, room: int
) -> None:
    options = [option(name, joins="abc") for name in factors]
    whole = Search(Simulated(product(factors), room=room), options)
    whole.run()
    evaluator = Simulated(product(factors), room=room)
    past = whole.trials[:kept]
    again = Search(evaluator, options, past=past)
    again.run()
    assert again.chosen == whole.chosen
    assert {(t.candidate, t.against) for t in again.trials} == {
        (t.candidate, t.against) for t in whole.trials
    }
    measured = {t.candidate for t in past} - set(again.incumbents)
    assert not measured & set(evaluator.started)


@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_search_keeps_the_best_so_far(after: int) -> None:
    class InterruptedError(Exception):
        pass

    def keep(trial: Trial) -> None:
        if len(search.trials) == after:
            raise InterruptedError

    search = Search(Simulated(product({"a": 0.8}), room=2), [option(name) for name in "abcd"])
    search.keep = keep
    with pytest.raises(InterruptedError):
        search.run()
    assert search.chosen == candidate("a")
    assert search.final is None
    assert len(search.untried()) == 4 - after


def test_a_setting_that_does_nothing_is_seldom_said_to_do_something() -> None:
    """60 searches of two such settings, on a machine whose rounds differ by 3 %."""
    wrong = 0
    for seed in range(60):
        evaluator = Simulated(product({}), noise=0.03, seed=seed)
        search = Search(evaluator, [option(name) for name in "ab"])
        search.run()
        wrong += any(t.verdict != "no difference seen" for t in search.trials)
        assert search.chosen == AS_GIVEN or search.final is not None
    assert wrong <= 1

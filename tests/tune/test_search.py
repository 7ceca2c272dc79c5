"""The search in arenas where what every candidate takes is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.tune.candidate import AS_GIVEN, Candidate
from dltune.tune.search import BudgetTooSmallError, Search
from dltune.tune.verdict import MARGIN
from tests.tune.simulated import Simulated, option

NAMES = "abcdefg"


def product(factors: Mapping[str, float]) -> Callable[[Candidate], float]:
    """Each setting multiplies the step's time by its own factor."""
    return lambda found: math.prod(factors.get(c.setting, 1.0) for c in found)


FACTORS = st.dictionaries(st.sampled_from(NAMES), st.floats(0.5, 2.0), min_size=1)


@given(factors=FACTORS, room=st.integers(2, 6))
@settings(deadline=None, max_examples=40)
def test_finds_all_that_helps_where_gains_multiply(factors: dict[str, float], room: int) -> None:
    arena = Simulated(product(factors), room=room)
    search = Search(arena, [option(name) for name in factors])
    search.run()
    chosen = {choice.setting for choice in search.chosen}
    assert chosen >= {name for name, factor in factors.items() if factor < 1 - MARGIN}
    assert not chosen & {name for name, factor in factors.items() if factor > 1 + MARGIN}
    assert not search.exhausted and not search.untried()


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

    arena = Simulated(seconds, budget=budget, room=room)
    search = Search(arena, [option(name, joins="abcd") for name in "abcd"])
    try:
        search.run()
    except BudgetTooSmallError as error:
        assert error.needed > 0
    assert seconds(search.chosen) <= 1.0
    assert search.chosen == AS_GIVEN or any(t.candidate == search.chosen for t in search.trials)

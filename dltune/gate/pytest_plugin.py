"""A pytest plugin: with `--dltune-gate` a project's own tests check performance limits.

    def test_parsing_is_fast(dltune_gate):
        dltune_gate.within(2e-3, lambda: parse(TEXT))             # seconds

    def test_new_is_no_slower(dltune_gate):
        dltune_gate.ratio(1.05, new=lambda: new(x), base=lambda: old(x))

Without the option pytest skips such tests, because other work on the machine would disturb them.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dltune.gate.limits import Config, Limit
    from dltune.gate.verdicts import Sample
    from dltune.schemas.gate import Verdict

# calls of one turn take about so long together, so that the clock and a call's own noise are small
TURN_SECONDS = 0.005
# of the budget, for one limit of one test; where calls are long, as few rounds as decide anything
MOST_SECONDS = 10.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dltune")
    group.addoption(
        "--dltune-gate",
        action="store_true",
        help="check performance limits in tests that use the fixture dltune_gate",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The configuration is read before any test runs: its faults are errors of use."""
    if not config.getoption("--dltune-gate"):
        return
    from dltune.base.errors import UsageError
    from dltune.gate.limits import load

    try:
        config.stash[_CONFIG] = load(config.rootpath, None)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


class Gate:
    """Checks limits of functions with the confidence, budget and handling of undecided results
    that [tool.dltune.gate] sets. `verdicts` holds the verdicts of this test so far."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.verdicts: list[Verdict] = []

    def within(self, seconds: float, function: Callable[[], object]) -> Verdict:
        """Fail the test when the median call of `function` takes longer than `seconds`."""
        from dltune.gate.limits import Limit

        calls = _calls(function)
        return self._hold(
            Limit("time", at_most=seconds),
            lambda sample: sample.head.append(_turn(function, calls)),
        )

    def ratio(
        self, limit: float, *, new: Callable[[], object], base: Callable[[], object]
    ) -> Verdict:
        """Fail the test when `new` takes more than `limit` times as long as `base`. The two run in
        turns, in random order."""
        from dltune.gate.limits import Limit

        calls = {new: _calls(new), base: _calls(base)}

        def both(sample: Sample) -> None:
            turns = [(new, sample.head), (base, sample.base)]
            for function, values in random.sample(turns, 2):
                values.append(_turn(function, calls[function]))

        return self._hold(Limit("time", ratio=limit), both)

    def _hold(self, limit: Limit, take: Callable[[Sample], None]) -> Verdict:
        from dltune.gate.formats import sentence
        from dltune.gate.verdicts import held

        verdict = self._decided(limit, take)
        self.verdicts.append(verdict)
        if not held(verdict, self._config):
            pytest.fail(sentence(verdict), pytrace=False)
        return verdict

    def _decided(self, limit: Limit, take: Callable[[Sample], None]) -> Verdict:
        from dltune.gate.verdicts import Sample, judge, next_look
        from dltune.stats import least_rounds

        sample = Sample("time", "s")
        until = time.monotonic() + min(self._config.budget, MOST_SECONDS)
        least = least_rounds(self._config.confidence, paired=limit.ratio is not None)
        look = 1
        while True:
            take(sample)
            rounds = len(sample.head)
            spent = time.monotonic() >= until and rounds >= least
            if rounds < look and not spent:
                continue
            look = next_look(rounds)
            (verdict,) = judge(limit, sample, self._config.confidence)
            if verdict.outcome != "undecided" or spent:
                return verdict


_CONFIG: pytest.StashKey[Config] = pytest.StashKey()


@pytest.fixture
def dltune_gate(request: pytest.FixtureRequest) -> Gate:
    """Check performance limits (requires --dltune-gate)."""
    if _CONFIG not in request.config.stash:
        pytest.skip("performance limits are checked only with --dltune-gate")
    return Gate(request.config.stash[_CONFIG])


def _calls(function: Callable[[], object]) -> int:
    """So many calls make a turn; found out by calling, which also warms up."""
    function()
    once = max(_turn(function, 1), 1e-9)
    return max(1, math.ceil(TURN_SECONDS / once))


def _turn(function: Callable[[], object], calls: int) -> float:
    """Seconds of one call, over a turn of `calls`."""
    began = time.perf_counter()
    for _ in range(calls):
        function()
    return max((time.perf_counter() - began) / calls, 1e-12)

"""Functions of one process, called in turns until a limit is decided."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from dltune.documents.gate import Verdict
from dltune.gate.config import Config, Limit
from dltune.gate.verdict import Sample, judge, next_look

# calls of one turn take about so long together, so that the clock and a call's own noise are small
TURN_SECONDS = 0.005
# of the budget, for one limit of one test
MOST_SECONDS = 10.0


def within(seconds: float, function: Callable[[], object], config: Config) -> Verdict:
    """Whether the median call takes at most `seconds`."""
    calls = _calls(function)
    return _decide(
        Limit("time", at_most=seconds),
        Sample("time", "s"),
        lambda sample: sample.head.append(_turn(function, calls)),
        config,
    )


def ratio(
    limit: float, new: Callable[[], object], base: Callable[[], object], config: Config
) -> Verdict:
    """Whether `new` takes at most `limit` times as long as `base`."""
    calls = max(_calls(new), _calls(base))

    def both(sample: Sample) -> None:
        turns = [(new, sample.head), (base, sample.base)]
        for function, values in random.sample(turns, 2):
            values.append(_turn(function, calls))

    return _decide(Limit("time", ratio=limit), Sample("time", "s"), both, config)


def _decide(
    limit: Limit, sample: Sample, take: Callable[[Sample], None], config: Config
) -> Verdict:
    until = time.monotonic() + min(config.budget, MOST_SECONDS)
    look = 1
    while True:
        take(sample)
        rounds = len(sample.head)
        spent = time.monotonic() >= until
        if rounds < look and not spent:
            continue
        look = next_look(rounds)
        (verdict,) = judge(limit, sample, config.confidence)
        if verdict.outcome != "undecided" or spent:
            return verdict


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

"""The search for a short step: chains at several temperatures that hand their strategies on.

Each walks as FlexFlow's does (paper, section 6). After every round neighbours in temperature
exchange theirs by Metropolis' rule (parallel tempering: Geyer, 1991), and from time to time those
that lag far behind go on from the best. The place of a chain and its neighbours there have no
influence: with a budget in proposals the same seed gives the same strategy on any number of
processes.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dltune.systems.parallelism.model.baselines import random as any_strategy
from dltune.systems.parallelism.model.engine import (
    FOREVER,
    NEVER,
    Chain,
    Walk,
)
from dltune.systems.parallelism.model.problem import Problem, Strategy
from dltune.systems.parallelism.model.workers import Leg, Workers

TEMPERATURES = (0.0003, 0.0006, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
LEG = 300  # proposals that a chain makes in a round at least
ROUNDS = 32  # at most
LAG = 4  # rounds between those in which who lags goes on from the best
FAR = 8.0  # temperatures above the best
LAST = 5  # of the room, this part is kept to try every neighbour of the best


@dataclass(frozen=True)
class Found:
    """`time`: nanoseconds of a step. `starts`: by name the strategies that the search began with,
    and theirs. `settled`: no other configuration of any one operator makes it shorter, which the
    search had room to try."""

    strategy: Strategy
    time: int
    starts: Mapping[str, tuple[Strategy, int]]
    proposals: int
    seconds: float
    settled: bool


def search(
    problem: Problem,
    starts: Mapping[str, Strategy],
    workers: Workers,
    *,
    seed: int,
    proposals: int | None = None,
    seconds: float = 0.0,
) -> Found:
    """`starts`: strategies by name, one at least. It ends after so many `proposals` if these are
    given, else after `seconds`, of which half without a gain are enough (paper, section 6.2)."""
    began = time.monotonic()
    chance = random.Random(seed)
    looks = workers.walk([(start, Chain(0, proposals=0)) for start in starts.values()])
    times = [walk.best_time for walk in looks]
    compared = dict(zip(starts, zip(starts.values(), times, strict=True), strict=True))
    best, least = min(compared.values(), key=lambda one: one[1])
    gained = time.monotonic() - began
    if proposals is None:
        room = seconds * workers.count / statistics.fmean(walk.seconds for walk in looks)
    else:
        room = proposals
    count = int(min(max(room / LEG, 1), len(TEMPERATURES)))
    rounds = int(min(max(room / LEG / count, 1), ROUNDS))
    # one after the other as many as do not walk at the same time
    slice = seconds * (1 - 1 / LAST) / rounds / -(-count // workers.count)
    current = [strategy for strategy, _ in sorted(compared.values(), key=lambda one: one[1])]
    current = current[:count]
    while len(current) < count:
        current.append(any_strategy(problem, chance.randrange(2**32)))
    done = 0
    whole = None if proposals is None else proposals - proposals // LAST
    for number in range(rounds):
        now = time.monotonic() - began
        if whole is None and (now > seconds * (1 - 1 / LAST) or now > max(seconds / 2, 2 * gained)):
            break
        share = FOREVER if whole is None else (whole - done) // (rounds - number) // count
        legs: list[Leg] = []
        for strategy, temperature in zip(current, TEMPERATURES, strict=False):
            legs.append((strategy, Chain(chance.randrange(2**63), temperature, share, slice)))
        walks = workers.walk(legs)
        done += sum(walk.proposals for walk in walks)
        shortest = min(walks, key=lambda walk: walk.best_time)
        if shortest.best_time < least:
            best, least = shortest.best, shortest.best_time
            gained = time.monotonic() - began
        order = _exchanged(walks, chance)
        current = [walk.current if walk.current_time < NEVER else best for walk in order]
        if number % LAG == LAG - 1:
            for at, walk in enumerate(order):
                if walk.current_time > least * (1 + FAR * TEMPERATURES[at]):
                    current[at] = best
    share = FOREVER if proposals is None else proposals - done
    rest = max(seconds - (time.monotonic() - began), seconds / LAST)
    (last,) = workers.walk([(best, Chain(0, 0.0, share, rest, moves="every"))])
    if last.best_time < least:
        best, least = last.best, last.best_time
    return Found(
        *(best, least, compared, done + last.proposals),
        *(time.monotonic() - began, last.settled),
    )


def _exchanged(walks: Sequence[Walk], chance: random.Random) -> list[Walk]:
    """From the hottest on each with the next colder one: always where that is the longer, else with
    the probability exp(difference of times x difference of inverse temperatures)."""
    order = list(walks)
    for hot in range(len(order) - 1, 0, -1):
        longer = math.log(order[hot].current_time / order[hot - 1].current_time)
        colder = 1 / TEMPERATURES[hot - 1] - 1 / TEMPERATURES[hot]
        if chance.random() < math.exp(min(0.0, -longer * colder)):
            order[hot - 1], order[hot] = order[hot], order[hot - 1]
    return order

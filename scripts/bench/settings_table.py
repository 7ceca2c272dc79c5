"""Recorded step times of combinations of settings, and an evaluator that draws from them.

A batch of a recording is a table of rounds and candidates. A step's logarithm is taken for the sum
of the candidate's own centre, what the machine did to that round, and the rest:

    log(seconds) = centre(candidate) + round(t) + rest(t, candidate)

Of a batch the centre's difference to that of the job as given is what a combination truly does.
Replayed, rounds come in the order in which they were recorded, batch by batch from a random place
on, so that a machine that drifts drifts; the rest of a candidate is drawn from its own. A process
that is started is a little faster or slower for its life: copies of one job, where they were
recorded, tell by how much.

A combination that was not recorded, though each of its choices was alone, is taken for the product
of its largest part that was recorded and of the rest: so spaces of more combinations than can ever
be recorded are searched too.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dltune.plan.settings.space import SPACE
from dltune.schemas.settings import Choice
from dltune.tune.candidates import AS_GIVEN, Candidate, Option, Refused

# of the decomposition; it stands still after a few
SWEEPS = 10


@dataclass(frozen=True)
class Batch:
    """In logarithms: `centres` by candidate, `rounds` in order, `rest` by candidate."""

    centres: Mapping[Candidate, float]
    rounds: tuple[float, ...]
    rest: Mapping[Candidate, tuple[float, ...]]


@dataclass(frozen=True)
class Table:
    """`recorded`: what a combination truly does, over the job as given. `lives`: how a process
    differs from others of the same job for as long as it lives, in logarithms."""

    about: str
    values: Mapping[str, Sequence[str]]
    batches: tuple[Batch, ...]
    recorded: Mapping[Candidate, float]
    refused: Mapping[Candidate, Refused]
    start_seconds: tuple[float, ...]
    turn_seconds: float
    lives: tuple[float, ...] = (0.0,)

    def ratio(self, candidate: Candidate) -> float:
        """Of one that was not recorded, the largest part that was times the rest. KeyError for one
        that is not known."""
        for size in range(len(candidate), 0, -1):
            for part in itertools.combinations(candidate, size):
                if part in self.recorded:
                    rest = tuple(choice for choice in candidate if choice not in part)
                    return self.recorded[part] * self.ratio(rest)
        return self.recorded[candidate]

    @functools.cached_property
    def best(self) -> Candidate:
        every = [
            [None, *(c for value in values if ((c := Choice(name, value)),) in self.recorded)]
            for name, values in self.values.items()
        ]
        chosen = (tuple(sorted(filter(None, one))) for one in itertools.product(*every))
        return min(chosen, key=self.ratio)

    @property
    def combinations(self) -> int:
        return math.prod(len(found) + 1 for found in self.values.values())

    @property
    def recommended(self) -> Candidate | None:
        """TensorFlow's recommendation of threads, the first of the space's."""
        found = self.values.get("threads")
        return (Choice("threads", found[0]),) if found else None

    def options(self) -> list[Option]:
        """All choices, in the space's order."""
        return [
            Option(Choice(setting.name, value), setting.kind, frozenset(setting.joins))
            for setting in SPACE
            for value in self.values.get(setting.name, ())
        ]


def load(path: Path, copies: Path | None = None) -> Table:
    """`copies`: a recording of one job many times, for `lives`."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    batches = tuple(_batch(one) for one in data["batches"])
    recorded: dict[Candidate, float] = {AS_GIVEN: 1.0}
    for batch in batches:
        for candidate, centre in batch.centres.items():
            recorded.setdefault(candidate, math.exp(centre - batch.centres[AS_GIVEN]))
    lives = (0.0,)
    if copies:
        lives = tuple(_lives(load(copies)))
    return Table(
        about=data["about"],
        values=data["values"],
        batches=batches,
        recorded=recorded,
        refused={
            _candidate(one["candidate"]): Refused(one["verdict"], one["why"])
            for batch in data["batches"]
            for one in batch["refused"]
        },
        start_seconds=tuple(s for one in data["batches"] for s in one["start_seconds"]),
        turn_seconds=statistics.fmean(one["turn_seconds"] for one in data["batches"]),
        lives=lives,
    )


def _candidate(plain: Mapping[str, str]) -> Candidate:
    return tuple(sorted(Choice(name, value) for name, value in plain.items()))


def _batch(data: Mapping[str, Any]) -> Batch:
    candidates = [_candidate(plain) for plain in data["candidates"]]
    logs = [[math.log(steps[i]) for steps in data["steps"]] for i in range(len(candidates))]
    rounds = [0.0] * len(data["steps"])
    centres = [0.0] * len(candidates)
    for _ in range(SWEEPS):
        for i, column in enumerate(logs):
            centres[i] = statistics.median(x - r for x, r in zip(column, rounds, strict=True))
        rounds = [
            statistics.median(
                column[t] - centre for column, centre in zip(logs, centres, strict=True)
            )
            for t in range(len(rounds))
        ]
    rest = {
        candidate: tuple(x - centre - r for x, r in zip(column, rounds, strict=True))
        for candidate, column, centre in zip(candidates, logs, centres, strict=True)
    }
    return Batch(dict(zip(candidates, centres, strict=True)), tuple(rounds), rest)


def _lives(copies: Table) -> list[float]:
    """How the copies' centres differ, less what medians of so many rounds differ by chance."""
    apart: list[float] = []
    chance: list[float] = []
    for batch in copies.batches:
        middle = statistics.fmean(batch.centres.values())
        apart += [centre - middle for centre in batch.centres.values()]
        # the variance of a median of normal values is pi/2 times that of their mean
        chance += [
            math.pi / 2 * statistics.pvariance(rest) / len(rest) for rest in batch.rest.values()
        ]
    found = statistics.pvariance(apart)
    real = max(0.0, found - statistics.fmean(chance))
    return [value * math.sqrt(real / found) if found else 0.0 for value in apart]


@dataclass
class Replayed:
    """`Evaluator` of a table. `budget`: seconds. Counts the starts and the turns."""

    table: Table
    lot: random.Random
    budget: float
    room: int = 6
    framework: None = field(default=None, init=False)  # any setting is tried
    starts: int = field(default=0, init=False)
    turns: int = field(default=0, init=False)
    spent: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._lives: dict[Candidate, float] = {}
        self._weather = self._rounds()
        self._rest = {
            candidate: rest
            for batch in self.table.batches
            for candidate, rest in batch.rest.items()
        }

    def left(self) -> float:
        return self.budget - self.spent

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Starts are replayed one after the other."""

    def start(self, candidate: Candidate) -> Refused | None:
        self.starts += 1
        self.spent += self.lot.choice(self.table.start_seconds)
        if refused := self.table.refused.get(candidate):
            return refused
        for part in ((choice,) for choice in candidate):
            if refused := self.table.refused.get(part):
                return refused
        try:
            self.table.ratio(candidate)
        except KeyError:
            return Refused("failed", "it was not recorded")
        self._lives[candidate] = self.lot.choice(self.table.lives)
        return None

    def round(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, float | Refused]:
        weather = next(self._weather)
        return {candidate: self._seconds(candidate, weather) for candidate in candidates}

    def drop(self, candidate: Candidate) -> None:
        del self._lives[candidate]

    def _seconds(self, candidate: Candidate, weather: float) -> float:
        self.turns += 1
        self.spent += self.table.turn_seconds
        rest = self.lot.choice(self._rest.get(candidate, self._rest[AS_GIVEN]))
        return self.table.ratio(candidate) * math.exp(weather + rest + self._lives[candidate])

    def _rounds(self) -> Iterator[float]:
        while True:
            rounds = self.lot.choice(self.table.batches).rounds
            middle = statistics.median(rounds)
            yield from (value - middle for value in rounds[self.lot.randrange(len(rounds)) :])

"""An evaluator without processes: what a candidate takes is a function, time is counted."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dltune.schemas.profile import Framework
from dltune.schemas.settings import Choice
from dltune.tune.candidates import Candidate, Option, Refused


def option(
    setting: str, value: str = "on", joins: Sequence[str] = (), *, acts: bool = False
) -> Option:
    return Option(Choice(setting, value), "rounding", frozenset(joins), acts)


def candidate(*names: str) -> Candidate:
    """The candidate of these settings, each of them on, or as in "name=value"."""
    pairs = [name.partition("=") for name in names]
    return tuple(sorted(Choice(name, value or "on") for name, _, value in pairs))


@dataclass
class Simulated:
    """`seconds` of a step of a candidate; `refuses` why one cannot start; `noise` is the spread of
    the logarithm of a turn's time. A start costs `start` seconds, a turn four steps."""

    seconds: Callable[[Candidate], float]
    budget: float = 1e9
    room: int = 6
    start_seconds: float = 20.0
    noise: float = 0.0
    refuses: Callable[[Candidate], Refused | None] = lambda _: None
    # the round in which a candidate ends, and how
    ends: Mapping[Candidate, tuple[int, Refused]] = field(default_factory=dict)
    seed: int = 0
    framework: Framework | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.spent = 0.0
        self.standing: list[Candidate] = []
        self.started: list[Candidate] = []
        self.expected: list[tuple[Candidate, ...]] = []
        self.turns: dict[Candidate, int] = {}

    def expect(self, candidates: Sequence[Candidate]) -> None:
        assert not set(candidates) & set(self.standing)
        self.expected.append(tuple(candidates))

    def start(self, candidate: Candidate) -> Refused | None:
        assert candidate not in self.standing
        self.started.append(candidate)
        self.spent += self.start_seconds
        if refused := self.refuses(candidate):
            return refused
        self.standing.append(candidate)
        assert len(self.standing) <= max(self.room, 2)
        return None

    def round(self, candidates: Sequence[Candidate]) -> dict[Candidate, float | Refused]:
        assert set(candidates) <= set(self.standing)
        return {candidate: self._turn(candidate) for candidate in candidates}

    def _turn(self, candidate: Candidate) -> float | Refused:
        self.turns[candidate] = self.turns.get(candidate, 0) + 1
        turn, refused = self.ends.get(candidate, (0, None))
        if refused and self.turns[candidate] >= turn:
            self.standing.remove(candidate)
            return refused
        seconds = self.seconds(candidate) * self._random.lognormvariate(0, self.noise)
        self.spent += 4 * seconds
        return seconds

    def drop(self, candidate: Candidate) -> None:
        self.standing.remove(candidate)

    def left(self) -> float:
        return self.budget - self.spent

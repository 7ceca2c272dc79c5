"""Comparisons of settings that take turns: the bench document, and the state of a search."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Annotated

import msgspec

from dltune.base import documents
from dltune.base.documents import (
    AMOUNT,
    FILLED,
    LABEL,
    POSITIVE,
    at_least,
    at_most,
    each,
    index,
    one_of,
    repeated,
)
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Framework, Samples
from dltune.schemas.settings import MEASURED, Choice, Verdict

SCHEMA = "dltune.bench/1"


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A turn of a setting.

    `round`: number of the round, counted from 0.
    `steps`: step times.
    `cpu_seconds`: CPU time per step of all processes of the job, the warm-up step included.
    `voluntary`, `involuntary`: context switches per step.
    `faults`: page faults per step; null if unknown.
    `scheduling`: per step, the efficiency E of overlapping transfers with ops (equation 3 of
      TicTac); empty if the plan orders no transfers.
    """

    round: int
    steps: Annotated[tuple[Annotated[float, POSITIVE], ...], FILLED]
    cpu_seconds: Annotated[float, AMOUNT]
    voluntary: Annotated[float, AMOUNT]
    involuntary: Annotated[float, AMOUNT]
    faults: Annotated[float | None, AMOUNT] = None
    scheduling: tuple[Annotated[float, at_most(1)], ...] = ()

    @property
    def median(self) -> float:
        """The turn's step in seconds."""
        return statistics.median(self.steps)


class Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step time divided by the step time of the reference in the same round. Below 1 is faster.

    `median`: median over the rounds.
    `low`, `high`: confidence interval of the true median.
    `confidence`: confidence level of the interval.
    `rounds`: number of rounds.
    """

    median: float
    low: float
    high: float
    confidence: float
    rounds: int


class Summary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Summary of a setting's turns; medians over the turns, per step.

    `step`: step time.
    `ratio`: step time relative to the reference; null for the reference.
    `efficiency`: T(1 core) / (cores * T), the median over rounds; null if no 1-core setting was
      measured.
    `cpu_seconds`: CPU time.
    `voluntary`, `involuntary`: context switches.
    """

    step: Samples
    ratio: Ratio | None
    efficiency: float | None
    cpu_seconds: float
    voluntary: float
    involuntary: float


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A setting of the comparison.

    `name`: name, such as `default`, `recommended`, `plan` or `4x1`.
    `intra`, `inter`: threads within an op and ops at the same time, as the framework created them.
    `cpus`: CPUs that the job was confined to; null for all allowed CPUs.
    `predicted`: step time predicted by the plan.
    `turns`: measured turns.
    `summary`: summary of the turns; null without turns.
    `choices`: settings outside the ops that were in force.
    """

    name: Annotated[str, LABEL]
    intra: Annotated[int, at_least(1)]
    inter: Annotated[int, at_least(1)]
    cpus: tuple[int, ...] | None
    predicted: Annotated[float | None, AMOUNT]
    turns: tuple[Turn, ...]
    summary: Summary | None
    choices: tuple[Choice, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        if (self.summary is None) != (not self.turns):
            yield "summary must be null exactly when turns is empty"
        yield from repeated("turns", "round", (turn.round for turn in self.turns))


class Bench(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One job under several settings that take turns. `dltune bench` writes it.

    Times are in seconds. A *step* lasts from one start of the job's main step graph to the next
    start. A *turn* is a few steps in a row; the first is a warm-up and is not counted. A *round*
    has one turn of every setting.

    `machine`: machine on which the job was measured.
    `framework`: framework that ran the job.
    `plan`: SHA-256 of the plan's content.
    `strategy`: strategy that the plan chose.
    `reference`: setting that ratios are relative to.
    `rounds`: number of rounds that were requested.
    `settings`: settings that were compared.
    """

    schema: str
    created: str
    dltune: str
    partial: str | None
    command: tuple[str, ...]
    machine: Machine
    framework: Framework
    plan: str
    strategy: str
    reference: str
    rounds: Annotated[int, at_least(1)]
    settings: tuple[Setting, ...]

    def relation_faults(self) -> Iterator[str]:
        names = [setting.name for setting in self.settings]
        yield from repeated("settings", "name", names)
        yield from one_of(names, "the settings").of("", self, "reference")
        for here, setting in each("settings", self.settings):
            for at, turn in each(f"{here}.turns", setting.turns):
                yield from index(self.rounds, "rounds").of(at, turn, "round")


load = documents.reader(Bench, SCHEMA)


TUNE_SCHEMA = "dltune.tune/1"


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A candidate compared with the best settings at that time.

    `candidate`: settings of the candidate.
    `against`: best settings at that time.
    `verdict`: result of the comparison.
    `ratios`: one ratio per round.
    `why`: explanation of the verdict.
    """

    candidate: tuple[Choice, ...]
    against: tuple[Choice, ...]
    verdict: Verdict
    ratios: tuple[Annotated[float, POSITIVE], ...]
    why: str = ""

    def relation_faults(self) -> Iterator[str]:
        if self.verdict in MEASURED and not self.ratios:
            yield f"verdict {self.verdict!r} needs ratios, but ratios is empty"


class Tune(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a search for settings.

    `dltune tune` keeps it next to its plan and removes it when the search is complete. Ratios are
    step times divided by the step times of `against` in the same round. Below 1 is faster.

    `machine`: fingerprint of the machine.
    `framework`: framework that runs the job; null if not known yet.
    `options`: choices that the search can try, in this order.
    `spent`: seconds of the budget already used.
    `trials`: completed trials.
    """

    schema: str
    created: str
    dltune: str
    command: Annotated[tuple[str, ...], FILLED]
    machine: str
    framework: Framework | None
    options: tuple[Choice, ...]
    spent: Annotated[float, AMOUNT]
    trials: tuple[Trial, ...]


load_tune = documents.reader(Tune, TUNE_SCHEMA)

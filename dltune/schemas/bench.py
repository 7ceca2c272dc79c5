"""Comparisons of settings that take turns: the bench document, and the state of a search."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import msgspec

from dltune.base import documents
from dltune.base.documents import (
    AMOUNT,
    POSITIVE,
    at_least,
    at_most,
    each,
    empty,
    index,
    one_of,
    repeated,
)
from dltune.schemas import machine as machine_document
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
    steps: tuple[float, ...]
    cpu_seconds: float
    voluntary: float
    involuntary: float
    faults: float | None = None
    scheduling: tuple[float, ...] = ()

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

    name: str
    intra: int
    inter: int
    cpus: tuple[int, ...] | None
    predicted: float | None
    turns: tuple[Turn, ...]
    summary: Summary | None
    choices: tuple[Choice, ...] = ()


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
    rounds: int
    settings: tuple[Setting, ...]


def check(bench: Bench) -> list[str]:
    """All that cannot be true of a bench, one sentence each, the field's path first."""
    faults = [f"machine.{fault}" for fault in machine_document.check(bench.machine)]
    faults += at_least(1).of("", bench, "rounds")
    names = [setting.name for setting in bench.settings]
    faults += repeated("settings", "name", names)
    faults += one_of(names, "the settings").of("", bench, "reference")
    for here, setting in each("settings", bench.settings, "name"):
        faults += _setting_faults(here, setting, bench.rounds)
    return faults


load = documents.reader(Bench, SCHEMA, check)


def _setting_faults(here: str, setting: Setting, rounds: int) -> Iterator[str]:
    yield from at_least(1).of(here, setting, "intra", "inter")
    yield from AMOUNT.of(here, setting, "predicted")
    if (setting.summary is None) != (not setting.turns):
        yield f"{here}.summary must be null exactly when turns is empty"
    yield from repeated(f"{here}.turns", "round", (turn.round for turn in setting.turns))
    for at, turn in each(f"{here}.turns", setting.turns):
        yield from index(rounds, "rounds").of(at, turn, "round")
        yield from empty(at, turn, "steps")
        yield from POSITIVE.faults(f"{at}.steps", *turn.steps)
        yield from AMOUNT.of(at, turn, "cpu_seconds", "voluntary", "involuntary", "faults")
        yield from at_most(1).faults(f"{at}.scheduling", *turn.scheduling)


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
    ratios: tuple[float, ...]
    why: str = ""


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
    command: tuple[str, ...]
    machine: str
    framework: Framework | None
    options: tuple[Choice, ...]
    spent: float
    trials: tuple[Trial, ...]


def check_tune(state: Tune) -> list[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    faults = [*empty("", state, "command"), *AMOUNT.of("", state, "spent")]
    for here, trial in each("trials", state.trials):
        faults += POSITIVE.faults(f"{here}.ratios", *trial.ratios)
        if trial.verdict in MEASURED and not trial.ratios:
            faults.append(f"{here}.verdict {trial.verdict!r} needs ratios, but ratios is empty")
    return faults


load_tune = documents.reader(Tune, TUNE_SCHEMA, check_tune)

"""The bench document: one job under several settings that took turns.

Times are seconds. A *step* is from one start of the job's main step graph to its next; a *round* is
one turn of every setting; a *turn* is a few steps in a row, of which the first warms up and is left
out.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import msgspec

from dltune.documents import files
from dltune.documents import machine as machine_document
from dltune.documents.faults import (
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
from dltune.documents.machine import Machine
from dltune.documents.profile import Framework, Samples, tensorflow_alone
from dltune.documents.sections.settings import Choice

SCHEMA = "dltune.bench/2"


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A setting's turn in a round (counted from 0).

    `cpu_seconds`, `voluntary` and `involuntary` (context switches) and `faults` (page faults, None
    where they were not read) are per step, of all processes of the job, the warming step included.
    `scheduling`: how well each step's transfers overlapped with its ops, as TicTac's efficiency E
    (equation 3); empty where the plan orders no transfers.
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
    """Step time over the reference's in the same round: below 1 is faster.

    The median over `rounds` rounds, and an interval that holds the true one with `confidence`.
    """

    median: float
    low: float
    high: float
    confidence: float
    rounds: int


class Summary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a setting's turns come to.

    `efficiency` is T(1 core) / (cores x T), the median over rounds; None without a 1-core setting.
    The rest are medians over turns, per step.
    """

    step: Samples
    ratio: Ratio | None
    efficiency: float | None
    cpu_seconds: float
    voluntary: float
    involuntary: float


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`intra` and `inter` are TensorFlow's thread pools as it made them. `cpus` are those that the
    job was confined to (None: all that are allowed). `predicted`: seconds of a step in the plan.
    `choices`: the settings around the ops that it ran under."""

    name: str
    intra: int
    inter: int
    cpus: tuple[int, ...] | None
    predicted: float | None
    turns: tuple[Turn, ...]
    summary: Summary | None
    choices: tuple[Choice, ...] = ()


class Bench(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`plan` is the SHA-256 of the plan's content and `strategy` what it chose; `reference` names
    the setting that ratios are over; `rounds` were asked for. `partial` is the reason why there are
    fewer, None when there are not."""

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


load = files.reader(Bench, SCHEMA, check, {1: tensorflow_alone})


def _setting_faults(here: str, setting: Setting, rounds: int) -> Iterator[str]:
    yield from at_least(1).of(here, setting, "intra", "inter")
    yield from AMOUNT.of(here, setting, "predicted")
    if (setting.summary is None) != (not setting.turns):
        yield f"{here}.summary must be there with turns, and with turns alone"
    yield from repeated(f"{here}.turns", "round", (turn.round for turn in setting.turns))
    for at, turn in each(f"{here}.turns", setting.turns):
        yield from index(rounds, "rounds").of(at, turn, "round")
        yield from empty(at, turn, "steps")
        yield from POSITIVE.faults(f"{at}.steps", *turn.steps)
        yield from AMOUNT.of(at, turn, "cpu_seconds", "voluntary", "involuntary", "faults")
        yield from at_most(1).faults(f"{at}.scheduling", *turn.scheduling)

"""The gate's documents: a baseline (what was measured of one revision) and a result (verdicts).

Times are seconds, sizes bytes, counts per step or per run of the command. Lower is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.documents import files
from dltune.documents import machine as machine_document
from dltune.documents.faults import AMOUNT, LEVEL, at_least, each, empty, repeated
from dltune.documents.machine import Machine

BASELINE_SCHEMA = "dltune.gate-baseline/1"
RESULT_SCHEMA = "dltune.gate/1"

Outcome = Literal["pass", "fail", "undecided"]
Kind = Literal["steps", "whole"]
Unit = Literal["s", "bytes", "count", ""]


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric of one revision: a value for each round (a launch of the training job, or a run of
    the command); `exact` where it does not vary and one value tells all."""

    metric: str
    unit: Unit
    values: tuple[float, ...]
    exact: bool = False


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`commit`: the revision measured, None outside a repository. `missing`: metrics that were
    asked for and could not be measured, with the reason."""

    schema: str
    created: str
    dltune: str
    machine: Machine
    command: tuple[str, ...]
    kind: Kind
    commit: str | None
    measured: tuple[Measured, ...]
    missing: dict[str, str] = {}


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One limit of one metric.

    `over`: whether `limit` and the interval are of the ratio to the base, of the value itself (in
    `unit`), or of all that the gates of a history add up to, as a ratio (`rounds` are gates). [low,
    high] holds the true median with the result's confidence; None: no bound yet. `base` and `head`
    are medians. `why` is a sentence. `needed`: about how many rounds in all would decide what is
    undecided; None: that cannot be foreseen. `passed`: what the outcome means under the
    configuration; None: not told.
    """

    metric: str
    unit: Unit
    over: Literal["ratio", "value", "drift"]
    limit: float
    outcome: Outcome
    median: float | None
    low: float | None
    high: float | None
    base: float | None
    head: float | None
    rounds: int
    why: str
    needed: int | None = None
    passed: bool | None = None


class Slower(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What takes longer in the head than in the base, in seconds of a step or of the whole command.

    `what`: a part of the step, an op's key, or where Python stood, as "train.py:31 (load)" in the
    head. `base` and `head` are means of rounds; [low, high] holds the true difference with 95 %.
    `changed`: it is in a file that the commits between the two touch.
    """

    kind: Literal["part", "op", "python"]
    what: str
    base: float
    head: float
    low: float
    high: float
    changed: bool = False


class Revision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands on one side: a name as it was given, and the commit where it is one."""

    name: str
    commit: str | None


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`seconds`: what the gate took, all in all. `outcome`: "fail" when a limit does not hold, else
    "undecided" when one is undecided. `passed`: what that means under the configuration. `slower`:
    where the time went, when a ratio of times has failed."""

    schema: str
    created: str
    dltune: str
    machine: Machine
    command: tuple[str, ...]
    kind: Kind
    base: Revision
    head: Revision
    confidence: float
    budget: float
    seconds: float
    outcome: Outcome
    passed: bool
    verdicts: tuple[Verdict, ...]
    measured: dict[str, tuple[Measured, ...]]
    notes: tuple[str, ...] = ()
    slower: tuple[Slower, ...] = ()


def check_baseline(baseline: Baseline) -> list[str]:
    """All that cannot be true of a baseline, one sentence each, the field's path first."""
    faults = [f"machine.{fault}" for fault in machine_document.check(baseline.machine)]
    faults += empty("", baseline, "measured")
    return [*faults, *_measured_faults("measured", baseline.measured)]


load_baseline = files.reader(Baseline, BASELINE_SCHEMA, check_baseline)


def check(result: Result) -> list[str]:
    """All that cannot be true of a result, one sentence each, the field's path first."""
    faults = [f"machine.{fault}" for fault in machine_document.check(result.machine)]
    faults += LEVEL.of("", result, "confidence")
    faults += AMOUNT.of("", result, "budget", "seconds")
    faults += empty("", result, "verdicts")
    for at, verdict in each("verdicts", result.verdicts, "metric"):
        faults += AMOUNT.of(at, verdict, "limit", "median", "low", "high", "base", "head")
        if verdict.low is not None:
            faults += at_least(verdict.low, "its low").of(at, verdict, "high")
    for at, one in each("slower", result.slower, "what"):
        faults += AMOUNT.of(at, one, "base", "head", "low", "high")
    for name, measured in result.measured.items():
        faults += _measured_faults(f"measured.{name}", measured)
    return faults


load = files.reader(Result, RESULT_SCHEMA, check)


def _measured_faults(here: str, measured: tuple[Measured, ...]) -> Iterator[str]:
    yield from repeated(here, "metric", (one.metric for one in measured))
    for at, one in each(here, measured, "metric"):
        yield from empty(at, one, "values")
        for where, value in each(f"{at}.values", one.values):
            yield from AMOUNT.faults(where, value)

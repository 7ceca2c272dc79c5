"""The gate's documents: a baseline (what was measured of one revision) and a result (verdicts).

Times are seconds, sizes bytes, counts per step or per run of the command. Lower is better.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from dltune.documents import files
from dltune.documents import machine as machine_document
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

    `over`: whether `limit` and the interval are of the ratio to the base, or of the value itself
    (in `unit`). [low, high] holds the true median with the result's confidence; None: no bound yet.
    `base` and `head` are medians. `why` is a sentence; `seconds` were spent until it was decided.
    """

    metric: str
    unit: Unit
    over: Literal["ratio", "value"]
    limit: float
    outcome: Outcome
    median: float | None
    low: float | None
    high: float | None
    base: float | None
    head: float | None
    rounds: int
    why: str


class Revision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands on one side: a name as it was given, and the commit where it is one."""

    name: str
    commit: str | None


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`seconds`: what the gate took, all in all. `outcome`: "fail" when a limit does not hold, else
    "undecided" when one is undecided. `passed`: what that means under the configuration."""

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


def load_baseline(path: Path) -> Baseline:
    """The baseline in a file. Raises UsageError, which lists every fault."""
    return files.read(path, Baseline, BASELINE_SCHEMA, check_baseline)


def load(path: Path) -> Result:
    """The result in a file. Raises UsageError, which lists every fault."""
    return files.read(path, Result, RESULT_SCHEMA, check)


def check_baseline(baseline: Baseline) -> list[str]:
    """All that cannot be true of a baseline, one sentence each, the field's path first."""
    faults = [f"machine.{fault}" for fault in machine_document.check(baseline.machine)]
    if not baseline.measured:
        faults.append("measured: nothing was measured")
    return [*faults, *_measured_faults("measured", baseline.measured)]


def check(result: Result) -> list[str]:
    """All that cannot be true of a result, one sentence each, the field's path first."""
    faults = [f"machine.{fault}" for fault in machine_document.check(result.machine)]
    if not 0 < result.confidence < 1:
        faults.append(f"confidence: {result.confidence} is not between 0 and 1")
    for field in ("budget", "seconds"):
        if not _is_number(getattr(result, field)):
            faults.append(f"{field}: {getattr(result, field)} is negative or not finite")
    if not result.verdicts:
        faults.append("verdicts: nothing was judged")
    for index, verdict in enumerate(result.verdicts):
        at = f"verdicts[{index}] ({verdict.metric})"
        for field in ("limit", "median", "low", "high", "base", "head"):
            value = getattr(verdict, field)
            if value is not None and not _is_number(value):
                faults.append(f"{at}.{field}: {value} is negative or not finite")
        if verdict.low is not None and verdict.high is not None and verdict.low > verdict.high:
            faults.append(f"{at}: the interval ends at {verdict.high}, before {verdict.low}")
    for name, measured in result.measured.items():
        faults += _measured_faults(f"measured.{name}", measured)
    return faults


def _measured_faults(here: str, measured: tuple[Measured, ...]) -> Iterator[str]:
    names = collections.Counter(one.metric for one in measured)
    yield from (f"{here}: {name!r} is there {n} times" for name, n in names.items() if n > 1)
    for index, one in enumerate(measured):
        if not one.values:
            yield f"{here}[{index}] ({one.metric}).values: none"
        for place, value in enumerate(one.values):
            if not _is_number(value):
                at = f"{here}[{index}] ({one.metric}).values[{place}]"
                yield f"{at}: {value} is negative or not finite"


def _is_number(value: float) -> bool:
    return math.isfinite(value) and value >= 0

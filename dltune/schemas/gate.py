"""The documents of the gate: a baseline, which `dltune gate record` writes, and the result of
`dltune gate ab` or `dltune gate check`.

Times are in seconds and sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, LEVEL, at_least, each, empty, repeated
from dltune.schemas import machine as machine_document
from dltune.schemas.machine import Machine

BASELINE_SCHEMA = "dltune.gate-baseline/1"
RESULT_SCHEMA = "dltune.gate/1"

Outcome = Literal["pass", "fail", "undecided"]
Kind = Literal["steps", "whole"]
Unit = Literal["s", "bytes", "count", ""]


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values of a metric.

    `metric`: name of the metric.
    `unit`: unit of the values.
    `values`: one value per round: a launch of the training job, or a run of the command.
    `exact`: true if the metric does not vary, so that one value is enough.
    """

    metric: str
    unit: Unit
    values: tuple[float, ...]
    exact: bool = False


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measurements of one revision, for later comparisons. `dltune gate record` writes them.

    Times are in seconds and sizes in bytes.

    `machine`: machine on which it was measured.
    `kind`: `steps` of a training job, or the `whole` command.
    `commit`: measured revision; null outside a repository.
    `measured`: values by metric.
    `missing`: metrics that could not be measured, with the reason.
    """

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
    """The verdict on one limit.

    `metric`: name of the metric.
    `unit`: unit of the values.
    `over`: `ratio` to the base; `value` itself; or `drift`, the product of the ratios of all gates
      in a history.
    `limit`: the limit.
    `outcome`: `pass`, `fail` or `undecided`.
    `median`: median ratio or value.
    `low`, `high`: confidence interval of the true median; null if there is no bound yet.
    `base`, `head`: medians of the two revisions.
    `rounds`: number of rounds; for `drift`, number of gates.
    `why`: explanation in one sentence.
    `needed`: estimated total number of rounds for a decision; null if unknown.
    `passed`: meaning of the outcome under the configuration; null if unknown.
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
    """Something that takes longer in the head than in the base.

    `kind`: `part` of the step, `op`, or `python` code.
    `what`: the part, the op's key, or a line such as `train.py:31 (load)` in the head.
    `base`, `head`: means over the rounds, in seconds per step or per command.
    `low`, `high`: 95 % confidence interval of the difference.
    `changed`: true if the line is in a file that the commits change.
    """

    kind: Literal["part", "op", "python"]
    what: str
    base: float
    head: float
    low: float
    high: float
    changed: bool = False


class Revision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A revision.

    `name`: name as given on the command line.
    `commit`: commit; null if it is none.
    """

    name: str
    commit: str | None


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a gate: verdicts on limits. `dltune gate ab` and `dltune gate check` write it.

    Times are in seconds and sizes in bytes.

    `machine`: machine on which it ran.
    `kind`: `steps` of a training job, or the `whole` command.
    `base`, `head`: revisions compared.
    `confidence`, `budget`: configuration.
    `seconds`: duration of the gate.
    `outcome`: `fail` if a limit is exceeded, otherwise `undecided` if a limit is undecided,
      otherwise `pass`.
    `passed`: meaning of the outcome under the configuration.
    `verdicts`: one verdict per limit.
    `measured`: values of `base` and `head`. Values at the same position belong to the same round.
    `notes`: remarks for the reader.
    `slower`: causes of a failed ratio of times.
    """

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


load_baseline = documents.reader(Baseline, BASELINE_SCHEMA, check_baseline)


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


load = documents.reader(Result, RESULT_SCHEMA, check)


def _measured_faults(here: str, measured: tuple[Measured, ...]) -> Iterator[str]:
    yield from repeated(here, "metric", (one.metric for one in measured))
    for at, one in each(here, measured, "metric"):
        yield from empty(at, one, "values")
        for where, value in each(f"{at}.values", one.values):
            yield from AMOUNT.faults(where, value)

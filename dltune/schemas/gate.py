"""The documents of the gate: a baseline, which `dltune gate record` writes, and the result of
`dltune gate ab` or `dltune gate check`.

Times are in seconds and sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, FILLED, LABEL, LEVEL, at_least, repeated
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

    metric: Annotated[str, LABEL]
    unit: Unit
    values: Annotated[tuple[Annotated[float, AMOUNT], ...], FILLED]
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
    measured: Annotated[tuple[Measured, ...], FILLED]
    missing: dict[str, str] = {}

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("measured", "metric", (values.metric for values in self.measured))


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

    metric: Annotated[str, LABEL]
    unit: Unit
    over: Literal["ratio", "value", "drift"]
    limit: Annotated[float, AMOUNT]
    outcome: Outcome
    median: Annotated[float | None, AMOUNT]
    low: Annotated[float | None, AMOUNT]
    high: Annotated[float | None, AMOUNT]
    base: Annotated[float | None, AMOUNT]
    head: Annotated[float | None, AMOUNT]
    rounds: int
    why: str
    needed: int | None = None
    passed: bool | None = None

    def relation_faults(self) -> Iterator[str]:
        if self.low is not None:
            yield from at_least(self.low, "its low").of("", self, "high")


class Slower(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that takes longer in the head than in the base.

    `kind`: `part` of the step, `op`, or `python` code.
    `what`: the part, the op's key, or a line such as `train.py:31 (load)` in the head.
    `base`, `head`: means over the rounds, in seconds per step or per command.
    `low`, `high`: 95 % confidence interval of the difference.
    `changed`: true if the line is in a file that the commits change.
    """

    kind: Literal["part", "op", "python"]
    what: Annotated[str, LABEL]
    base: Annotated[float, AMOUNT]
    head: Annotated[float, AMOUNT]
    low: Annotated[float, AMOUNT]
    high: Annotated[float, AMOUNT]
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
    confidence: Annotated[float, LEVEL]
    budget: Annotated[float, AMOUNT]
    seconds: Annotated[float, AMOUNT]
    outcome: Outcome
    passed: bool
    verdicts: Annotated[tuple[Verdict, ...], FILLED]
    measured: dict[str, tuple[Measured, ...]]
    notes: tuple[str, ...] = ()
    slower: tuple[Slower, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        for name, measured in self.measured.items():
            metrics = (values.metric for values in measured)
            yield from repeated(f"measured.{name}", "metric", metrics)


load_baseline = documents.reader(Baseline, BASELINE_SCHEMA)


load = documents.reader(Result, RESULT_SCHEMA)

"""Reports of one job under several settings: which of them was fastest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dltune.documents.horovod import Horovod
from dltune.documents.plan_allreduce import AllreducePlan, Controller, Knobs
from dltune.errors import UsageError
from dltune.horovod.plan.observed import knobs, yields


@dataclass(frozen=True)
class Measured:
    """A setting that a job ran under. `seconds` of a step, by the report's timeline."""

    path: Path
    seconds: float
    knobs: Knobs
    yields: bool


def measured(reports: Sequence[tuple[Path, Horovod]], report: Horovod) -> list[Measured]:
    """The settings of the reports, fastest first.

    Raises UsageError when one is not of the job of `report`, or has no timeline.
    """
    found = []
    for path, other in reports:
        if not other.ranks or other.ranks[0].size != report.ranks[0].size:
            raise UsageError(
                f"{path} is of {other.ranks[0].size if other.ranks else 0} ranks, the job of "
                f"{report.ranks[0].size}: their steps do not compare"
            )
        if other.machine != report.machine:
            raise UsageError(
                f"{path} was made on another machine, {other.machine_name}: its steps do not "
                "compare"
            )
        found.append(Measured(path, step(path, other), knobs(other.ranks[0]), _yields(other)))
    return sorted(found, key=lambda one: one.seconds)


def step(path: Path, report: Horovod) -> float:
    """Seconds of a step: each gradient is reduced once in it. Raises UsageError."""
    timeline = report.timeline
    times = max((tensor.times for tensor in timeline.tensors), default=0) if timeline else 0
    if timeline is None or times < 2 or timeline.seconds <= 0:
        raise UsageError(
            f"{path} has no timeline, so how long its steps took is not known",
            remedy="make it again with a timeline: dltune horovod-report --timeline ...",
        )
    return timeline.seconds / times


def _yields(report: Horovod) -> bool:
    return report.ranks[0].controller == "mpi" and yields(report.ranks[0])


def settled(
    section: AllreducePlan, found: Sequence[Measured], methods: Collection[str]
) -> AllreducePlan:
    """The section with the fastest measured setting in place of what was predicted for it.

    `methods`: those that the plan may decide. Sleeps that were predicted to help give way to what
    was measured.
    """
    best = found[0]
    parts: dict[str, Any] = {"reasons": (*section.reasons, _told(found, section.controller))}
    if "knobs" in methods:
        parts["knobs"] = best.knobs
    if "yield" in methods:
        parts |= {"yield_when_idle": best.yields, "sleeps": None}
    return msgspec.structs.replace(section, **parts)


def _told(found: Sequence[Measured], controller: Controller) -> str:
    """All of them in a sentence."""
    ways = ", ".join(
        f"{one.seconds * 1e3:.1f} ms with a cycle time of {one.knobs.cycle_time * 1e3:g} ms, a "
        f"threshold of {one.knobs.fusion_threshold >> 20} MiB"
        + ((" and yielding" if one.yields else " and spinning") if controller == "mpi" else "")
        for one in found
    )
    return f"measured steps of this job, of which the plan takes the first: {ways}"

"""Reports of one job under several settings: which of them was fastest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.systems.ranks.allreduce.observed import knobs, yields
from dltune.systems.ranks.allreduce.section import (
    AllreducePlan,
    Controller,
    Knobs,
    RankCores,
    Sleeps,
)
from dltune.systems.ranks.schemas.horovod import Horovod


@dataclass(frozen=True)
class Measured:
    """A setting that a job ran under. `seconds` of a step, by the report's timeline. `bound`: the
    CPUs of each local rank of the first node, if the launcher had bound them."""

    path: Path
    seconds: float
    knobs: Knobs
    yields: bool
    bound: tuple[tuple[int, ...], ...] | None


def measured(reports: Sequence[tuple[Path, Horovod]], report: Horovod) -> list[Measured]:
    """The settings of the reports, fastest first.

    Raises UsageError when one is not of the job of `report`, or has no timeline.
    """
    found = []
    for path, other in reports:
        if not other.ranks or other.ranks[0].size != report.ranks[0].size:
            raise UsageError(
                f"--measured {path}: its job had {other.ranks[0].size if other.ranks else 0} "
                f"ranks, the job of the report has {report.ranks[0].size}",
                remedy="report on the job with as many ranks",
            )
        if other.machine != report.machine:
            raise UsageError(
                f"--measured {path} was made on another machine, {other.machine_name}",
                remedy="make all reports on one machine",
            )
        seconds = step(path, other)
        first = other.ranks[0]
        yielding = first.controller == "mpi" and yields(first)
        found.append(Measured(path, seconds, knobs(first), yielding, _bound(other)))
    return sorted(found, key=lambda one: one.seconds)


def step(path: Path, report: Horovod) -> float:
    """Return the median seconds of a step. Raises UsageError when the report has no step times."""
    found = report.timeline.step if report.timeline else None
    if found is None or found.median is None:
        raise UsageError(
            f"--measured {path}: the report has no step times, because it has no timeline or only "
            "a short one",
            remedy="report again with a timeline: dltune horovod-report --timeline FILE -- ...",
        )
    return found.median


def _bound(report: Horovod) -> tuple[tuple[int, ...], ...] | None:
    here = [rank for rank in report.ranks if rank.host == report.ranks[0].host]
    if not all(rank.bound for rank in here):
        return None
    return tuple(rank.cpus for rank in sorted(here, key=lambda rank: rank.local_rank))


def settled(
    section: AllreducePlan, found: Sequence[Measured], methods: Collection[str], machine: Machine
) -> AllreducePlan:
    """Return the section with the fastest measured setting in place of the predicted setting.

    `methods`: those that the plan can decide. Sleeps that were predicted to help give way to the
    measured result (rests stay when ranks yield), and so do cores where ranks were measured both
    bound and not.
    """
    best = found[0]
    parts: dict[str, Any] = {"reasons": (*section.reasons, _told(found, section.controller))}
    if "knobs" in methods:
        parts["knobs"] = best.knobs
    if "yield" in methods:
        rest = best.yields and section.sleeps and section.sleeps.rest
        parts |= {
            "yield_when_idle": best.yields,
            "sleeps": Sleeps(None, None, rest) if rest else None,
        }
    if "core-partition" in methods and len({one.bound is None for one in found}) == 2:
        parts["cores"] = best.bound and tuple(_cores(cpus, machine) for cpus in best.bound)
    return msgspec.structs.replace(section, **parts)


def _cores(cpus: Collection[int], machine: Machine) -> RankCores:
    mine = tuple(k for k, core in enumerate(machine.cores) if set(core.cpus) & set(cpus))
    return RankCores(mine, mine, mine, mine)


def _told(found: Sequence[Measured], controller: Controller) -> str:
    """All of them in a sentence."""
    ways = "; ".join(
        f"{one.seconds * 1e3:.1f} ms with cycle time {one.knobs.cycle_time * 1e3:g} ms, fusion "
        f"threshold {one.knobs.fusion_threshold >> 20} MiB"
        + ((", yielding" if one.yields else ", spinning") if controller == "mpi" else "")
        + (", bound to cores" if one.bound else "")
        for one in found
    )
    return f"the plan takes the fastest measured setting; measured steps: {ways}"

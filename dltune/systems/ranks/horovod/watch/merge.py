"""Reports of ranks on several hosts as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dltune.base.errors import UsageError
from dltune.systems.ranks.horovod.watch.document import report_of
from dltune.systems.ranks.schemas import horovod
from dltune.systems.ranks.schemas.horovod import Horovod


def merged(paths: Sequence[Path]) -> Horovod:
    """Return all ranks of all reports, with their common findings.

    Raises UsageError when one cannot be read, when a rank is in two of them, when they disagree on
    how many ranks there are, or when two have a timeline.
    """
    reports = [(path, horovod.load(path)) for path in paths]
    owner: dict[int, Path] = {}
    sizes: dict[int, Path] = {}
    for path, report in reports:
        for rank in report.ranks:
            if rank.rank in owner:
                raise UsageError(
                    f"rank {rank.rank} is in both {owner[rank.rank]} and {path}",
                    remedy="merge reports of one job, one from each host",
                )
            owner[rank.rank] = path
            sizes.setdefault(rank.size, path)
    if len(sizes) > 1:
        told = " but ".join(f"{path} is of a job of {size} ranks" for size, path in sizes.items())
        raise UsageError(told, remedy="merge reports of one job, one from each host")
    timelines = [(path, report.timeline) for path, report in reports if report.timeline]
    if len(timelines) > 1:
        raise UsageError(
            f"{timelines[0][0]} and {timelines[1][0]} both have a timeline",
            remedy="use --timeline only on the host of rank 0, which writes it",
        )
    first = reports[0][1]
    whole = report_of(
        command=first.command,
        cores={host: cores for _, one in reports for host, cores in one.cores.items()},
        partial=any(report.partial for _, report in reports),
        members=tuple(sorted((r for _, one in reports for r in one.ranks), key=lambda r: r.rank)),
        timeline=timelines[0][1] if timelines else None,
    )
    return msgspec.structs.replace(whole, machine=first.machine, machine_name=first.machine_name)

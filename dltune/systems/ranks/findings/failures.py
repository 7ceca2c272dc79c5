"""Findings about ranks that failed, hang or are missing, and about incomplete reports of ranks.

`reported_ranks` and `reported_timeline` take the report of horovod-report from the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dltune.base.formatting import signal_name
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.job.subprocesses import tells_of_another
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.horovod.schema import Horovod, Rank, Timeline, names


def reported_ranks(evidence: Evidence) -> Sequence[Rank]:
    """Return the observed ranks; empty without a report."""
    report = evidence.report(Horovod)
    return report.ranks if report else ()


def reported_timeline(evidence: Evidence) -> Timeline | None:
    """Return the summary of Horovod's timeline."""
    report = evidence.report(Horovod)
    return report.timeline if report else None


@rule(
    "failed-rank",
    "ranks",
    summary="A rank failed; the first one to fail is the cause.",
    fix="Read the output of the rank that failed first.",
)
def failed_rank(evidence: Evidence) -> Iterator[Finding]:
    """Find ranks that failed. The first one is the cause, whatever the errors of the others are."""
    ended = sorted(
        (
            rank
            for rank in reported_ranks(evidence)
            if rank.ended_after is not None and rank.ended != 0
        ),
        key=lambda rank: rank.ended_after or 0.0,
    )
    failed = [rank for rank in ended if rank.ended is not None or rank.error or len(ended) > 1]
    if not failed:
        return
    # an exception that Horovod raises because another rank has ended is not the cause
    causes = [rank for rank in failed if not (rank.error and tells_of_another(rank.error))]
    first = (causes or failed)[0]
    others = [rank for rank in failed if rank is not first]
    description = f"rank {first.rank} (pid {first.pid} on {first.host}) {_describe_end(first)}"
    later = "; ".join(
        f"rank {rank.rank} {_describe_end(rank)} "
        f"{(rank.ended_after or 0.0) - (first.ended_after or 0.0):+.2f} s later"
        for rank in others
    )
    yield Finding(
        title=f"rank {first.rank} failed first" + (", and the others followed" if others else ""),
        evidence=description
        + f" after {first.ended_after or 0.0:.1f} s"
        + (f"; {later}" if later else ""),
        fix=f"read the output of rank {first.rank}"
        + (": the errors of the other ranks only report that it is gone" if others else ""),
        share=1.0,  # the job does not continue
        confidence="measured",
    )


def _describe_end(rank: Rank) -> str:
    if rank.error:
        return f"failed with {rank.error}"
    if rank.ended is None:
        return "ended"
    if rank.ended < 0:
        return f"was ended by {signal_name(-rank.ended)}"
    return f"ended with exit code {rank.ended}"


@rule(
    "hanging-rank",
    "ranks",
    summary="A rank hangs, and all other ranks wait for it.",
    fix="Find the line where the rank hangs (py-spy dump).",
)
def hanging_rank(evidence: Evidence) -> Iterator[Finding]:
    """Find a rank that hangs, so that all others wait in the next collective."""
    hanging = [rank for rank in reported_ranks(evidence) if rank.stuck]
    if not hanging:
        return
    yield Finding(
        title=f"{names(hanging)} hang{'s' * (len(hanging) == 1)}, and the others wait for it",
        evidence="; ".join(f"rank {rank.rank}: {rank.stuck}" for rank in hanging),
        fix="find the line where it hangs: py-spy dump --nonblocking --pid "
        + " or ".join(str(rank.pid) for rank in hanging[:4]),
        share=1.0,
        confidence="measured",
    )


@rule(
    "missing-ranks",
    "ranks",
    summary="The report does not contain all ranks of the job.",
    fix="Make a report on each host at the same time, and merge the reports.",
    order=5,
    is_limitation=True,
)
def missing_ranks(evidence: Evidence) -> Iterator[Finding]:
    """Find ranks of the job that are not in the report."""
    size = max((rank.size for rank in reported_ranks(evidence)), default=0)
    missing = sorted(set(range(size)) - {rank.rank for rank in reported_ranks(evidence)})
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        yield Finding(
            title=f"{len(missing)} of {size} ranks are not in this report",
            evidence=f"rank{'s' * (len(missing) > 1)} {shown}",
            fix="make a report on each host at the same time (--pid), and merge the reports: "
            "dltune horovod-report --merge a.json b.json",
        )


@rule(
    "unseen-background",
    "ranks",
    summary="The communication thread of a rank was not found.",
    fix="Watch the job while it trains.",
    is_limitation=True,
)
def unseen_background(evidence: Evidence) -> Iterator[Finding]:
    """Find ranks whose background thread was not found, so that it is not in the report."""
    without = [rank for rank in reported_ranks(evidence) if rank.background is None]
    if without:
        yield Finding(
            title=f"no background thread was found in {names(without)}",
            evidence="; ".join(
                f"rank {rank.rank}: {' '.join(rank.unseen) or '?'}" for rank in without
            ),
            fix="watch the job while it trains, after "
            + ("init_process_group" if without[0].pytorch else "hvd.init()"),
        )


@rule(
    "differing-versions",
    "ranks",
    summary="Ranks run different versions of Horovod, PyTorch or MPI.",
    fix="Install the same version everywhere.",
)
def differing_versions(evidence: Evidence) -> Iterator[Finding]:
    """Find ranks that run different versions of Horovod, PyTorch or MPI."""
    for field, name in (("horovod", "Horovod"), ("pytorch", "PyTorch"), ("mpi", "MPI")):
        ranks: dict[str, list[Rank]] = {}
        for rank in reported_ranks(evidence):
            if version := getattr(rank, field):
                ranks.setdefault(version, []).append(rank)
        if len(ranks) > 1:
            yield Finding(
                title=f"ranks run different versions of {name}",
                evidence="; ".join(
                    f"{version}: {names(group)}" for version, group in ranks.items()
                ),
                fix="install the same version everywhere: the formats of their messages can differ",
            )

"""Ranks that failed, hang, are missing, or differ in what they run."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from dltune.documents.horovod import Finding, Horovod, Rank
from dltune.horovod.diagnosis.ranks import names
from dltune.job.last_words import tells_of_another


def ended(report: Horovod) -> Iterator[Finding]:
    dead = sorted(
        (rank for rank in report.ranks if rank.ended_after is not None and rank.ended != 0),
        key=lambda rank: rank.ended_after or 0.0,
    )
    failed = [rank for rank in dead if rank.ended is not None or rank.error or len(dead) > 1]
    if not failed:
        return
    # an exception that Horovod raises because another rank is gone is not the cause
    own = [rank for rank in failed if not (rank.error and tells_of_another(rank.error))]
    first = (own or failed)[0]
    rest = [rank for rank in failed if rank is not first]
    how = f"rank {first.rank} (pid {first.pid} on {first.host}) {_how(first)}"
    told = "; ".join(
        f"rank {rank.rank} {_how(rank)} "
        f"{(rank.ended_after or 0.0) - (first.ended_after or 0.0):+.2f} s later"
        for rank in rest
    )
    yield Finding(
        f"rank {first.rank} failed first" + (", the others followed" if rest else ""),
        how + f" after {first.ended_after or 0.0:.1f} s" + (f"; {told}" if told else ""),
        f"look for the cause in rank {first.rank}'s output"
        + (": what the others say is about its absence" if rest else ""),
    )


def _how(rank: Rank) -> str:
    if rank.error:
        return f"failed with {rank.error}"
    if rank.ended is None:
        return "ended"
    if rank.ended < 0:
        try:
            return f"was ended by {signal.Signals(-rank.ended).name}"
        except ValueError:
            return f"was ended by signal {-rank.ended}"
    return f"ended with exit code {rank.ended}"


def stuck(report: Horovod) -> Iterator[Finding]:
    hanging = [rank for rank in report.ranks if rank.stuck]
    if not hanging:
        return
    yield Finding(
        f"{names(hanging)} {'hangs' if len(hanging) == 1 else 'hang'}, and the others wait for it",
        "; ".join(f"rank {rank.rank}: {rank.stuck}" for rank in hanging),
        "look where it stands: py-spy dump --nonblocking --pid "
        + " or ".join(str(rank.pid) for rank in hanging[:4]),
    )


def versions(report: Horovod) -> Iterator[Finding]:
    for what, name in (("horovod", "Horovod"), ("mpi", "MPI")):
        found: dict[str, list[Rank]] = {}
        for rank in report.ranks:
            if version := getattr(rank, what):
                found.setdefault(version, []).append(rank)
        if len(found) > 1:
            yield Finding(
                f"ranks run different versions of {name}",
                "; ".join(f"{version}: {names(of)}" for version, of in found.items()),
                "install one version everywhere: their messages need not mean the same",
            )


def absent(report: Horovod) -> Iterator[Finding]:
    size = max((rank.size for rank in report.ranks), default=0)
    missing = sorted(set(range(size)) - {rank.rank for rank in report.ranks})
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        yield Finding(
            f"{len(missing)} of {size} ranks are not in this report",
            f"rank{'s' * (len(missing) > 1)} {shown}",
            "make a report on each host at the same time (--pid), and put them together: "
            "dltune horovod-report --merge a.json b.json",
        )


def blind(report: Horovod) -> Iterator[Finding]:
    without = [rank for rank in report.ranks if rank.background is None]
    if without:
        yield Finding(
            f"no background thread was found in {names(without)}",
            "; ".join(f"rank {rank.rank}: {' '.join(rank.unseen) or '?'}" for rank in without),
            "watch it while it trains, after hvd.init()",
        )

"""Ranks that failed, hang, are missing, or differ in what they run."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from dltune.documents.horovod import Finding, Horovod, Rank
from dltune.horovod.diagnosis.ranks import names
from dltune.job.last_words import tells_of_another


def findings(report: Horovod) -> Iterator[tuple[float, Finding]]:
    """What keeps the job from working, or the report from telling all; each with its gravity."""
    yield from _ended(report)
    yield from _stuck(report)
    yield from _versions(report)
    yield from _absent(report)
    yield from _blind(report)


def _ended(report: Horovod) -> Iterator[tuple[float, Finding]]:
    dead = sorted(
        (rank for rank in report.ranks if rank.ended_after is not None and rank.ended != 0),
        key=lambda rank: rank.ended_after or 0.0,
    )
    failed = [rank for rank in dead if rank.ended is not None or rank.error or len(dead) > 1]
    if not failed:
        return
    # an exception that Horovod raises because another rank is gone is not the cause
    own = [rank for rank in failed if not _of_horovod(rank)]
    first = (own or failed)[0]
    rest = [rank for rank in failed if rank is not first]
    how = f"rank {first.rank} (pid {first.pid} on {first.host}) {_how(first)}"
    told = "; ".join(
        f"rank {rank.rank} {_how(rank)} "
        f"{(rank.ended_after or 0.0) - (first.ended_after or 0.0):+.2f} s later"
        for rank in rest
    )
    yield (
        100.0,
        Finding(
            f"rank {first.rank} failed first" + (", the others followed" if rest else ""),
            how + f" after {first.ended_after or 0.0:.1f} s" + (f"; {told}" if told else ""),
            f"look for the cause in rank {first.rank}'s output"
            + (": what the others say is about its absence" if rest else ""),
        ),
    )


def _of_horovod(rank: Rank) -> bool:
    return rank.error is not None and tells_of_another(rank.error)


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


def _stuck(report: Horovod) -> Iterator[tuple[float, Finding]]:
    stuck = [rank for rank in report.ranks if rank.stuck]
    if not stuck:
        return
    hanging = names(stuck)
    yield (
        90.0,
        Finding(
            f"{hanging} {'hangs' if len(stuck) == 1 else 'hang'}, and the others wait for it",
            "; ".join(f"rank {rank.rank}: {rank.stuck}" for rank in stuck),
            "look where it stands: py-spy dump --nonblocking --pid "
            + " or ".join(str(rank.pid) for rank in stuck[:4]),
        ),
    )


def _versions(report: Horovod) -> Iterator[tuple[float, Finding]]:
    for what in ("horovod", "mpi"):
        found: dict[str, list[Rank]] = {}
        for rank in report.ranks:
            if version := getattr(rank, what):
                found.setdefault(version, []).append(rank)
        if len(found) > 1:
            name = "Horovod" if what == "horovod" else "MPI"
            yield (
                80.0,
                Finding(
                    f"ranks run different versions of {name}",
                    "; ".join(f"{version}: {names(of)}" for version, of in found.items()),
                    "install one version everywhere: their messages need not mean the same",
                ),
            )


def _absent(report: Horovod) -> Iterator[tuple[float, Finding]]:
    if not report.ranks:
        return
    size = max(rank.size for rank in report.ranks)
    missing = sorted(set(range(size)) - {rank.rank for rank in report.ranks})
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        yield (
            1.0,
            Finding(
                f"{len(missing)} of {size} ranks are not in this report",
                f"rank{'s' * (len(missing) > 1)} {shown}",
                "make a report on each host at the same time (--pid), and put them together: "
                "dltune horovod-report --merge a.json b.json",
            ),
        )


def _blind(report: Horovod) -> Iterator[tuple[float, Finding]]:
    blind = [rank for rank in report.ranks if rank.background is None]
    if blind:
        yield (
            75.0,
            Finding(
                f"no background thread was found in {names(blind)}",
                "; ".join(f"rank {rank.rank}: {' '.join(rank.unseen) or '?'}" for rank in blind),
                "watch it while it trains, after hvd.init()",
            ),
        )

"""Ranks on a terminal while they are watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dltune.base.formatting import Table, columns

if TYPE_CHECKING:
    from dltune.systems.ranks.horovod.watch.rank_seen import RankSeen
    from dltune.systems.ranks.horovod.watch.watch import Watch


def watched(watch: Watch) -> str:
    """Return a line about the watch so far."""
    seen = watch.of_job()
    found = sum(rank.background is not None for rank in seen)
    stuck = "".join(
        f"; rank {rank.identity.rank} hangs: {watch.stuck[rank.pid]}"
        for rank in seen
        if rank.pid in watch.stuck
    )
    return (
        f"{watch.ended - watch.began:.0f} s: {len(seen)} rank{'s' * (len(seen) != 1)}, "
        f"{found} background thread{'s' * (found != 1)} found, {len(watch.looked)} "
        f"processes{stuck}"
    )


def running(watch: Watch) -> Table:
    """Return the use of the CPU by each rank's threads so far."""
    heads = (
        *("rank", "pid", "CPU", "background thread", "its CPU", "its wait for a core"),
        *("compute CPU", "input CPU"),
    )
    rows = [_row(rank) for rank in watch.of_job()]
    return Table("", columns(*(f">{head}" for head in heads)), rows)


def _row(rank: RankSeen) -> tuple[str, ...]:
    seconds = max(rank.until - rank.since, 1e-9)
    roles = {"compute": 0.0, "input": 0.0}
    cpu = wait = None
    for (tid, _), thread in rank.threads.items():
        used = thread.used()
        if tid == rank.background:
            cpu, wait = used.cpu / seconds, (used.queued or 0.0) / seconds
        elif thread.identity and thread.identity.role in roles:
            roles[thread.identity.role] += used.cpu / seconds
    return (
        str(rank.identity.rank),
        str(rank.pid) if rank.ended_at is None else f"{rank.pid} ended",
        f"{(rank.cpu[1] - rank.cpu[0]) / seconds:.0%}",
        str(rank.background or "not found"),
        "" if cpu is None else f"{cpu:.1%}",
        "" if wait is None else f"{wait:.1%}",
        f"{roles['compute']:.0%}",
        f"{roles['input']:.0%}",
    )

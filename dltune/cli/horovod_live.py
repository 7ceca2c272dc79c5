"""The live view of watched ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dltune.cli.live import live as view

if TYPE_CHECKING:
    from rich.table import Table

    from dltune.horovod.watch.rank_seen import RankSeen
    from dltune.horovod.watch.watch import Watch


def live(watch: Watch, subject: str) -> AbstractContextManager[Callable[[], None]]:
    """Shows the watch whenever the function is called."""
    return view(f"watching {subject}", lambda: _summary(watch), lambda: [_table(watch)])


def _summary(watch: Watch) -> str:
    seen = list(watch.ranks.values())
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


def _table(watch: Watch) -> Table:
    from rich.table import Table

    table = Table()
    for head in ("rank", "pid", "CPU", "background", "CPU", "waits for a core", "compute", "input"):
        table.add_column(head, justify="right")
    for rank in sorted(watch.ranks.values(), key=lambda one: one.identity.rank):
        table.add_row(*_row(rank))
    return table


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

"""The live view of watched ranks, on stderr: a table on a terminal, a line now and then else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from dltune.horovod.watch.rank_seen import RankSeen
    from dltune.horovod.watch.watch import Watch

QUIET_SECONDS = 15.0


@contextlib.contextmanager
def live(watch: Watch, subject: str) -> Iterator[Callable[[], None]]:
    """Shows the watch whenever the function is called."""
    if not sys.stderr.isatty():
        told = time.monotonic()

        def line() -> None:
            nonlocal told
            if time.monotonic() - told >= QUIET_SECONDS:
                told = time.monotonic()
                print(f"dltune: {_summary(watch)}", file=sys.stderr, flush=True)

        print(f"dltune: watching {subject}", file=sys.stderr, flush=True)
        yield line
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    with Live(
        Text(f"watching {subject}"),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    ) as shown:
        yield lambda: shown.update(Group(Text(_summary(watch)), _table(watch)), refresh=True)


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
        elif thread.told and thread.told.role in roles:
            roles[thread.told.role] += used.cpu / seconds
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

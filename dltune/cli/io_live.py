"""The live view of a watched job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dltune.cli.live import live as view
from dltune.io.report.shown import count, file_name, share, size

if TYPE_CHECKING:
    from rich.table import Table

    from dltune.io.report.watch import Watch

ROWS = 8


def live(watch: Watch, subject: str) -> AbstractContextManager[Callable[[], None]]:
    """Shows the watch whenever the function is called."""
    return view(
        f"watching {subject}", lambda: _summary(watch), lambda: [_files(watch), _threads(watch)]
    )


def _summary(watch: Watch) -> str:
    running = sum(not seen.ended for seen in watch.processes.values())
    return (
        f"{watch.ended - watch.began:.0f} s: {running} process{'es' * (running != 1)}, "
        f"{len(watch.files.known)} data files, {watch.looks} looks"
    )


def _files(watch: Watch) -> Table:
    from rich.table import Table

    table = Table(title="data files", title_justify="left")
    for head in ("file", "format", "size", "in the page cache", "came from storage"):
        table.add_column(head, overflow="ellipsis", no_wrap=True)
    known = sorted(watch.files.known.values(), key=lambda file: -(file.came or 0))
    for file in known[:ROWS]:
        cached = "?" if file.last is None else share(file.last.now / max(1, file.size))
        came = size(file.came or 0)
        table.add_row(file_name(file.path), file.format, size(file.size), cached, came)
    return table


def _threads(watch: Watch) -> Table:
    from rich.table import Table

    table = Table(title="threads that wait for storage", title_justify="left")
    for head in ("pid", "thread", "waits", "switches", "major faults"):
        table.add_column(head)
    seen = [
        (process, key, thread)
        for process in watch.processes.values()
        for key, thread in process.threads.items()
        if thread.waited
    ]
    seen.sort(key=lambda one: -one[2].waited)
    for process, (tid, _), thread in seen[:ROWS]:
        seconds = max(1e-9, thread.until - thread.since)
        table.add_row(
            str(process.pid),
            f"{tid} {thread.last.stat.name}",
            share(min(1.0, thread.waited / seconds)),
            count(thread.last.voluntary - thread.first.voluntary),
            count(thread.last.stat.major - thread.first.stat.major),
        )
    return table

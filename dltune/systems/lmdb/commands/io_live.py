"""The reading of a job on a terminal while it is watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dltune.base.formatting import Table, columns, count, file_name, share, size

if TYPE_CHECKING:
    from dltune.watch.files.watch import Watch

ROWS = 8


def watched(watch: Watch) -> str:
    """Return a line about the watch so far."""
    running = sum(not seen.ended for seen in watch.processes.values())
    return (
        f"{watch.ended - watch.began:.0f} s: {running} process{'es' * (running != 1)}, "
        f"{len(watch.files.known)} data files, {watch.looks} samples"
    )


def open_files(watch: Watch) -> Table:
    """Return the data files so far, and how much of each came from storage."""
    known = sorted(watch.files.known.values(), key=lambda file: -(file.came or 0))
    rows = [
        (
            file_name(file.path),
            file.format,
            size(file.size),
            "?" if file.last is None else share(file.last.now / max(1, file.size)),
            size(file.came or 0),
        )
        for file in known[:ROWS]
    ]
    heads = columns("file", "format", ">size", ">in the page cache", ">from storage")
    return Table("data files", heads, rows)


def waiting(watch: Watch) -> Table:
    """Return the threads that have waited for storage so far, the longest first."""
    seen = [
        (process, tid, thread)
        for process in watch.processes.values()
        for (tid, _), thread in process.threads.items()
        if thread.waited
    ]
    seen.sort(key=lambda one: -one[2].waited)
    rows = [
        (
            str(process.pid),
            f"{tid} {thread.last.stat.name}",
            share(min(1.0, thread.waited / max(1e-9, thread.until - thread.since))),
            count(thread.last.voluntary - thread.first.voluntary),
            count(thread.last.stat.major - thread.first.stat.major),
        )
        for process, tid, thread in seen[:ROWS]
    ]
    heads = columns(">pid", "thread", ">waiting", ">voluntary switches", ">major faults")
    return Table("threads that wait for storage", heads, rows)

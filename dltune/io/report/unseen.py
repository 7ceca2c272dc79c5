"""What a watch could not see, and why, and what would show it: a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dltune.documents import io
from dltune.io.report.watch import Watch


def unseen(
    watch: Watch, places: Sequence[io.Storage], files: Sequence[io.DataFile]
) -> Iterator[str]:
    hidden = [seen for seen in watch.processes.values() if not seen.may_look]
    if hidden:
        users = ", ".join(sorted({seen.owner for seen in hidden}))
        pids = ", ".join(str(seen.pid) for seen in hidden[:8])
        yield (
            f"files, read calls and storage bytes of {len(hidden)} of {len(watch.processes)} "
            f"processes (pid {pids}; user {users}): the kernel shows them to that user and to root "
            "alone; their switches, run-queue wait and fault counts stand"
        )
    if watch.faults.refused:
        yield (
            f"offsets of page faults: {watch.faults.refused}"
            + (f" ({watch.faults.refused.remedy})" if watch.faults.refused.remedy else "")
            + "; fault counts per process are the kernel's own"
        )
    blind = [known.path for known in watch.files.known.values() if known.last is None]
    if blind:
        yield (
            f"how much of {_some(blind)} is in the page cache: the kernel has no cachestat, and "
            "mincore does not tell the truth about files that this user does not own"
        )
    for place in places:
        if not place.counted and any(file.device == place.device for file in files):
            yield (
                f"read_bytes of files on {place.mount}: the kernel does not count reads from "
                f"{place.kind}; bytes from storage are told by the growth of the page cache instead"
            )
    if not watch.pressure:
        yield "pressure: this kernel keeps no account of it (PSI)"
    if not watch.lines.lines() and any(thread.waits for thread in watch.threads()):
        reason = watch.lines.failure or "no Python stack was found at a thread that waited"
        yield f"the Python line that waits: {reason}"
    quiet = [t for t in watch.threads() if t.last.queued is None]
    if quiet:
        yield "run-queue wait: this kernel keeps no scheduler statistics (schedstat)"


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
    return ", ".join(paths[:2]) + more

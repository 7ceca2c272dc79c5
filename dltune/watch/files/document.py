"""The document of a watch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dltune import __version__
from dltune.base import documents
from dltune.base.formatting import some
from dltune.findings.evidence import Evidence
from dltune.findings.registry import apply_rules
from dltune.schemas import io
from dltune.watch.files.file_figures import data_files
from dltune.watch.files.watch import Watch, WatchedProcess, WatchedThread

# of a thread's time asleep for storage and more it was reading
READING = 0.01


def assemble(watch: Watch, subject: str, partial: str | None) -> io.Io:
    """Return the document of a watch, with the conclusions from it."""
    read = data_files(watch)
    job_cpu = sum(thread.used.cpu for thread in watch.threads())
    seen = io.Watch(
        seconds=watch.ended - watch.began,
        faults_by="counters" if watch.faults.refused else "events",
        files=read,
        processes=tuple(_process(seen) for seen in watch.processes.values()),
        pressure=watch.pressure,
        lines=watch.lines.lines(),
        cost=io.Cost(watch.cpu, watch.looks, watch.cpu / job_cpu if job_cpu else None),
    )
    places = tuple({k.storage.device: k.storage for k in watch.files.known.values()}.values())
    hidden = tuple(_unseen(watch, places, read))
    document = io.Io(
        schema=io.SCHEMA,
        created=documents.now(),
        dltune=__version__,
        subject=subject,
        partial=partial,
        storage=places,
        watch=seen,
        experiment=None,
        findings=(),
        unseen=hidden,
    )
    return msgspec.structs.replace(document, findings=apply_rules(Evidence(io=document)))


def _process(seen: WatchedProcess) -> io.Process:
    # a thread's number can be reused: the last thread with the number represents it
    threads = {tid: thread for (tid, _), thread in seen.threads.items()}
    reads = seen.reads
    used = seen.last_stat.since(seen.first_stat)
    return io.Process(
        pid=seen.pid,
        parent=seen.parent,
        command=seen.command,
        user=seen.owner,
        seconds=seen.until - seen.since,
        ended=seen.ended,
        threads=tuple(_thread(tid, thread) for tid, thread in threads.items()),
        threads_ended=len(seen.threads) - len(seen.running & seen.threads.keys()),
        major=used.major,
        minor=used.minor,
        read_calls=reads.calls if reads else None,
        read=reads.copied if reads else None,
        storage_bytes=reads.storage if reads else None,
    )


def _thread(tid: int, seen: WatchedThread) -> io.Thread:
    seconds = max(0.0, seen.until - seen.since)
    used = seen.used
    waiting = min(seen.waited, seconds)
    reading = waiting + used.stat.kernel + (used.queued or 0.0)
    reads = seen.waits > 0 and waiting >= READING * seconds and reading > 0
    return io.Thread(
        tid=tid,
        name=used.stat.name,
        seconds=seconds,
        looks=seen.looks,
        cpu=used.cpu,
        kernel=used.stat.kernel,
        queued=used.queued,
        voluntary=used.voluntary,
        involuntary=used.involuntary,
        waiting=waiting,
        sleep_share=waiting / reading if reads else None,
        major=used.stat.major,
        minor=used.stat.minor,
    )


def _unseen(
    watch: Watch, places: Sequence[io.Storage], files: Sequence[io.DataFile]
) -> Iterator[str]:
    """Yield a sentence for each thing that a watch could not see, with the reason and a remedy."""
    hidden = [seen for seen in watch.processes.values() if not seen.may_look]
    if hidden:
        users = ", ".join(sorted({seen.owner for seen in hidden}))
        pids = ", ".join(str(seen.pid) for seen in hidden[:8])
        yield (
            f"files, read calls and storage bytes of {len(hidden)} of {len(watch.processes)} "
            f"processes of {users} are hidden from this user (pid {pids}); context "
            "switches, waits for a core and fault counts are complete"
        )
    if refused := watch.faults.refused:
        remedy = f" ({refused.remedy})" if refused.remedy else ""
        yield (
            f"offsets of page faults are unknown: {refused}{remedy}; fault counts per process are "
            "complete"
        )
    blind = [known.path for known in watch.files.known.values() if known.last is None]
    if blind:
        yield (
            f"the cached share of {some(blind, 2)} is unknown: this kernel has no cachestat, and "
            "mincore is reliable only for files that this user owns"
        )
    for place in places:
        if not place.counted and any(file.device == place.device for file in files):
            yield (
                f"the kernel does not count reads from {place.kind} ({place.mount}): bytes from "
                "storage are the growth of the page cache instead"
            )
    if not watch.pressure:
        yield "pressure is unknown: this kernel does not record it (PSI)"
    if not watch.lines.lines() and any(thread.waits for thread in watch.threads()):
        reason = watch.lines.failure or "no waiting thread had a Python stack"
        yield f"the Python line that waits is unknown: {reason}"
    if any(thread.last.queued is None for thread in watch.threads()):
        yield "waits for a core are unknown: this kernel has no scheduler statistics (schedstat)"

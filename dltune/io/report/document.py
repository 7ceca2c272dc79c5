"""What a watch saw, as the document tells it."""

from __future__ import annotations

import datetime

from dltune import __version__
from dltune.documents import io
from dltune.io.report.diagnosis import diagnose
from dltune.io.report.file_figures import data_files
from dltune.io.report.unseen import unseen
from dltune.io.report.watch import ProcessSeen, ThreadSeen, Watch

# of a thread's time asleep for storage and more it was reading
READING = 0.01


def assemble(watch: Watch, subject: str, partial: str | None) -> io.Io:
    """The document of a watch, with what follows from it."""
    files = data_files(watch)
    job_cpu = sum(thread.used().cpu for thread in watch.threads())
    seen = io.Watch(
        seconds=watch.ended - watch.began,
        faults_by="counters" if watch.faults.refused else "events",
        files=files,
        processes=tuple(_process(seen) for seen in watch.processes.values()),
        pressure=watch.pressure,
        lines=watch.lines.lines(),
        cost=io.Cost(watch.cpu, watch.looks, watch.cpu / job_cpu if job_cpu else None),
    )
    places = tuple({k.storage.device: k.storage for k in watch.files.known.values()}.values())
    hidden = tuple(unseen(watch, places, files))
    return io.Io(
        schema=io.SCHEMA,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        dltune=__version__,
        subject=subject,
        partial=partial,
        storage=places,
        watch=seen,
        experiment=None,
        findings=diagnose(seen, places),
        unseen=hidden,
    )


def _process(seen: ProcessSeen) -> io.Process:
    # a thread's number may be given again: the one seen last stands for it
    threads = {tid: thread for (tid, _), thread in seen.threads.items()}
    reads = None
    if seen.first_reads is not None and seen.last_reads is not None:
        reads = seen.last_reads.since(seen.first_reads)
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


def _thread(tid: int, seen: ThreadSeen) -> io.Thread:
    seconds = max(0.0, seen.until - seen.since)
    used = seen.used()
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

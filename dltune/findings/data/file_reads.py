"""Findings about how a job reads its data files, from the watch of the job.

The rules `no-data-file` and `reading-at-rest` report no problem of the job: no data file is
visible, or reading does not slow down the job.
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import count, file_name, share, size
from dltune.findings.evidence import Evidence, longest_wait, storage_share
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.schemas.io import DataFile, Storage

# bytes from storage per used byte
AMPLIFIED = 1.5
# bytes from storage; fewer are no finding
MIN_BYTES = 8 << 20


@rule(
    "amplified-reading",
    "data",
    summary="Storage delivers more than the job uses, because of read-ahead or page size.",
    fix="Switch read-ahead off for shuffled access and give hints for the next records (dltune "
    "plan io), or give the page cache more memory.",
    order=3,
)
def amplified_reading(evidence: Evidence) -> Iterator[Finding]:
    """Find storage that delivers more than the job uses, because of read-ahead or page size."""
    places = {place.device: place for place in evidence.io.storage} if evidence.io else {}
    for file in evidence.files:
        nbytes, amplification = file.storage_bytes or 0, file.amplification
        if amplification is None or amplification < AMPLIFIED or nbytes < MIN_BYTES:
            continue
        yield Finding(
            title=f"storage delivers {amplification:.1f} times the used part of "
            f"{file_name(file.path)}",
            evidence=f"{size(nbytes)} from storage, {size(file.asked or 0)} used; access is "
            f"{file.pattern.kind}, advice of the mapping: {file.advice or 'none'}"
            f"{_describe_read_ahead(places[file.device])}",
            fix=_choose_fix(file),
            share=storage_share(evidence),
            confidence="measured",
        )


def _describe_read_ahead(place: Storage) -> str:
    return f", read-ahead {size(place.read_ahead)}" if place.read_ahead else ""


def _choose_fix(file: DataFile) -> str:
    if file.pattern.kind == "sequential":
        return (
            "give the job more memory for the page cache, or use fewer readers: pages are dropped "
            "before they are used, or are read for other processes"
        )
    if file.advice == "random":
        return "store records together that are read together: they are smaller than pages"
    return (
        "switch read-ahead off (readahead=False in py-lmdb, MADV_RANDOM elsewhere), and give hints "
        "for the next batches (dltune plan io)"
    )


@rule(
    "missing-read-ahead",
    "data",
    summary="A file is read sequentially, although its mapping switches read-ahead off.",
    fix="Open the file with read-ahead (readahead=True in py-lmdb).",
    order=3,
)
def missing_read_ahead(evidence: Evidence) -> Iterator[Finding]:
    """Find a file that is read sequentially although its mapping switches read-ahead off."""
    for file in evidence.files:
        pattern, nbytes = file.pattern, file.storage_bytes or 0
        if pattern.kind == "sequential" and file.advice == "random" and nbytes >= MIN_BYTES:
            yield Finding(
                title=f"{file_name(file.path)} is read sequentially, with read-ahead switched off",
                evidence=f"access is sequential ({pattern.offsets} offsets seen), but the mapping "
                "announces random access",
                fix="open the file with read-ahead: readahead=True in py-lmdb, no MADV_RANDOM "
                "elsewhere",
                share=storage_share(evidence),
                confidence="measured",
            )


# pages of a piece for which read-ahead is useful
PAGES = 4
PAGE = 4096  # bytes
BY_PAGE = (
    "open the file with read-ahead (readahead=True in py-lmdb, no MADV_RANDOM elsewhere), since "
    "each page is now a separate request; or "
)


@rule(
    "shuffled-reading",
    "data",
    summary="A file is read in shuffled order without hints to the kernel.",
    fix="Give hints for the records of the next batches (dltune plan io).",
    order=3,
)
def shuffled_reading(evidence: Evidence) -> Iterator[Finding]:
    """Find a file that is read in shuffled order without hints to the kernel."""
    for file in evidence.files:
        if file.pattern.kind == "shuffled" and (file.storage_bytes or 0) >= MIN_BYTES:
            yield Finding(
                title=f"{file_name(file.path)} is read in shuffled order, one record at a time",
                evidence=f"{file.pattern.offsets} offsets seen, pieces of "
                f"{size(file.pattern.run or 0)}; the kernel has no hint which one comes next",
                fix=(BY_PAGE if _is_read_by_page(file) else "")
                + "give hints for the records of the next batches (posix_fadvise(WILLNEED), from "
                "the sampler's order): dltune plan io does that for the unchanged job",
                share=storage_share(evidence),
                confidence="measured",
            )


def _is_read_by_page(file: DataFile) -> bool:
    return file.advice == "random" and (file.pattern.run or 0) >= PAGES * PAGE


# bytes, and waiting calls for a meaningful share
SMALL, MIN_CALLS = 128 << 10, 20


@rule(
    "small-reads",
    "data",
    summary="Read calls request little data at a time.",
    fix="Read 1 MiB or more at a time.",
    order=3,
)
def small_reads(evidence: Evidence) -> Iterator[Finding]:
    """Find read calls that request little data at a time."""
    for file in evidence.files:
        waits = sum(request.seen for request in file.requests)
        small = sum(request.seen for request in file.requests if request.size < SMALL)
        if waits >= MIN_CALLS and small > waits / 2 and file.pattern.kind != "shuffled":
            largest = max(request.size for request in file.requests)
            yield Finding(
                title=f"{file_name(file.path)} is read in small pieces",
                evidence=f"{share(small / waits)} of the read calls that waited request less than "
                f"{size(SMALL)}, and none more than {size(largest)}",
                fix="read 1 MiB or more at a time: buffer_size in TFRecordDataset, buffering in "
                "open()",
                share=storage_share(evidence),
                confidence="measured",
            )


MIB = 1 << 20
# voluntary switches per MiB
MANY_SWITCHES = 40


@rule(
    "many-sleeps",
    "data",
    summary="Threads sleep often for little data.",
    fix="Read more at a time: larger reads, or hints some batches ahead.",
    order=4,
)
def many_sleeps(evidence: Evidence) -> Iterator[Finding]:
    """Find threads that sleep often for little data."""
    watch = evidence.watch
    if watch is None:
        return
    used = sum(file.asked or 0 for file in watch.files)
    reading = [(p, t) for p, t in watch.readers if t.sleep_share is not None]
    switches = sum(thread.voluntary for _, thread in reading)
    if used >= MIB and switches / (used / MIB) >= MANY_SWITCHES:
        pids = {process.pid for process, _ in reading}
        yield Finding(
            title=f"reading threads sleep {count(switches / (used / MIB))} times for each MiB that "
            "they use",
            evidence=f"{count(switches)} voluntary switches of {len(reading)} threads in "
            f"{len(pids)} of {len(watch.processes)} processes, {size(used)} used",
            fix="read more at a time: larger reads, or hints some batches ahead",
            share=storage_share(evidence),
            confidence="measured",
        )


# share of a thread's time
QUEUED = 0.20


@rule(
    "queued-threads",
    "data",
    summary="Reading threads are ready but wait for a CPU.",
    fix="Run at most as many reading and decoding threads as there are cores.",
    order=4,
)
def queued_threads(evidence: Evidence) -> Iterator[Finding]:
    """Find reading threads that are ready but wait for a CPU. If the job was observed, rules of the
    group `cores` report them."""
    if evidence.observation:
        return
    queued = [
        (thread.queued, process, thread)
        for process, thread in evidence.readers
        if thread.queued and thread.queued > QUEUED * thread.seconds
    ]
    if queued:
        seconds, process, thread = max(queued, key=lambda each: each[0])
        yield Finding(
            title=f"{len(queued)} reading thread{'s wait' if len(queued) > 1 else ' waits'} for a "
            f"CPU for more than {share(QUEUED)} of the time",
            evidence=f"most: thread {thread.tid} ({thread.name}) of pid {process.pid}, "
            f"{seconds:.1f} of {thread.seconds:.1f} s ready and not running; "
            f"{thread.involuntary / thread.seconds:.0f} involuntary switches/s",
            fix="run at most as many reading and decoding threads as there are cores, or free "
            "some cores",
            confidence="measured",
        )


# processes that touch each page
SAME_PAGES = 1.5


@rule(
    "shared-pages",
    "data",
    summary="Several processes fault on the same pages of a file.",
    fix="Let one process per node read, or let each process read only its own records.",
    order=2,
)
def shared_pages(evidence: Evidence) -> Iterator[Finding]:
    """Find processes that fault on the same pages of a file."""
    watch = evidence.watch
    for file in watch.files if watch else ():
        readers = [p for p in watch.processes if p.pid in file.processes] if watch else []
        if file.shared is None or file.shared < SAME_PAGES or len(readers) < 2:
            continue
        switches = sum(t.voluntary for p in readers for t in p.threads)
        yield Finding(
            title=f"{len(readers)} processes fault on the same pages of {file_name(file.path)}",
            evidence=f"{file.shared:.1f} processes faulted on each page on average; "
            f"{count(switches)} voluntary context switches for {size(file.asked or 0)} used and "
            f"{size(file.storage_bytes or 0)} from storage",
            fix="let one process per node read and pass the records on, or let each process read "
            "its own records by exact offset (dltune lmdb index)"
            if file.format == "lmdb"
            else "give each process its own part of the file, or let one process read for all",
            share=storage_share(evidence),
            confidence="measured",
        )


# share of a thread's time in which it waits for storage: below the first share, storage does not
# slow it down; from the second share on, the wait has a cost
LITTLE, GRAVE = 0.02, 0.10
# samples of a thread, for an estimate
MIN_SAMPLES = 20


@rule(
    "slow-store",
    "data",
    summary="A thread waits for storage.",
    fix="Read ahead; the findings about the job's files say how.",
)
def slow_store(evidence: Evidence) -> Iterator[Finding]:
    """Find the thread that waits most for storage."""
    watch = evidence.watch
    longest = longest_wait(evidence)
    if watch is None or longest is None:
        return
    process, thread = longest
    waits = thread.waiting / thread.seconds
    if waits < LITTLE or thread.looks < MIN_SAMPLES:
        return
    line = watch.lines[0] if watch.lines else None
    location = f"; Python is at {line.where} in {share(line.share)} of samples" if line else ""
    asleep = (
        f", asleep for {share(thread.sleep_share)} of its reading time"
        if thread.sleep_share
        else ""
    )
    yield Finding(
        title=f"a thread of pid {process.pid} waits for storage for {share(waits)} of its time",
        evidence=f"thread {thread.tid} ({thread.name}): {thread.waiting:.1f} of "
        f"{thread.seconds:.1f} s"
        f"{asleep}; {thread.voluntary / thread.seconds:.0f} voluntary switches/s{location}",
        fix="read ahead: the findings about the job's files say how; dltune io-report --file "
        "measures the limit of the storage"
        if waits >= GRAVE
        else None,
        share=storage_share(evidence) if waits >= GRAVE else None,
        confidence="measured",
    )


@rule(
    "no-data-file",
    "data",
    summary="The job opened no data file that dltune can see.",
    fix="Watch the job as its own user or as root.",
    order=5,
    is_limitation=True,
)
def no_data_file(evidence: Evidence) -> Iterator[Finding]:
    """Find a job without a visible data file."""
    watch = evidence.watch
    if watch is None or watch.files or any(slow_store(evidence)):
        return
    denied = any(process.read is None and not process.ended for process in watch.processes)
    details = [f"{len(watch.processes)} processes were watched for {watch.seconds:.0f} s"]
    if denied:
        details.append("some of them belong to another user")
    largest = max(watch.processes, key=lambda process: process.read or 0, default=None)
    if largest and largest.read:
        # the kernel adds the counts of children for which the process has waited
        details.append(
            f"pid {largest.pid} and its ended children read {size(largest.read)} in "
            f"{largest.read_calls:,} read calls, from pipes or from files that are under 1 MiB or "
            "open only briefly"
        )
    yield Finding(
        title="no data file was found",
        evidence="; ".join(details),
        fix="run dltune as the job's user or as root" if denied else None,
    )


# rules that report slow reading
_PROBLEMS = (
    amplified_reading,
    many_sleeps,
    missing_read_ahead,
    shared_pages,
    shuffled_reading,
    slow_store,
    small_reads,
)


@rule(
    "reading-at-rest",
    "data",
    summary="Reading data does not slow down the job.",
    fix="Nothing has to be done.",
    order=5,
)
def reading_at_rest(evidence: Evidence) -> Iterator[Finding]:
    """Find reading that does not slow down the job."""
    watch = evidence.watch
    if watch is None or not watch.files or any(any(rule(evidence)) for rule in _PROBLEMS):
        return
    nbytes = sum(file.storage_bytes or 0 for file in watch.files)
    longest = max((t.waiting / t.seconds for _, t in watch.readers), default=0.0)
    is_counted = any(file.storage_bytes is not None for file in watch.files)
    yield Finding(
        title="reading does not slow down the job: the data came from the page cache"
        if is_counted and nbytes < MIB
        else "reading does not slow down the job",
        evidence=f"{size(nbytes)} from storage in {watch.seconds:.0f} s; the thread that waited "
        f"most waited for {share(longest)} of its time",
        confidence="measured",
    )

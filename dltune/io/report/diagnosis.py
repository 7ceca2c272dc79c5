"""What follows from a watched job's figures: a sentence each, its evidence, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dltune.documents.io import DataFile, Finding, Process, Storage, Thread, Watch
from dltune.words import count, file_name, share, size

MIB = 1 << 20
# a thread that waits for storage less than this of its time is not held up by it; a job that waits
# more than GRAVE is
LITTLE, GRAVE = 0.02, 0.10
# processes that touch each page: from here on they read the same
SAME_PAGES = 1.5
# bytes from storage for each byte asked
AMPLIFIED = 1.5
# bytes from storage that are worth a finding
WORTH = 8 * MIB
SMALL_REQUEST = 128 << 10
# of a thread's time
QUEUED, PRESSED = 0.20, 0.05
# voluntary switches for a MiB
MANY_SWITCHES = 40


class Graded(NamedTuple):
    """How grave it is, and a `Finding`."""

    gravity: float
    said: str
    evidence: str
    advice: str | None = None


def by_gravity(graded: Iterable[Graded]) -> tuple[Finding, ...]:
    """The gravest first."""
    ordered = sorted(graded, key=lambda one: -one.gravity)
    return tuple(Finding(said, evidence, advice) for _, said, evidence, advice in ordered)


def diagnose(watch: Watch, storage: Sequence[Storage]) -> tuple[Finding, ...]:
    """The gravest first."""
    places = {place.device: place for place in storage}
    graded = [each for f in watch.files for each in _of_file(f, watch, places[f.device])]
    graded += [*_of_waits(watch), *_of_switches(watch)]
    if not any(each.gravity >= 1 for each in graded):
        graded.append(_not_the_reading(watch))
    return by_gravity([*graded, *_of_queues(watch), *_of_memory(watch)])


def _of_file(file: DataFile, watch: Watch, place: Storage) -> Iterator[Graded]:
    name, pattern = file_name(file.path), file.pattern
    came, asked = file.storage_bytes or 0, file.asked or 0
    readers = [p for p in watch.processes if p.pid in file.processes]
    if file.shared is not None and file.shared >= SAME_PAGES and len(readers) > 1:
        switches = sum(t.voluntary for p in readers for t in p.threads)
        yield Graded(
            5.0,
            f"{len(readers)} processes fault on the same pages of {name}",
            f"a page faulted on was faulted on by {file.shared:.1f} processes on average; "
            f"{count(switches)} voluntary context switches for {size(asked)} used and "
            f"{size(came)} from storage",
            "let one process of the node read and the others take from it, or let each find "
            "its own records by exact offset (dltune lmdb index) instead of passing the others'"
            if file.format == "lmdb"
            else "give each process a part of its own, or let one of them read for all",
        )
    if file.amplification is not None and file.amplification >= AMPLIFIED and came >= WORTH:
        ahead = f", read-ahead {size(place.read_ahead)}" if place.read_ahead else ""
        yield Graded(
            4.0,
            f"storage delivers {file.amplification:.1f} times what is used of {name}",
            f"{size(came)} from storage, {size(asked)} used; access is {pattern.kind}, the "
            f"mapping's advice {file.advice or 'none'}{ahead}",
            _against_amplification(file),
        )
    if pattern.kind == "sequential" and file.advice == "random" and came >= WORTH:
        yield Graded(
            4.0,
            f"{name} is read front to back with read-ahead switched off",
            f"access is sequential ({pattern.offsets} offsets seen), the mapping was told to "
            "expect random access",
            "open it with read-ahead: readahead=True in py-lmdb, no MADV_RANDOM elsewhere",
        )
    if pattern.kind == "shuffled" and came >= WORTH:
        yield Graded(
            3.0,
            f"{name} is read in shuffled order, one piece after the other",
            f"{pattern.offsets} offsets seen, pieces of {size(pattern.run or 0)}; nothing "
            "tells the kernel which comes next",
            "tell it: posix_fadvise(WILLNEED) for the records of the next batches, from the "
            "sampler and the index of the file, while the job reads as before",
        )
    waits = sum(request.seen for request in file.requests)
    small = sum(request.seen for request in file.requests if request.size < SMALL_REQUEST)
    if waits >= 20 and small > waits / 2 and pattern.kind != "shuffled":
        largest = max(request.size for request in file.requests)
        yield Graded(
            3.0,
            f"{name} is read in small pieces",
            f"{share(small / waits)} of the read calls that waited asked for less than "
            f"{size(SMALL_REQUEST)}, none for more than {size(largest)}",
            "read 1 MiB and more at a time: buffer_size of TFRecordDataset, buffering of open",
        )


def _against_amplification(file: DataFile) -> str:
    if file.pattern.kind == "sequential":
        return (
            "pages are dropped before they are used, or are read for others: give the job more "
            "memory for the page cache, or fewer readers"
        )
    if file.advice == "random":
        return "records are smaller than pages: lay those out together that are read together"
    return (
        "switch read-ahead off for it (readahead=False in py-lmdb, MADV_RANDOM elsewhere) and hint "
        "the records of the next batches with posix_fadvise(WILLNEED)"
    )


def _threads(watch: Watch) -> list[tuple[Process, Thread]]:
    return [(p, t) for p in watch.processes for t in p.threads if t.seconds > 0]


def _of_waits(watch: Watch) -> Iterator[Graded]:
    readers = _threads(watch)
    if not readers:
        return
    process, thread = max(readers, key=lambda one: one[1].waiting / one[1].seconds)
    waits = thread.waiting / thread.seconds
    if waits >= LITTLE and thread.looks >= 20:
        line = watch.lines[0] if watch.lines else None
        at = f"; Python stands at {line.where} in {share(line.share)} of looks" if line else ""
        asleep = (
            f", asleep for {share(thread.sleep_share)} of its reading" if thread.sleep_share else ""
        )
        yield Graded(
            6.0 if waits >= GRAVE else 1.0,
            f"a thread of pid {process.pid} waits for storage {share(waits)} of its time",
            f"thread {thread.tid} ({thread.name}): {thread.waiting:.1f} of {thread.seconds:.1f} s"
            f"{asleep}; {thread.voluntary / thread.seconds:.0f} voluntary switches/s{at}",
            "read ahead of the need: the findings on its files say how; dltune io-report "
            "--file tells what the storage could give"
            if waits >= GRAVE
            else None,
        )


def _of_queues(watch: Watch) -> Iterator[Graded]:
    readers = _threads(watch)
    times = [(thread.queued or 0.0, process, thread) for process, thread in readers]
    queued = [one for one in times if one[0] > QUEUED * one[2].seconds]
    if queued:
        seconds, process, thread = max(queued, key=lambda one: one[0])
        yield Graded(
            2.0,
            f"{len(queued)} thread{'s wait' if len(queued) > 1 else ' waits'} for a CPU more "
            f"than {share(QUEUED)} of the time",
            f"most: thread {thread.tid} ({thread.name}) of pid {process.pid}, {seconds:.1f} of "
            f"{thread.seconds:.1f} s ready and not running; "
            f"{thread.involuntary / thread.seconds:.0f} involuntary switches/s",
            "run no more readers and decoding threads than there are cores, or keep cores free",
        )


def _of_switches(watch: Watch) -> Iterator[Graded]:
    asked = sum(file.asked or 0 for file in watch.files)
    reading = [(p, t) for p, t in _threads(watch) if t.sleep_share is not None]
    switches = sum(thread.voluntary for _, thread in reading)
    if asked >= MIB and switches / (asked / MIB) >= MANY_SWITCHES:
        pids = {process.pid for process, _ in reading}
        yield Graded(
            2.5,
            f"threads that read go to sleep {count(switches / (asked / MIB))} times for each "
            "MiB that they use",
            f"{count(switches)} voluntary switches of {len(reading)} threads in {len(pids)} of "
            f"{len(watch.processes)} processes, {size(asked)} used",
            "ask for more at a time: larger reads, or hints some batches ahead",
        )


def _of_memory(watch: Watch) -> Iterator[Graded]:
    for pressure in watch.pressure:
        if pressure.resource == "memory" and pressure.some >= PRESSED:
            yield Graded(
                2.0,
                f"memory is short: the {pressure.of} waited for it "
                f"{share(pressure.some)} of the time",
                f"pressure on memory: some {share(pressure.some)}"
                + (f", all {share(pressure.full)}" if pressure.full is not None else ""),
                "the page cache that reading needs is taken back: smaller shuffle buffers, "
                "fewer processes",
            )


def _not_the_reading(watch: Watch) -> Graded:
    came = sum(file.storage_bytes or 0 for file in watch.files)
    most = max((t.waiting / t.seconds for _, t in _threads(watch)), default=0.0)
    if not watch.files:
        denied = any(process.read is None and not process.ended for process in watch.processes)
        return Graded(
            10.0,
            "no data file was seen",
            f"{len(watch.processes)} processes were watched for {watch.seconds:.0f} s"
            + ("; not all of them may be looked into" if denied else ""),
            "watch as the job's user or as root" if denied else None,
        )
    counted = any(file.storage_bytes is not None for file in watch.files)
    return Graded(
        10.0,
        "reading is not held up: the data came from the page cache"
        if counted and came < MIB
        else "reading is not what this job waits for",
        f"{size(came)} from storage in {watch.seconds:.0f} s; the thread that waited most did so "
        f"for {share(most)} of its time",
    )

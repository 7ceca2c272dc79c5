"""The io document: how training data was read, what storage can do, and what follows.

Times are seconds, sizes and offsets bytes, rates per second. None is "could not be seen"; why not
stands in `Io.unseen`. *Asked* is what the job used: bytes copied by read calls, and pages that it
touched in mappings. *Storage* is what came from below the page cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from dltune.documents import files, finding
from dltune.documents.faults import AMOUNT, Bound, at_least, at_most, each, one_of, path, repeated
from dltune.documents.finding import Finding
from dltune.words import size

SCHEMA = "dltune.io/2"
_POWER_OF_TWO = Bound("a power of two", lambda size: size >= 1 and not size & (size - 1))

PatternKind = Literal["sequential", "strided", "shuffled", "mixed", "unknown"]
# where offsets come from: addresses of page faults, arguments of read calls that were seen waiting,
# positions of descriptors, pages that became resident
Source = Literal["faults", "calls", "positions", "residency"]
FileFormat = Literal[
    "lmdb", "npy", "npz", "arrow", "parquet", "safetensors", "tfrecord", "hdf5", "tar", "other"
]
Method = Literal["mmap", "pread", "direct"]
Walk = Literal["cursor", "offsets"]


class Storage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mounted file system that data files lie on.

    `device` is "major:minor" as the kernel counts it. `read_ahead` is what the kernel reads ahead
    of a sequential reader at most. `rotational`, `scheduler` and `requests` (that may wait in the
    device's queue) are of the block device, None where there is none. `counted`: whether the
    kernel's `read_bytes` tells of reads from it (not so on FUSE and network file systems).
    """

    device: str
    mount: str
    source: str
    kind: str
    read_ahead: int | None
    rotational: bool | None
    scheduler: str | None
    requests: int | None
    counted: bool


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How offsets followed each other within one thread.

    `stride`: bytes from one piece to the next, the median of forward jumps. `run`: bytes read in
    one piece, the median. `share`: of the offsets seen, those of threads with this very pattern.
    """

    kind: PatternKind
    source: Source | None
    offsets: int
    stride: float | None
    run: float | None
    share: float


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read calls of one size, rounded up to a power of two: `seen` waiting so many times."""

    size: int
    seen: int


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data file that the job has mapped or open.

    `mapped`: bytes of mappings, the most that one process has. `resident`: bytes of them in the
    processes' page tables, summed. `cached`: bytes in the page cache at the end. `storage_bytes`:
    what came into the page cache meanwhile. `asked`: what the job used; with `storage_bytes` it
    makes `amplification`. `advice` is that of the mapping ("normal", "sequential", "random");
    `direct`: opened with O_DIRECT. `major` and `minor` are page faults on its mappings, `shared`
    how many processes faulted on a page of it on average. `hot` are the offsets with the most
    faults, in pieces of `hot_size` bytes: (offset, faults).
    """

    path: str
    format: FileFormat
    size: int
    device: str
    processes: tuple[int, ...]
    mapped: int
    resident: int | None
    cached: int | None
    storage_bytes: int | None
    asked: int | None
    amplification: float | None
    advice: str | None
    direct: bool
    major: int | None
    minor: int | None
    shared: float | None
    hot_size: int
    hot: tuple[tuple[int, int], ...]
    requests: tuple[Request, ...]
    pattern: Pattern


class Thread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thread over the `seconds` that it was watched.

    `cpu`: seconds on a CPU, `kernel` those of them in the kernel, `queued`: ready to run and
    waiting for a CPU. `voluntary`, `involuntary`: context switches. `waiting`: seconds asleep for
    storage (in a read call or a page fault), estimated from `looks` looks at it. `sleep_share`:
    of the time it spent reading (asleep for storage, queued, and in the kernel), the share asleep;
    None for a thread that was not seen reading.
    """

    tid: int
    name: str
    seconds: float
    looks: int
    cpu: float
    kernel: float
    queued: float | None
    voluntary: int
    involuntary: int
    waiting: float
    sleep_share: float | None
    major: int
    minor: int


class Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`read_calls`, `read` (bytes copied by them) and `storage_bytes` (the kernel's `read_bytes`)
    are None when the process may not be looked into. `ended`: it ended while it was watched."""

    pid: int
    parent: int
    command: str
    user: str
    seconds: float
    ended: bool
    threads: tuple[Thread, ...]
    threads_ended: int
    major: int
    minor: int
    read_calls: int | None
    read: int | None
    storage_bytes: int | None


class Pressure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Share of the watched time in which some (`full`: all) tasks of the machine, or of the job's
    cgroup, waited for the resource."""

    resource: Literal["io", "memory", "cpu"]
    of: str
    some: float
    full: float | None


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of Python at which a thread stood while it waited for storage: "train.py:31 (load)".

    `share`: of the looks at threads that waited.
    """

    where: str
    share: float
    looks: int


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What watching cost: CPU seconds of dltune and its children, and how often it looked.

    `share`: of the CPU time that the watched processes were given.
    """

    cpu: float
    looks: int
    share: float | None


class Watch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A running job. `faults_by`: "events" (page faults with their addresses) or "counters"."""

    seconds: float
    faults_by: Literal["events", "counters"]
    files: tuple[DataFile, ...]
    processes: tuple[Process, ...]
    pressure: tuple[Pressure, ...]
    lines: tuple[Line, ...]
    cost: Cost

    @property
    def readers(self) -> list[tuple[Process, Thread]]:
        """All threads that were watched for some time."""
        return [(p, t) for p in self.processes for t in p.threads if t.seconds > 0]


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Median of repeated runs; `spread` is half the interquartile range over the median."""

    median: float
    spread: float
    samples: int


class Strided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Processes that share a window of the file record by record, as the thesis' Fig. 3.4.

    `walk` "cursor": each goes past the others' records as LMDB's cursor does (their first pages are
    touched); "offsets": it knows where its own lie. `throughput`: bytes of records a second, all
    readers together, from the first one's start to the last one's end. `switches`: voluntary ones
    of all readers, per MiB of records. `sleep_share`: of the readers' time, that asleep. `extra`:
    bytes of pages touched beyond each reader's own records (Fig. 4.2), per byte of records.
    `storage_bytes`: read from storage per byte of records, None where it is not told.
    """

    readers: int
    walk: Walk
    method: Method
    throughput: Measured
    switches: Measured
    involuntary: Measured
    sleep_share: Measured
    major: Measured
    extra: float
    storage_bytes: float | None


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One reader, one block size, front to back: the thesis' Fig. 5.1."""

    method: Method
    block: int
    throughput: Measured
    switches: Measured
    sleep_share: Measured


class Random(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records in shuffled order, one reader; `ahead`: hints (WILLNEED) given so many records ahead,
    `advised`: the mapping or descriptor was told to expect random access."""

    method: Method
    advised: bool
    ahead: int
    throughput: Measured
    latency: Measured
    storage_bytes: float | None


class Seek(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What it costs to come to a record from the front, as LMDB's cursor does: seconds and pages
    touched for each record that is passed, cold; and of finding it by exact offset."""

    passed: int
    seconds: Measured
    pages: float
    by_offset: float


class Ceiling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that the storage gave: `parallel` requests of `block` bytes by O_DIRECT, or by plain
    reads of cold pages where it has no O_DIRECT."""

    method: Method
    block: int
    parallel: int
    throughput: Measured

    @property
    def requests(self) -> str:
        """How it was asked for, in words."""
        how = "O_DIRECT" if self.method == "direct" else self.method
        at_once = f"{self.parallel} at once" if self.parallel > 1 else "one after the other"
        return f"requests of {size(self.block)}, {at_once} ({how})"


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file read cold in several ways that took turns.

    `records`: in the window that was read, with their `mean_size`; for files other than LMDB these
    are equal pieces. `window` is in bytes. `cold`: how it was confirmed that pages were dropped.
    `share_of_ceiling`: throughput of the present way (one reader through a mapping with the
    cursor's walk) over the ceiling.
    """

    path: str
    format: FileFormat
    size: int
    device: str
    readers: tuple[int, ...]
    records: int
    mean_size: float
    window: int
    repeats: int
    seconds: float
    cold: str
    ceiling: Ceiling
    strided: tuple[Strided, ...]
    blocks: tuple[Block, ...]
    shuffled: tuple[Random, ...]
    seek: Seek | None
    share_of_ceiling: float


class Io(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`subject`: the command, "pid N", or the file's path. `unseen`: what could not be seen and
    why, a sentence each. `partial`: why the measurement ended early, None when it did not."""

    schema: str
    created: str
    dltune: str
    subject: str
    partial: str | None
    storage: tuple[Storage, ...]
    watch: Watch | None
    experiment: Experiment | None
    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]


def _second(first: dict[str, Any]) -> dict[str, Any]:
    """A document of the first schema, which had findings of its own kind."""
    return finding.of_another_kind(first, claim="said", cure="advice")


def check(io: Io) -> list[str]:
    """All that cannot be true of an io document, one sentence each, the field's path first."""
    faults = []
    if (io.watch is None) == (io.experiment is None):
        faults.append("watch must be there, or experiment, and not both")
    devices = [storage.device for storage in io.storage]
    faults += repeated("storage", "device", devices)
    faults += _numbers("", io)
    faults += finding.faults("findings", io.findings)
    device = one_of(devices, "the storage devices of this document")
    if io.watch:
        faults += _watch_faults(io.watch, device)
    if io.experiment:
        faults += _experiment_faults(io.experiment, device)
    return faults


load = files.reader(Io, SCHEMA, check, {1: _second})


def _watch_faults(watch: Watch, device: Bound) -> Iterator[str]:
    pids = [process.pid for process in watch.processes]
    yield from repeated("watch.processes", "pid", pids)
    watched = one_of(pids, "the processes of this document")
    for process in watch.processes:
        here = f"watch.processes ({process.pid}).threads"
        yield from repeated(here, "tid", (thread.tid for thread in process.threads))
        for thread in process.threads:
            yield from at_most(1).of(f"{here} ({thread.tid})", thread, "sleep_share")
    for file in watch.files:
        here = f"watch.files ({file.path})"
        yield from device.of(here, file, "device")
        yield from watched.faults(f"{here}.processes", *file.processes)
        yield from at_most(1).of(f"{here}.pattern", file.pattern, "share")
        if (file.pattern.source is None) != (file.pattern.kind == "unknown"):
            yield f"{here}.pattern.source must be there for a known kind, and for no other"
        for request in file.requests:
            yield from _POWER_OF_TWO.of(f"{here}.requests", request, "size")
    for line in watch.lines:
        yield from at_most(1).of(f"watch.lines ({line.where})", line, "share")
    for pressure in watch.pressure:
        here = f"watch.pressure ({pressure.of} {pressure.resource})"
        yield from at_most(1).of(here, pressure, "some", "full")


def _experiment_faults(experiment: Experiment, device: Bound) -> Iterator[str]:
    yield from device.of("experiment", experiment, "device")
    yield from at_least(1).of("experiment", experiment, "records", "window", "repeats")
    asked = one_of(experiment.readers, "experiment.readers")
    for strided in experiment.strided:
        yield from asked.of("experiment.strided", strided, "readers")
        here = f"experiment.strided ({strided.readers}).sleep_share"
        yield from at_most(1).of(here, strided.sleep_share, "median")
    for block in experiment.blocks:
        yield from at_least(1).of("experiment.blocks", block, "block")


def _numbers(here: str, value: object) -> Iterator[str]:
    """Every number of the document is finite and not negative."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _numbers(path(here, field), getattr(value, field))
    elif isinstance(value, tuple):
        for at, item in each(here, value):
            yield from _numbers(at, item)
    elif isinstance(value, int | float):
        yield from AMOUNT.faults(here, value)

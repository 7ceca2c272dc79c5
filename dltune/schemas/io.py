"""The io document: how a job reads its data, and what the storage can deliver. `dltune io-report`
writes it.

Times are in seconds, sizes and offsets in bytes, and rates per second. A null value could not be
observed; `unseen` gives the reason. *Asked* bytes are bytes that the job used: bytes copied by read
calls and pages accessed in mappings. *Storage* bytes came from below the page cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import (
    AMOUNT,
    LABEL,
    Bound,
    at_least,
    at_most,
    each,
    field_path,
    one_of,
    repeated,
)
from dltune.base.formatting import size
from dltune.schemas.diagnosis import Finding

SCHEMA = "dltune.io/1"
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
    """A mounted file system that contains data files.

    `device`: device number as `major:minor`.
    `mount`, `source`, `kind`: mount point, mounted device and file system type.
    `read_ahead`: largest read-ahead of the kernel for a sequential reader.
    `rotational`, `scheduler`, `requests`: properties of the block device: rotating disk, I/O
      scheduler and queue length; null without a block device.
    `counted`: true if the kernel's `read_bytes` includes reads from this file system (not on FUSE
      and network file systems).
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
    """The order of offsets within one thread.

    `kind`: kind of pattern.
    `source`: where offsets were observed: page `faults`, read `calls`, descriptor `positions`, or
      `residency` of pages.
    `offsets`: number of offsets observed.
    `stride`: median distance of forward jumps.
    `run`: median number of bytes read in one piece.
    `share`: share of the offsets that belong to threads with this pattern.
    """

    kind: PatternKind
    source: Source | None
    offsets: int
    stride: float | None
    run: float | None
    share: Annotated[float, at_most(1)]

    def relation_faults(self) -> Iterator[str]:
        if (self.source is None) != (self.kind == "unknown"):
            yield "source must be null exactly when kind is 'unknown'"


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read calls of one size.

    `size`: size, rounded up to a power of two.
    `seen`: number of times that such a call was observed waiting.
    """

    size: Annotated[int, _POWER_OF_TWO]
    seen: int


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data file that the job has mapped or opened.

    `path`, `format`, `size`: the file.
    `device`: device number of its file system.
    `processes`: processes that use it.
    `mapped`: mapped bytes, the largest value of a process.
    `resident`: mapped bytes in the page tables of all processes.
    `cached`: bytes in the page cache at the end.
    `storage_bytes`: bytes read from storage during the observation.
    `asked`: bytes that the job used.
    `amplification`: `storage_bytes` divided by `asked`.
    `advice`: advice of the mapping: `normal`, `sequential` or `random`.
    `direct`: true if opened with `O_DIRECT`.
    `major`, `minor`: page faults on its mappings.
    `shared`: mean number of processes with a fault on the same page.
    `hot`: offsets with the most faults, each with the number of faults.
    `hot_size`: size of the pieces in `hot`.
    `requests`: read calls by size.
    `pattern`: order of offsets.
    """

    path: Annotated[str, LABEL]
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
    """A thread during the observation.

    `tid`, `name`: the thread.
    `seconds`: duration of the observation.
    `looks`: number of samples.
    `cpu`: seconds on a CPU.
    `kernel`: part of `cpu` spent in the kernel.
    `queued`: seconds in which it was ready and waited for a CPU.
    `voluntary`, `involuntary`: context switches.
    `waiting`: estimated seconds asleep for storage, in a read call or a page fault.
    `sleep_share`: share of its reading time (asleep, queued and in the kernel) that it slept; null
      if the thread was not observed reading.
    `major`, `minor`: page faults.
    """

    tid: Annotated[int, LABEL]
    name: str
    seconds: float
    looks: int
    cpu: float
    kernel: float
    queued: float | None
    voluntary: int
    involuntary: int
    waiting: float
    sleep_share: Annotated[float | None, at_most(1)]
    major: int
    minor: int


class Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process of the job.

    `pid`, `parent`: process and parent process.
    `command`, `user`: command line and user.
    `seconds`: duration of the observation.
    `ended`: true if it ended during the observation.
    `threads`: threads.
    `threads_ended`: number of threads that ended.
    `major`, `minor`: page faults.
    `read_calls`, `read`: read calls, and bytes that they copied; null without permission.
    `storage_bytes`: the kernel's `read_bytes`; null without permission.
    """

    pid: Annotated[int, LABEL]
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

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("threads", "tid", (thread.tid for thread in self.threads))


class Pressure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pressure on a resource, as the kernel reports it.

    `resource`: `io`, `memory` or `cpu`.
    `of`: the machine, or the job's control group.
    `some`, `full`: share of the time in which some, or all, tasks waited for the resource.
    """

    resource: Annotated[Literal["io", "memory", "cpu"], LABEL]
    of: str
    some: Annotated[float, at_most(1)]
    full: Annotated[float | None, at_most(1)]


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of Python code at which a thread waited for storage.

    `where`: the line, such as `train.py:31 (load)`.
    `share`: share of the samples of waiting threads.
    `looks`: number of samples.
    """

    where: Annotated[str, LABEL]
    share: Annotated[float, at_most(1)]
    looks: int


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cost of the observation.

    `cpu`: CPU seconds of dltune and its children.
    `looks`: number of samples.
    `share`: `cpu` divided by the CPU time of the observed processes.
    """

    cpu: float
    looks: int
    share: float | None


class Watch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Observation of a running job.

    `seconds`: duration.
    `faults_by`: `events`: page faults with their addresses; or `counters`.
    `files`: data files.
    `processes`: processes of the job.
    `pressure`: pressure on resources.
    `lines`: Python code that waited for storage.
    `cost`: cost of the observation.
    """

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

    def relation_faults(self) -> Iterator[str]:
        pids = [process.pid for process in self.processes]
        yield from repeated("processes", "pid", pids)
        watched = one_of(pids, "the pids in watch.processes")
        for here, file in each("files", self.files):
            yield from watched.faults(f"{here}.processes", *file.processes)


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Repeated measurements.

    `median`: median.
    `spread`: half the interquartile range divided by the median.
    `samples`: number of measurements.
    """

    median: float
    spread: float
    samples: int


class Strided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several processes read the records of a file in turns (figure 3.4 of Pumma's thesis).

    `readers`: number of processes.
    `walk`: `cursor`: each process passes over the others' records, as LMDB's cursor does;
      `offsets`: each knows the offsets of its own records.
    `method`: way of reading.
    `throughput`: bytes of records per second, all readers together.
    `switches`: voluntary context switches of all readers per MiB.
    `involuntary`: involuntary context switches.
    `sleep_share`: share of the readers' time asleep.
    `major`: major page faults.
    `extra`: bytes of pages accessed outside a reader's own records, per byte of records (figure 4.2
      of Pumma's thesis).
    `storage_bytes`: bytes read from storage per byte of records; null if unknown.
    """

    readers: Annotated[int, LABEL]
    walk: Walk
    method: Method
    throughput: Measured
    switches: Measured
    involuntary: Measured
    sleep_share: Measured
    major: Measured
    extra: float
    storage_bytes: float | None

    def relation_faults(self) -> Iterator[str]:
        yield from at_most(1).of("sleep_share", self.sleep_share, "median")


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process reads front to back with one block size (figure 5.1 of Pumma's thesis).

    `method`: way of reading.
    `block`: block size.
    `throughput`: bytes per second.
    `switches`: voluntary context switches.
    `sleep_share`: share of the time asleep.
    """

    method: Method
    block: Annotated[int, at_least(1)]
    throughput: Measured
    switches: Measured
    sleep_share: Measured


class Random(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process reads records in shuffled order.

    `method`: way of reading.
    `advised`: true if the kernel was told to expect random access.
    `ahead`: number of records for which read-ahead hints (`WILLNEED`) were given.
    `throughput`: bytes per second.
    `latency`: seconds per record.
    `storage_bytes`: bytes read from storage per byte of records; null if unknown.
    """

    method: Method
    advised: bool
    ahead: int
    throughput: Measured
    latency: Measured
    storage_bytes: float | None


class Seek(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cost of reaching a record from the front of the file, as LMDB's cursor does.

    `passed`: number of records passed.
    `seconds`: seconds per record passed, with a cold cache.
    `pages`: pages accessed per record passed.
    `by_offset`: seconds to reach a record by its exact offset.
    """

    passed: int
    seconds: Measured
    pages: float
    by_offset: float


class Ceiling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The highest throughput of the storage.

    `method`: `direct`, or plain reads of cold pages on storage without `O_DIRECT`.
    `block`: bytes per request.
    `parallel`: requests at the same time.
    `throughput`: bytes per second.
    """

    method: Method
    block: int
    parallel: int
    throughput: Measured

    @property
    def requests(self) -> str:
        """How it was asked for, in words."""
        how = "O_DIRECT" if self.method == "direct" else self.method
        at_once = f"{self.parallel} at a time" if self.parallel > 1 else "one after the other"
        return f"requests of {size(self.block)}, {at_once} ({how})"


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file read with a cold cache in several ways that take turns.

    `path`, `format`, `size`, `device`: the file.
    `readers`: numbers of processes tried.
    `records`: records in the window; equal pieces for a file that is not LMDB.
    `mean_size`: mean size of a record.
    `window`: bytes that were read.
    `repeats`: repetitions of each way.
    `seconds`: duration.
    `cold`: how dltune confirmed that the pages were dropped from the cache.
    `ceiling`: highest throughput of the storage.
    `strided`, `blocks`, `shuffled`, `seek`: results by kind of access.
    `share_of_ceiling`: throughput of one reader through a mapping with the cursor's walk, divided
      by the ceiling.
    """

    path: str
    format: FileFormat
    size: int
    device: str
    readers: tuple[int, ...]
    records: Annotated[int, at_least(1)]
    mean_size: float
    window: Annotated[int, at_least(1)]
    repeats: Annotated[int, at_least(1)]
    seconds: float
    cold: str
    ceiling: Ceiling
    strided: tuple[Strided, ...]
    blocks: tuple[Block, ...]
    shuffled: tuple[Random, ...]
    seek: Seek | None
    share_of_ceiling: float

    def relation_faults(self) -> Iterator[str]:
        asked = one_of(self.readers, "experiment.readers")
        for here, strided in each("strided", self.strided):
            yield from asked.of(here, strided, "readers")


class Io(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report on reading.

    `subject`: the job's command, `pid N`, or the file's path.
    `storage`: file systems of the data files.
    `watch`: observation of a job; null for an experiment.
    `experiment`: experiment with a file; null for a job.
    `findings`: findings in order of cost.
    `unseen`: things that could not be observed, with the reason.
    """

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

    def relation_faults(self) -> Iterator[str]:
        if (self.watch is None) == (self.experiment is None):
            yield "exactly one of watch and experiment must be present"
        devices = [storage.device for storage in self.storage]
        yield from repeated("storage", "device", devices)
        yield from _numbers("", self)
        device = one_of(devices, "the devices in storage")
        for here, file in each("watch.files", self.watch.files if self.watch else ()):
            yield from device.of(here, file, "device")
        yield from device.of("experiment", self.experiment, "device")


load = documents.reader(Io, SCHEMA)


def _numbers(here: str, value: object) -> Iterator[str]:
    """Every number of the document is finite and not negative."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _numbers(field_path(here, field), getattr(value, field))
    elif isinstance(value, tuple):
        for at, item in each(here, value):
            yield from _numbers(at, item)
    elif isinstance(value, int | float):
        yield from AMOUNT.faults(here, value)

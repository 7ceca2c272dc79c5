"""Reader and summary of Horovod's record of its background thread (HOROVOD_TIMELINE).

The file has Chrome's trace format, as timeline.cc of Horovod 0.28 writes it: each tensor is a
"process", times are whole microseconds. Only the coordinator (rank 0) writes, yet collectives are
the same on all ranks by Horovod's protocol, so the fused tensors are those of every rank. Its
writer busy-waits. Records not yet written when Horovod shuts down are lost: the file then ends
whole, but early.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import math
import os
import re
import sys
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from dltune.base.errors import UsageError
from dltune.systems.ranks.allreduce.section import Controller
from dltune.systems.ranks.horovod.schema import (
    Cycles,
    Distribution,
    Tensor,
    Timeline,
    TransferCost,
    distribution,
)


@dataclass(frozen=True)
class Negotiation:
    """From `start`, when the first rank's request was seen, to `end`, when all ranks had theirs.

    Seconds since the timeline began. `last`: the ranks that came in the last pass, if not all came
    in one; None where the cache answered, which does not distinguish ranks.
    """

    tensor: str
    start: float
    end: float
    cached: bool
    last: tuple[int, ...] | None


@dataclass(frozen=True)
class Batch:
    """One collective: the tensors that travelled together, in their order.

    Seconds since the timeline began. `bytes` is None where the operation recorded no shapes.
    `transfer`: the collective alone, in seconds; `sent`: when it began.
    """

    operation: str
    tensors: tuple[str, ...]
    start: float
    end: float
    bytes: int | None
    transfer: float
    sent: float | None
    library: str | None


@dataclass(frozen=True)
class Recording:
    """A timeline, as it was recorded.

    `began`: Unix time of its zero. `cycles`: when each cycle started (none without
    HOROVOD_TIMELINE_MARK_CYCLES). `sizes`: bytes of each tensor whose shape was recorded.

    It holds negotiations, collectives and cycles.
    """

    path: Path
    began: float
    seconds: float
    events: int
    truncated: bool
    cycles: Sequence[float]
    negotiations: Sequence[Negotiation]
    batches: Sequence[Batch]
    sizes: dict[str, int]


def steps(batches: Sequence[Batch], operation: str = "ALLREDUCE") -> list[list[Batch]]:
    """The batches of each training step: a tensor that comes again begins the next one.

    For jobs that reduce the same tensors, under the same names, in each step.
    """
    found: list[list[Batch]] = []
    seen: set[str] = set()
    for batch in batches:
        if batch.operation != operation:
            continue
        if not found or not seen.isdisjoint(batch.tensors):
            found.append([])
            seen.clear()
        found[-1].append(batch)
        seen.update(batch.tensors)
    return found


# Records of one pass over the ranks' requests are written one after another; passes are at least a
# cycle apart, unless something else was recorded between them.
_PASS_GAP = 0.5e-3  # seconds

# Parts of an operation that are not the collective (common.h).
_AROUND = frozenset(
    (
        "QUEUE",
        "WAIT_FOR_DATA",
        "WAIT_FOR_OTHER_TENSOR_DATA",
        "ALLOCATE_OUTPUT",
        "INIT_FUSION_BUFFER",
        "MEMCPY_IN_FUSION_BUFFER",
        "MEMCPY_OUT_FUSION_BUFFER",
        "MEMCPY_IN_HOST_BUFFER",
        "MEMCPY_OUT_HOST_BUFFER",
        "MEMCPY_IN_SHARED_BUFFER",
    )
)
_BYTES = {  # DataType_Name of message.cc
    **dict.fromkeys(("uint8", "int8", "bool"), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "float32"), 4),
    **dict.fromkeys(("int64", "float64"), 8),
}


class Record(msgspec.Struct):
    """One event of Chrome's trace format, as far as Horovod uses it."""

    ph: str
    name: str = ""
    ts: float = 0.0
    pid: int = -1
    args: dict[str, str | int] = {}


class ForeignError(Exception):
    """The file is not what Horovod writes; how so."""


@dataclass(slots=True)
class _Open:
    """A batch whose operation has not ended, for `left` of its tensors."""

    operation: str
    start: float
    tensors: list[str] = field(default_factory=list)
    left: int = 0
    bytes: int | None = 0
    transfer: float = 0.0
    sent: float | None = None
    library: str | None = None


@dataclass(slots=True)
class _Tensor:
    """Where one tensor's request is in its life, and since when."""

    name: str
    state: Literal["", "negotiating", "operation", "activity"] = ""
    since: float = 0.0
    joined: list[tuple[int, int]] = field(default_factory=list)  # pass, rank
    activity: str = ""
    batch: _Open | None = None


class Requests:
    """Follows each tensor through its records.

    A request's life: negotiation (NEGOTIATE_...), with a mark for each rank that joined unless all
    ranks had it in their response cache, which answers without; then the operation (ALLREDUCE),
    which contains copies into and out of the fusion buffer and the collective itself
    (MPI_ALLREDUCE).
    """

    def __init__(self) -> None:
        self.events = 0
        self._began = 0.0
        self._first: float | None = None
        self._last = 0.0
        self._tensors: dict[int, _Tensor] = {}
        self._cycles: list[float] = []
        self._negotiations: list[Negotiation] = []
        self._batches: list[Batch] = []
        self._sizes: dict[str, int] = {}
        self._gathering: _Open | None = None  # operations that begin one after another are one
        self._pass = 0
        self._joined_at = -math.inf
        self._joined_rank = -1

    def take(self, records: list[Record]) -> None:
        for record in records:
            if not self.events:
                began = record.args.get("start_time_since_epoch_in_micros")
                if record.ph != "M" or not isinstance(began, int):
                    raise ForeignError(
                        "is not a Horovod timeline: its first record has no start time"
                    )
                self._began = began / 1e6
            self.events += 1
            if record.ph == "M":
                name = record.args.get("name")
                if record.name == "process_name" and isinstance(name, str):
                    self._tensors[record.pid] = _Tensor(name)
                continue
            now = record.ts / 1e6
            if self._first is None:
                self._first = now
            self._last = max(self._last, now)
            if record.ph == "i":
                self._cycles.append(now)
                self._pass += 1
                continue
            tensor = self._tensors.get(record.pid)
            if tensor is None:
                raise ForeignError(f"is damaged: record {self.events} belongs to an unknown tensor")
            if record.ph == "X":
                self._join(tensor, record.name, now)
            elif record.ph == "B":
                self._begin(tensor, record.name, now)
            elif record.ph == "E":
                self._end(tensor, record.args, now)
            else:
                raise ForeignError(f"is not a Horovod timeline: it has a record {record.ph!r}")

    def _join(self, tensor: _Tensor, name: str, now: float) -> None:
        if not name.isdecimal():
            raise ForeignError(f"is not a Horovod timeline: rank {name!r} joins")
        rank = int(name)
        if now - self._joined_at > _PASS_GAP or rank < self._joined_rank:
            self._pass += 1
        self._joined_at, self._joined_rank = now, rank
        tensor.joined.append((self._pass, rank))

    def _begin(self, tensor: _Tensor, name: str, now: float) -> None:
        if name.startswith("NEGOTIATE_"):
            tensor.state, tensor.since, tensor.joined = "negotiating", now, []
            return
        if tensor.state in ("operation", "activity"):
            tensor.state, tensor.activity, tensor.since = "activity", name, now
            self._gathering = None
            return
        if self._gathering is None or self._gathering.operation != name:
            self._gathering = _Open(name, now)
            self._pass += 1
        tensor.state, tensor.batch = "operation", self._gathering
        tensor.batch.tensors.append(tensor.name)
        tensor.batch.left += 1

    def _end(self, tensor: _Tensor, args: dict[str, str | int], now: float) -> None:
        if tensor.state == "negotiating":
            tensor.state = ""
            last = _last(tensor.joined)
            self._negotiations.append(
                Negotiation(tensor.name, tensor.since, now, not tensor.joined, last)
            )
        elif tensor.state == "activity":
            tensor.state = "operation"
            batch = tensor.batch
            # a fused batch records the same for each of its tensors
            if batch and tensor.activity not in _AROUND and batch.tensors[0] == tensor.name:
                batch.transfer += now - tensor.since
                if batch.sent is None:
                    batch.sent = tensor.since
                    batch.library = tensor.activity.partition("_")[0]
        elif tensor.state == "operation":
            tensor.state = ""
            self._gathering = None
            batch, tensor.batch = tensor.batch, None
            if batch:
                self._arrived(tensor.name, batch, args, now)

    def _arrived(self, name: str, batch: _Open, args: dict[str, str | int], now: float) -> None:
        size = _size(args)
        if size is None:
            batch.bytes = None
        else:
            self._sizes[name] = size
            if batch.bytes is not None:
                batch.bytes += size
        batch.left -= 1
        if not batch.left:
            self._batches.append(
                Batch(
                    batch.operation,
                    tuple(batch.tensors),
                    batch.start,
                    now,
                    batch.bytes,
                    batch.transfer,
                    batch.sent,
                    batch.library,
                )
            )

    def result(self, path: Path, truncated: bool) -> Recording:
        first = self._first if self._first is not None else 0.0
        return Recording(
            path=path,
            began=self._began,
            seconds=max(0.0, self._last - first),
            events=self.events,
            truncated=truncated,
            cycles=self._cycles,
            negotiations=self._negotiations,
            batches=self._batches,
            sizes=self._sizes,
        )


def _last(joined: list[tuple[int, int]]) -> tuple[int, ...] | None:
    """The ranks that joined in the last pass; none where all joined in one."""
    if not joined:
        return None
    last = joined[-1][0]
    if joined[0][0] == last:
        return ()
    return tuple(sorted(rank for number, rank in joined if number == last))


_SHAPE = re.compile(r"\[(?:\d+(?:, \d+)*)?\]")


def _size(args: dict[str, str | int]) -> int | None:
    dtype, shape = args.get("dtype"), args.get("shape")
    if not isinstance(dtype, str) or not isinstance(shape, str):
        return None
    each = _BYTES.get(dtype)
    if each is None or not _SHAPE.fullmatch(shape):
        return None
    return each * math.prod(int(size) for size in re.findall(r"\d+", shape))


CHUNK = 4 << 20  # bytes decoded at a time


def recording(path: Path) -> Recording:
    """All that is in a timeline file, gzipped or not, read in chunks.

    Raises UsageError when it cannot be read, is empty or is no Horovod timeline. A file that ends
    in the middle of a record is read up to there.

    A file can be whole or cut short.
    """
    requests = Requests()
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.open(raw) as unpacked:
                    truncated = _feed(unpacked, requests)
            else:
                # Horovod can be writing: its additions come over the end that was there
                truncated = _feed(raw, requests, os.fstat(raw.fileno()).st_size)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UsageError(
            f"{path} is a damaged gzip file", remedy="record the timeline again"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy=None) from None
    except (ForeignError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} {error}" if isinstance(error, ForeignError) else f"{path} is damaged: {error}",
            remedy="give a file that Horovod wrote (HOROVOD_TIMELINE)",
        ) from None
    return requests.result(path, truncated)


LONGEST_RECORD = 64 << 20  # bytes; names and shapes are far shorter
# where one record ends and another begins
_BETWEEN = (b'},{"ph"', b'},\n{"')


def _feed(file: BinaryIO | gzip.GzipFile, requests: Requests, size: int = sys.maxsize) -> bool:
    """Decodes chunk after chunk of `size` bytes; whether they end in the middle of a record."""
    decode = msgspec.json.Decoder(list[Record]).decode
    rest, first = b"", True
    while chunk := file.read(min(CHUNK, size)):
        size -= len(chunk)
        rest += chunk
        if first:
            rest = rest.lstrip()
            if not rest:
                continue
            if not rest.startswith(b"["):
                raise ForeignError("is not a Horovod timeline: it does not start with a list")
            rest, first = rest[1:], False
        cut = max(rest.rfind(mark) for mark in _BETWEEN)
        if cut >= 0:
            requests.take(decode(b"[" + rest[: cut + 1] + b"]"))
            rest = rest[cut + 2 :]
        elif len(rest) > LONGEST_RECORD:
            raise ForeignError(f"has a record of more than {LONGEST_RECORD >> 20} MiB")
    if first:
        raise ForeignError("is empty: no collective was recorded")
    rest = rest.strip()
    whole = rest == b"]" or rest.endswith(b"}]")  # a shape ends in ] too
    if whole:
        requests.take(decode(b"[" + rest))
    else:
        with contextlib.suppress(msgspec.DecodeError):  # the last record, if it is there in full
            requests.take(decode(b"[" + rest.rstrip(b",") + b"]"))
    if not requests.events:
        raise ForeignError("ends before its first record")
    return not whole


CYCLE_TIME = 1e-3  # seconds; HOROVOD_CYCLE_TIME when it is not set (operations.cc of 0.28)
_WARM_UP = 5  # steps
_LIBRARIES: dict[str | None, Controller] = {"MPI": "mpi", "GLOO": "gloo"}
_ENOUGH, _MANY = 40, 10  # collectives, and times as large, to separate latency from bandwidth


def read(path: Path, *, cycle_time: float = CYCLE_TIME) -> Timeline:
    """Return the summary of a timeline. `cycle_time`: HOROVOD_CYCLE_TIME in seconds, which is not
    in the file.

    Raises UsageError when the file cannot be read, is empty or is no Horovod timeline.
    """
    return summary(recording(path), cycle_time=cycle_time)


def summary(record: Recording, *, cycle_time: float = CYCLE_TIME) -> Timeline:
    """Return the same as `read`, from a recording.

    The summary has cycles, negotiations, batches, and the waiting times of each tensor.
    """
    queued = list(_queues(record))
    waited = _by_tensor(queued)
    agreed = _by_tensor((n.tensor, n.end - n.start) for n in record.negotiations)
    sent = _by_tensor((tensor, one.transfer) for one in record.batches for tensor in one.tensors)
    answered = len(record.negotiations)
    return Timeline(
        path=str(record.path),
        seconds=record.seconds,
        events=record.events,
        truncated=record.truncated,
        controller=_controller(record.batches),
        cycles=_cycles(record, cycle_time),
        batches=len(record.batches),
        fused=distribution([len(batch.tensors) for batch in record.batches]),
        cached=sum(n.cached for n in record.negotiations) / answered if answered else None,
        negotiation=distribution([n.end - n.start for n in record.negotiations]),
        queue=distribution([seconds for _, seconds in queued]),
        transfer=distribution([batch.transfer for batch in record.batches]),
        late=_late(record.negotiations),
        tensors=tuple(
            Tensor(
                name=name,
                times=len(transfers),
                bytes=record.sizes.get(name),
                negotiation=distribution(agreed[name]),
                queue=distribution(waited[name]),
                transfer=distribution(transfers),
            )
            for name, transfers in sent.items()
        ),
        step=_step(record.batches),
        cost=_cost(record.batches),
    )


def _by_tensor(times: Iterable[tuple[str, float]]) -> defaultdict[str, list[float]]:
    each: defaultdict[str, list[float]] = defaultdict(list)
    for tensor, seconds in times:
        each[tensor].append(seconds)
    return each


def _queues(record: Recording) -> Iterator[tuple[str, float]]:
    """From the end of each tensor's negotiation until its collective began."""
    agreed = _by_tensor((n.tensor, n.end) for n in reversed(record.negotiations))
    for batch in record.batches:
        for tensor in batch.tensors:
            ends = agreed[tensor]
            # an operation whose negotiation was not recorded comes before those that were
            if ends and ends[-1] <= batch.start:
                end = ends.pop()
                if batch.sent is not None:
                    yield tensor, batch.sent - end


def _step(batches: Sequence[Batch]) -> Distribution | None:
    """The first steps fill caches and pools; they are left out."""
    ends = [step[-1].end for step in steps(batches)][_WARM_UP:]
    if len(ends) < 2:
        return None
    return distribution([after - end for end, after in itertools.pairwise(ends)])


def _cost(batches: Sequence[Batch]) -> TransferCost | None:
    """Return the cost from the fastest tenth of the smaller half of collectives, and, for each byte
    beyond, from the fastest twentieth of the largest quarter.

    Most wait for a rank that is late, or for a core: the time that remains when none does is the
    network's.
    """
    sized = sorted((batch.bytes, batch.transfer) for batch in batches if batch.bytes)
    if len(sized) < _ENOUGH:
        return None
    small = sorted(seconds for _, seconds in sized[: len(sized) // 2])
    fastest = small[: len(small) // 10]
    latency = math.fsum(fastest) / len(fastest)
    large = sized[-(len(sized) // 4) :]
    if large[0][0] <= _MANY * sized[0][0]:
        return TransferCost(latency, 0.0)  # all alike: the part that is for the bytes is unknown
    each = sorted(max(0.0, seconds - latency) / size for size, seconds in large)
    return TransferCost(latency, each[len(each) // 20])


def _controller(batches: Sequence[Batch]) -> Controller | None:
    names = (batch.library for batch in batches)
    return next((_LIBRARIES[name] for name in names if name in _LIBRARIES), None)


def _cycles(record: Recording, setting: float) -> Cycles | None:
    starts = record.cycles
    if len(starts) < 2:
        return None
    sent = sorted(batch.start for batch in record.batches)
    before = [bisect_left(sent, start) for start in starts]
    periods = [after - start for start, after in itertools.pairwise(starts)]
    idle = [periods[i] for i in range(len(periods)) if before[i] == before[i + 1]]
    # A cycle that took longer than the setting did not sleep; an idle cycle can only have waited
    # for another rank. Both are late by the same amount, and the marks do not distinguish them.
    late = [max(0.0, period - setting) for period in idle]
    return Cycles(
        setting=setting,
        rate=len(periods) / (starts[-1] - starts[0]) if starts[-1] > starts[0] else 0.0,
        period=distribution(periods),
        oversleep=distribution(late),
        empty=len(idle) / len(periods),
    )


def _late(negotiations: Sequence[Negotiation]) -> dict[str, float]:
    told = [n.last for n in negotiations if n.last is not None]
    ranks = sorted({rank for last in told for rank in last})
    return {str(rank): sum(rank in last for last in told) / len(told) for rank in ranks}

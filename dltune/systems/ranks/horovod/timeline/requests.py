"""Reader of Horovod's record of its background thread (HOROVOD_TIMELINE).

Chrome's trace format, as timeline.cc of Horovod 0.28 writes it: each tensor is a "process", times
are whole microseconds. Only the coordinator (rank 0) writes, yet collectives are the same on all
ranks by Horovod's protocol, so the fused tensors are those of every rank. Its writer busy-waits.
Records not yet written when Horovod shuts down are lost: the file then ends whole, but early.

A request's life: negotiation (NEGOTIATE_...), with a mark for each rank that joined unless all
ranks had it in their response cache, which answers without; then the operation (ALLREDUCE), which
contains copies into and out of the fusion buffer and the collective itself (MPI_ALLREDUCE).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from dltune.systems.ranks.horovod.timeline.recorded import Batch, Negotiation, Recording

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
    """Follows each tensor through its records."""

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

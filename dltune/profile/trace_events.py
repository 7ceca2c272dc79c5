"""Chrome trace files: their events, and the steps found in them as messages of dltune's plugin.

The importers of PyTorch's and JAX's traces (`trace_import`) use both.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from dltune.base.documents import NOT_JSON, content, located
from dltune.base.errors import UsageError
from dltune.job import protocol

# Events. Anybody can have written the file, so it is read within bounds.

# events and their arguments: they may stand in few bytes, and each takes some 200 of memory
MOST = 20_000_000
# a time that is none would be too large for a document
_Microseconds = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]


class Event(msgspec.Struct, frozen=True):
    """`ts` and `dur` in microseconds; `args` as they stand in the file."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: _Microseconds = 0.0
    dur: _Microseconds = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def end(self) -> float:
        """Some profilers have written spans that end before they begin."""
        return self.ts + max(self.dur, 0.0)


_Arguments = TypeVar("_Arguments", bound=msgspec.Struct)


def arguments(event: Event, kind: type[_Arguments], source: str) -> _Arguments:
    """Those of an event that `kind` names. Raises UsageError, which names `source`, where they are
    of another type."""
    try:
        return msgspec.json.decode(event.args, type=kind)
    except NOT_JSON as error:
        raise UsageError(
            f"{source}: the arguments of event {event.name!r} cannot be read: {located(error)}",
            remedy="record the trace again",
        ) from None


class _Trace(msgspec.Struct):
    traceEvents: list[Event]  # noqa: N815 - its name in the file


def load(path: Path) -> list[Event]:
    """The events of a trace, plain or gzipped. Raises UsageError when the file cannot be read, is
    no such trace, or holds too much."""
    return decoded(content(path), str(path))


def decoded(data: bytes, source: str) -> list[Event]:
    """Return the same as `load`, from bytes; `source` stands for the file in messages."""
    if data.count(b"{") > MOST:
        raise UsageError(
            f"{source} has more than {MOST // 10**6} million events and arguments",
            remedy="record fewer steps",
        )
    try:
        return msgspec.json.decode(data, type=_Trace).traceEvents
    except NOT_JSON as error:
        raise UsageError(
            f"{source} is not a trace in Chrome's format: {error}",
            remedy="name a trace of torch.profiler (export_chrome_trace) or jax.profiler.trace",
        ) from None


# Steps that were read from a trace, as messages in the form of dltune's plugin

_MICROSECOND = 1000  # in nanoseconds


class Ran(NamedTuple):
    """An op of a step, from `start` to `end` in microseconds; threads are numbered from 0."""

    thread: int
    type: str
    inputs: str
    attributes: str
    start: float
    end: float

    @property
    def key(self) -> str:
        return f"{self.type}({self.inputs}){self.attributes}"


class Step(NamedTuple):
    """What ran, and a node of the step's graph for each. `end`: of the step, which may be later
    than its last op's."""

    ran: Sequence[Ran]
    nodes: Sequence[protocol.Node]
    end: float


@dataclass(frozen=True)
class Told:
    """`messages` in the order in which a plugin would send them; `notes`: what the file lacks."""

    framework: str
    messages: Sequence[protocol.Message]
    notes: tuple[str, ...]


def as_messages(
    steps: Iterable[Step], memory: Sequence[tuple[float, int]]
) -> Iterator[protocol.Message]:
    """Yield the messages that dltune's plugin would send about these steps.

    `memory`: since when, in microseconds, how many bytes were allocated, in order.
    """
    keys: dict[str, int] = {}
    graphs: dict[str, int] = {}
    runs: dict[int, int] = defaultdict(int)
    times = [at for at, _ in memory]

    def level(at: float) -> int:
        before = bisect_right(times, at)
        return memory[before - 1][1] if before else 0

    for ran, nodes, end in steps:
        for op in ran:
            if op.key not in keys:
                keys[op.key] = len(keys)
                yield protocol.Key(keys[op.key], op.key, op.type, op.inputs)
        signature = _signature(nodes)
        if signature not in graphs:
            graphs[signature] = len(graphs)
            yield protocol.Graph(
                graphs[signature], signature, "", "", False, list(nodes), eager=True
            )
        graph = graphs[signature]
        began = min(op.start for op in ran)
        peaks = memory[bisect_right(times, began) : bisect_right(times, end)]
        yield protocol.Execution(
            graph=graph,
            number=runs[graph],
            version=0,
            start=_nanoseconds(began),
            overhead=0,
            live=level(began),
            peak=max([level(began), *(total for _, total in peaks)]),
            events=[
                (
                    number,
                    keys[op.key],
                    0,
                    op.thread,
                    _nanoseconds(op.start - began),
                    _nanoseconds(op.end - began),
                    "0",
                )
                for number, op in enumerate(ran)
            ],
            levels=[level(op.end) for op in ran] if memory else [],
        )
        runs[graph] += 1


def _signature(nodes: Sequence[protocol.Node]) -> str:
    text = "\n".join(f"{node.name} {node.type} {node.control}" for node in nodes)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * _MICROSECOND)

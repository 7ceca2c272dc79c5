"""Files in the format of Chrome's traces, which anybody may have written: read within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from dltune.base.documents import NOT_JSON, content, located
from dltune.base.errors import UsageError

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
    """As `load`, from bytes; `source` stands for the file in messages."""
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

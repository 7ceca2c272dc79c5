"""The history file: a line of JSON for each gate, appended; and its entries when read again."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dltune.base.documents import AMOUNT, NOT_JSON, POSITIVE, each, encode, refuse
from dltune.base.errors import UsageError
from dltune.gate import metrics
from dltune.gate.verdict import over_base
from dltune.schemas.gate import Outcome, Result, Unit

SCHEMA = "dltune.gate-history/2"
EARLIER = "dltune.gate-history/1"  # its points have no ratios


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A verdict of one gate, with the values of its result.

    `metric`, `unit`, `over`, `limit`, `outcome`, `median`, `low`, `high`, `head`: as in the
      verdict.
    `ratios`: head divided by base in each round that measured both together.
    """

    metric: str
    unit: Unit
    over: str
    limit: float
    outcome: Outcome
    median: float | None
    low: float | None
    high: float | None
    head: float | None
    ratios: tuple[float, ...] = ()


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the history file: one gate.

    `machine`: fingerprint of the machine.
    `base`, `head`: commits.
    `outcome`: outcome of the gate.
    `points`: verdicts.
    `command`: measured command. Gates of the same command belong together.
    """

    schema: str
    created: str
    machine: str
    base: str
    head: str
    outcome: Outcome
    points: tuple[Point, ...]
    command: tuple[str, ...] = ()


def entry(result: Result, *, paired: bool) -> Entry:
    """The line of a result. `paired`: whether both sides of a round were measured together."""
    points = []
    for verdict in result.verdicts:
        point = msgspec.convert(verdict, Point, from_attributes=True)
        if paired and verdict.over == "ratio":
            point = msgspec.structs.replace(point, ratios=_ratios(result, verdict.metric))
        points.append(point)
    return Entry(
        schema=SCHEMA,
        created=result.created,
        machine=result.machine.fingerprint,
        base=result.base.commit or result.base.name,
        head=result.head.commit or result.head.name,
        outcome=result.outcome,
        points=tuple(points),
        command=result.command,
    )


def _ratios(result: Result, metric: str) -> tuple[float, ...]:
    """Ratios of a metric's rounds; none of a metric that does not vary, or that measured 0."""
    base, head = (
        next((one for one in result.measured.get(side, ()) if one.metric == metric), None)
        for side in ("base", "head")
    )
    if base is None or head is None or base.exact:
        return ()
    both = zip(head.values, base.values, strict=True)
    ratios = (over_base(h, b, metrics.floor(metric)) for h, b in both)
    return tuple(float(f"{ratio:.6g}") for ratio in ratios if 0 < ratio < math.inf)


def load(path: Path) -> list[Entry]:
    """All gates in the file, oldest first; none where there is no file.

    Raises UsageError, which names the line, when the file is something else.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy=None) from None
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            found = msgspec.json.decode(line, type=Entry)
        except NOT_JSON as error:
            raise UsageError(
                f"{path}, line {number}, is not a gate result: {error}",
                remedy="use another history file",
            ) from None
        if found.schema not in (SCHEMA, EARLIER):
            raise UsageError(
                f"{path}, line {number}, has schema {found.schema!r}, not {SCHEMA!r}",
                remedy="use another history file",
            )
        refuse(f"{path}, line {number}", list(_faults(found)))
        entries.append(found)
    return entries


def _faults(entry: Entry) -> Iterator[str]:
    for at, point in each("points", entry.points):
        yield from POSITIVE.faults(f"{at}.ratios", *point.ratios)
        yield from AMOUNT.of(at, point, "limit", "median", "low", "high", "head")


def of_command(path: Path, command: tuple[str, ...]) -> list[Entry]:
    """Those of `load` that measured this command: several jobs can share a file."""
    return [one for one in load(path) if one.command == command]


def append(path: Path, added: Entry) -> None:
    """Add a line, whole or not at all, also when several gates end at once. Raises UsageError."""
    line = encode(added) + b"\n"
    try:
        with open(path, "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file.fileno()).st_size
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):  # only a file can be cut
                    file.truncate(size)
                if size == 0 and path.is_file() and not path.is_symlink():
                    path.unlink()
                raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", remedy=None) from None

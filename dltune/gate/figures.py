"""A verdict's figures as a person reads them: the same in every output."""

from __future__ import annotations

from dltune.base.formatting import Key, Prose, Table, columns
from dltune.gate.history import Point
from dltune.gate.outlook import excluded
from dltune.schemas.gate import Result, Unit, Verdict

NONE = "-"
COLUMNS = ("base", "head", "measured", "interval", "limit", "rounds")
_STEPS = {"s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
          "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))}  # fmt: skip


def quantity(value: float | None, unit: Unit) -> str:
    """A value in the unit that suits its size."""
    if value is None:
        return NONE
    for size, name in _STEPS.get(unit, ()):
        if value >= size:
            return f"{value / size:.4g} {name}"
    return f"{value:.4g}{' s' if unit == 's' else ' B' if unit == 'bytes' else ''}"


def over(verdict: Verdict | Point, value: float | None) -> str:
    """A figure of the verdict's own scale: a ratio, or a value with its unit."""
    if value is None:
        return NONE
    return quantity(value, verdict.unit) if verdict.over == "value" else f"{value:.3f}"


def interval(verdict: Verdict) -> str:
    if verdict.low is None and verdict.high is None:
        return NONE
    return f"{over(verdict, verdict.low)} to {over(verdict, verdict.high)}"


def limit(verdict: Verdict) -> str:
    return f"{'' if verdict.over == 'value' else 'x '}{over(verdict, verdict.limit)}"


def limited(verdict: Verdict) -> str:
    """Name of the limited quantity."""
    return f"drift of {verdict.metric}" if verdict.over == "drift" else verdict.metric


def cells(verdict: Verdict) -> tuple[str, ...]:
    """Cells under `COLUMNS`."""
    return (
        quantity(verdict.base, verdict.unit),
        quantity(verdict.head, verdict.unit),
        over(verdict, verdict.median),
        interval(verdict),
        limit(verdict),
        str(verdict.rounds),
    )


def table(result: Result) -> Table:
    """Table of the limits: the measured values, and their meaning."""
    heads = ("metric", *(f">{column}" for column in COLUMNS), "verdict", "+why")
    return Table(
        f"limits of {result.head.name} against {result.base.name} ({result.seconds:.0f} s, "
        f"{result.confidence * 100:.4g} % intervals)",
        columns(*heads),
        [(Key(limited(v)), *cells(v), v.outcome, Prose(v.why)) for v in result.verdicts],
        name="limits-table",
        gap=False,
    )


def where(result: Result) -> Table | None:
    """Table of the slower parts; None if none was searched for or found."""
    if not result.slower:
        return None
    of = "a step" if result.kind == "steps" else "the command"
    return Table(
        f"slower parts of {of} (means of extra rounds, 95 % intervals)",
        columns("kind", "name", ">base", ">head", ">slower by", ">interval", ""),
        [
            (
                {"part": "part", "op": "op", "python": "Python"}[one.kind],
                Key(one.what),
                quantity(one.base, "s"),
                quantity(one.head, "s"),
                quantity(one.head - one.base, "s"),
                f"{quantity(one.low, 's')} to {quantity(one.high, 's')}",
                "changed" if one.changed else "",
            )
            for one in result.slower
        ],
        name="slower-table",
    )


def undecided(verdict: Verdict) -> str:
    """Reason for being undecided, the excluded change, and the rounds needed to decide."""
    told = [verdict.why]
    if (most := excluded(verdict)) is not None:
        above = "the base" if verdict.over == "ratio" else "the limit"
        told.append(f"it is at most {most:.1%} above {above}")
    if verdict.needed is not None:
        more = verdict.needed - verdict.rounds
        told.append(f"about {more} more round{'s' * (more != 1)} would decide it")
    elif verdict.median is not None and verdict.high is not None:
        told.append("the number of rounds needed cannot be estimated")
    return "; ".join(told)


def sentence(verdict: Verdict) -> str:
    """Line with the measured value, the limit, and the meaning."""
    if verdict.over == "drift" or (verdict.median is None and verdict.rounds == 0):
        return f"{verdict.metric}: {verdict.why}"
    what = "ratio to the base" if verdict.over == "ratio" else "value"
    measured = f"{what} {over(verdict, verdict.median)} ({interval(verdict)})"
    return (
        f"{verdict.metric}: {measured}, limit {over(verdict, verdict.limit)}, after "
        f"{verdict.rounds} round{'s' * (verdict.rounds != 1)}: {verdict.outcome}; "
        f"{undecided(verdict) if verdict.outcome == 'undecided' else verdict.why}"
    )

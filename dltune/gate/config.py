"""Limits and how they are held: `[tool.dltune.gate]` of pyproject.toml, or a TOML file of its own.

    timed = "auto"            # "steps" of a TensorFlow job, or the "whole" command
    build = "make native"     # run by the shell in each checkout before anything is measured
    confidence = 0.95
    budget = 300              # seconds of measuring before it ends undecided
    undecided = "pass"        # or "fail"

    [tool.dltune.gate.metrics]
    step_time = { ratio = 1.03 }
    peak_bytes = { ratio = 1.02, at_most = 2e9 }
    "ops:*Conv2D*" = { ratio = 1.05 }

Every key is checked; those that do not exist are refused, all faults at once.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dltune.errors import UsageError
from dltune.gate import metrics
from dltune.visible import visible

Timed = Literal["auto", "steps", "whole"]
Undecided = Literal["pass", "fail"]
PYPROJECT = "pyproject.toml"


@dataclass(frozen=True)
class Limit:
    """The limits of one metric: `ratio` over the base, `at_most` in the metric's own unit.

    `document`: a file of each checkout that the value is read from, at the path `field` (names and
    indices with dots between).
    """

    metric: str
    ratio: float | None = None
    at_most: float | None = None
    document: str | None = None
    field: str | None = None


@dataclass(frozen=True)
class Config:
    """`budget` and `timeout` (of one run of a command) in seconds; `rounds_per_launch`: turns that
    each pair of training jobs takes; `seconds_per_turn`: about how long a turn is."""

    timed: Timed = "auto"
    build: str | None = None
    confidence: float = 0.95
    budget: float = 300.0
    undecided: Undecided = "pass"
    rounds_per_launch: int = 10
    seconds_per_turn: float = 0.25
    timeout: float = 600.0
    limits: tuple[Limit, ...] = ()
    source: str = "no configuration"
    unlimited: bool = field(default=True)  # no metric was configured: the default one is judged


def load(folder: Path, path: Path | None) -> Config:
    """The configuration in `path`, else that of `folder`'s pyproject.toml, else the default.

    Raises UsageError, which lists every fault.
    """
    where = path or folder / PYPROJECT
    if path is None and not where.exists():
        return Config()
    try:
        text = where.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"cannot read {where}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not TOML: {error}") from None
    tool = data.get("tool")
    nested = tool.get("dltune") if isinstance(tool, dict) else None
    found = nested.get("gate") if isinstance(nested, dict) else None
    if found is None:
        if where.name == PYPROJECT:
            if path is not None:
                raise UsageError(f"{where} has no [tool.dltune.gate]")
            return Config()
        found = data  # a file of its own has the keys at its top
        prefix = ""
    else:
        prefix = "tool.dltune.gate."
    if not isinstance(found, dict):
        raise UsageError(f"{where}: tool.dltune.gate is not a table")
    return parse(found, str(where), prefix)


def parse(table: Mapping[str, object], source: str, prefix: str = "") -> Config:
    """The configuration in a table. Raises UsageError, which lists every fault."""
    faults: list[str] = []
    values: dict[str, object] = {}
    for key, value in table.items():
        here = f"{prefix}{visible(key)}"
        if key == "metrics":
            values["limits"] = _limits(value, here, faults)
        elif key not in _KEYS:
            faults.append(f"{here}: no such key; {metrics.near(key, [*_KEYS, 'metrics'])}")
        elif fault := _KEYS[key](value):
            faults.append(f"{here}: {visible(repr(value))} {fault}")
        else:
            values[key] = float(value) if key in _FLOATS else value  # type: ignore[arg-type]
    if faults:
        shown = "\n  ".join(faults[:20])
        more = f"\n  and {len(faults) - 20} more" if len(faults) > 20 else ""
        raise UsageError(f"{source} is not usable:\n  {shown}{more}")
    return Config(**values, source=source, unlimited=not values.get("limits"))  # type: ignore[arg-type]


def _limits(table: object, here: str, faults: list[str]) -> tuple[Limit, ...]:
    if not isinstance(table, dict):
        faults.append(f"{here}: not a table of metrics")
        return ()
    limits = []
    for name, value in table.items():
        at = f"{here}.{visible(name)}"
        if metrics.metric(name) is None:
            known = [*metrics.METRICS, "ops:PATTERN", "pyperf:PATTERN"]
            faults.append(f"{at}: no such metric; {metrics.near(name, known)}")
        elif not isinstance(value, dict):
            faults.append(f"{at}: give limits as in {{ ratio = 1.03 }}")
        else:
            limits.append(_limit(name, value, at, faults))
    return tuple(limits)


def _limit(name: str, table: Mapping[str, object], here: str, faults: list[str]) -> Limit:
    known: dict[str, Callable[[object], str | None]] = {"ratio": _positive, "at_most": _positive}
    if name in metrics.FROM_DOCUMENT:
        known["document"] = _text
        if name != "plan_step_time":
            known["field"] = _text
    found: dict[str, object] = {}
    for key, value in table.items():
        at = f"{here}.{visible(key)}"
        if key not in known:
            faults.append(f"{at}: no such key; {metrics.near(key, known)}")
        elif fault := known[key](value):
            faults.append(f"{at}: {visible(repr(value))} {fault}")
        else:
            found[key] = float(value) if known[key] is _positive else value  # type: ignore[arg-type]
    if not {"ratio", "at_most"} & table.keys():
        faults.append(f"{here}: neither ratio nor at_most is given")
    if "document" in found and name != "plan_step_time" and "field" not in table:
        faults.append(f"{here}: a document needs the field to read, as in field = 'summary.ratio'")
    return Limit(name, **found)  # type: ignore[arg-type]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _positive(value: object) -> str | None:
    number = _number(value)
    return None if number is not None and number > 0 else "is not a number above 0"


def _confidence(value: object) -> str | None:
    number = _number(value)
    within = number is not None and 0.5 <= number <= 0.9999
    return None if within else "is not a number from 0.5 to 0.9999"


def _count(value: object) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000
    return None if good else "is not a whole number from 1 to 10000"


def _text(value: object) -> str | None:
    return None if isinstance(value, str) and value.strip() else "is not a text"


def _one_of(*words: str) -> Callable[[object], str | None]:
    return lambda value: None if value in words else f"is none of {', '.join(words)}"


_FLOATS = ("confidence", "budget", "seconds_per_turn", "timeout")
_KEYS: dict[str, Callable[[object], str | None]] = {
    "timed": _one_of("auto", "steps", "whole"),
    "build": _text,
    "confidence": _confidence,
    "budget": _positive,
    "undecided": _one_of("pass", "fail"),
    "rounds_per_launch": _count,
    "seconds_per_turn": _positive,
    "timeout": _positive,
}

"""Limits of a gate: the metrics that can be limited, and the configuration that sets the limits.

`METRICS` are the metrics, with their units and the kind of command that shows each. Lower values
are better. `load` reads the limits from `[tool.dltune.gate]` of pyproject.toml, or from a separate
TOML file.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dltune.base import documents
from dltune.base.documents import Bound, one_of, refuse
from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.plan.settings.space import resources
from dltune.schemas.gate import Kind, Unit


@dataclass(frozen=True)
class Metric:
    """A metric that can be limited; lower is better.

    `kinds`: the commands that show it; none where it is read from a document.
    `floor`: a change below it is none, whatever the ratio, in the metric's unit.
    """

    name: str
    unit: Unit
    kinds: tuple[Kind, ...]
    floor: float = 0.0


BOTH: tuple[Kind, ...] = ("steps", "whole")
TIMED: dict[Kind, str] = {"steps": "by its steps", "whole": "as a whole"}
METRICS = {
    metric.name: metric
    for metric in (
        Metric("step_time", "s", ("steps",)),
        Metric("step_mean", "s", ("steps",)),
        Metric("step_cpu", "s", ("steps",)),
        Metric("time", "s", ("whole",)),
        Metric("startup", "s", ("steps",)),
        Metric("cpu_time", "s", ("whole",)),
        Metric("peak_bytes", "bytes", BOTH),
        Metric("context_switches", "count", BOTH, floor=10.0),
        Metric("page_faults", "count", BOTH, floor=10.0),
        Metric("instructions", "count", ("whole",)),
        Metric("plan_step_time", "s", ()),
        Metric("io_amplification", "", ()),
        Metric("background_share", "", ()),
    )
}
# the rest of such a name is a pattern, as of a shell
OPS, BENCHMARK = "ops:", "pyperf:"
# read from a file that the checkout has or makes
FROM_DOCUMENT = tuple(name for name, metric in METRICS.items() if not metric.kinds)
# without a configuration: the one that a person means by slower
DEFAULT: dict[Kind, str] = {"steps": "step_time", "whole": "time"}
DEFAULT_RATIO = 1.02


def metric(name: str) -> Metric | None:
    """The metric of that name, patterns included; None when there is none."""
    if name.startswith(OPS) and name != OPS:
        return Metric(name, "s", ("steps",))
    if name.startswith(BENCHMARK) and name != BENCHMARK:
        return Metric(name, "s", ())
    return METRICS.get(name)


def floor(name: str) -> float:
    """A change below it is none, in the metric's unit."""
    return known.floor if (known := metric(name)) else 0.0


def near(name: str, known: Iterable[str]) -> str:
    """A remedy that names the metrics probably meant, else all metrics."""
    known = list(known)
    if close := difflib.get_close_matches(name, known, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(close)}?"
    return f"use one of {', '.join(known)}"


# Limits, and the configuration that they are read from

Timed = Literal["auto", "steps", "whole"]
PYPROJECT = "pyproject.toml"
AS_FOUND = "as-found"
_BELOW = re.compile(r"pass below (\d{1,3}(?:\.\d+)?) ?%", re.ASCII)


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
    """Limits and how they are held: `[tool.dltune.gate]` of pyproject.toml, or a TOML file.

        timed = "auto"            # "steps" of a TensorFlow job, or the "whole" command
        build = "make native"     # run by the shell in each checkout before anything is measured
        confidence = 0.95
        budget = 600              # seconds of measuring before it ends undecided
        undecided = "pass"        # or "fail", or "pass below 5 %"
        hash_seed = "random"      # for each round, the same for both sides; or "as-found"
        allocator = "as-found"    # or a value of dltune's setting of that name, for both sides
        disturbed = "repeat"      # rounds in which the machine was elsewhere; or "keep"

        [tool.dltune.gate.metrics]
        step_time = { ratio = 1.03 }
        peak_bytes = { ratio = 1.02, at_most = 2e9 }
        "ops:*Conv2D*" = { ratio = 1.05 }

    `budget` and `timeout` (of one run of a command) in seconds; `rounds_per_launch`: turns that
    each pair of training jobs takes at most (fewer where steps are long: `launches.ENOUGH`);
    `seconds_per_turn`: about how long a turn is. `hash_seed`, `allocator`: see `commands.alike`;
    `disturbed`: see `fairness.Disturbance`.
    """

    timed: Timed = "auto"
    build: str | None = None
    confidence: float = 0.95
    budget: float = 600.0
    undecided: str = "pass"
    rounds_per_launch: int = 60
    seconds_per_turn: float = 0.04
    timeout: float = 600.0
    hash_seed: Literal["random", "as-found"] = "random"
    allocator: str = AS_FOUND
    disturbed: Literal["repeat", "keep"] = "repeat"
    limits: tuple[Limit, ...] = ()  # none: the default one is judged
    source: str = "no configuration"

    @property
    def tolerated(self) -> float:
        """Share above the base, or above the limit of a value, up to which an undecided limit
        passes."""
        below = _BELOW.fullmatch(self.undecided)
        if below:
            return float(below[1]) / 100
        return math.inf if self.undecided == "pass" else -math.inf


def load(folder: Path, path: Path | None) -> Config:
    """The configuration in `path`, else that of `folder`'s pyproject.toml, else the default.

    Raises UsageError, which lists every fault.
    """
    where = path or folder / PYPROJECT
    if path is None and not where.exists():
        return Config()
    try:
        data = tomllib.loads(documents.content(where).decode())
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text", remedy="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{where} is not TOML: {error}", remedy="correct the syntax there"
        ) from None
    found: object = data
    for key in ("tool", "dltune", "gate"):
        found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, dict):
        return parse(found, str(where), "tool.dltune.gate.")
    if found is not None:
        raise UsageError(
            f"{where}: tool.dltune.gate must be a table, got {visible(repr(found))}",
            remedy="start the section with [tool.dltune.gate]",
        )
    if where.name != PYPROJECT:
        return parse(data, str(where))  # a file of its own has the keys at its top
    if path is not None:
        raise UsageError(
            f"{where} has no [tool.dltune.gate]", remedy="add that table, or use another --config"
        )
    return Config()


def parse(table: Mapping[str, object], source: str, prefix: str = "") -> Config:
    """Return the configuration in a table.

    Every key is checked. Raises UsageError, which lists every fault, unknown keys included.
    """
    faults: list[str] = []
    values: dict[str, Any] = _values(table, _KEYS, prefix, faults)
    limits = _limits(values.pop("metrics", {}), f"{prefix}metrics", faults)
    refuse(source, faults, "correct these keys of the configuration")
    return Config(**values, limits=limits, source=source)


def _values(
    table: Mapping[str, object], known: Mapping[str, Bound], prefix: str, faults: list[str]
) -> dict[str, Any]:
    """Return the valid values; the faults of the others go to `faults`."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        here = f"{prefix}{visible(key)}"
        if key not in known:
            faults.append(f"{here}: unknown key; {near(key, known)}")
        elif told := known[key].faults(here, value):
            faults += told
        else:
            values[key] = float(value) if known[key] in _FLOATS else value  # type: ignore[arg-type]
    return values


def _limits(table: Mapping[str, object], here: str, faults: list[str]) -> tuple[Limit, ...]:
    limits = []
    for name, value in table.items():
        at = f"{here}.{visible(name)}"
        if metric(name) is None:
            known = [*METRICS, "ops:PATTERN", "pyperf:PATTERN"]
            faults.append(f"{at}: unknown metric; {near(name, known)}")
        elif isinstance(value, dict):
            limits.append(_limit(name, value, at, faults))
        else:
            faults += _LIMITS.faults(at, value)
    return tuple(limits)


def _limit(name: str, table: Mapping[str, object], here: str, faults: list[str]) -> Limit:
    known = {"ratio": _POSITIVE, "at_most": _POSITIVE}
    if name in FROM_DOCUMENT:
        known["document"] = _TEXT
        if name != "plan_step_time":
            known["field"] = _TEXT
    values = _values(table, known, f"{here}.", faults)
    if not {"ratio", "at_most"} & table.keys():
        faults.append(f"{here} must have ratio or at_most")
    if "document" in values and name != "plan_step_time" and "field" not in table:
        faults.append(f"{here} must have a field to read, such as field = 'summary.ratio'")
    return Limit(name, **values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_POSITIVE = Bound("a number above 0", lambda value: _is_number(value) and value > 0)
_LEVEL = Bound(
    "a number from 0.5 to 0.9999", lambda value: _is_number(value) and 0.5 <= value <= 0.9999
)
_FLOATS = (_POSITIVE, _LEVEL)
_TEXT = Bound(
    "a string that is not empty", lambda value: isinstance(value, str) and bool(value.strip())
)
_LIMITS = Bound(
    "a table of limits, such as { ratio = 1.03 }", lambda value: isinstance(value, dict)
)
_KEYS = {
    "timed": one_of(("auto", "steps", "whole"), "auto, steps, whole"),
    "build": _TEXT,
    "confidence": _LEVEL,
    "budget": _POSITIVE,
    "undecided": Bound(
        '"pass", "fail", or a bound such as "pass below 5 %"',
        lambda value: (
            value in ("pass", "fail") or (isinstance(value, str) and bool(_BELOW.fullmatch(value)))
        ),
    ),
    "rounds_per_launch": Bound(
        "a whole number from 1 to 10000",
        lambda value: _is_number(value) and isinstance(value, int) and 1 <= value <= 10_000,
    ),
    "seconds_per_turn": _POSITIVE,
    "timeout": _POSITIVE,
    "hash_seed": one_of(("random", AS_FOUND), f"random, {AS_FOUND}"),
    "allocator": one_of((*resources.VALUES, AS_FOUND), ", ".join((*resources.VALUES, AS_FOUND))),
    "disturbed": one_of(("repeat", "keep"), "repeat, keep"),
    "metrics": Bound("a table of metrics", lambda value: isinstance(value, dict)),
}

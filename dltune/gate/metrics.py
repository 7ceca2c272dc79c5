"""Limits of a gate: names, units, and which kind of command shows each. Lower is better."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from dltune.schemas.gate import Kind, Unit


@dataclass(frozen=True)
class Metric:
    """`kinds`: the commands that show it; none where it is read from a document.

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

"""A pyperf file as a measurement: each benchmark a metric, each of its processes a round."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from dltune.base import documents
from dltune.base.documents import POSITIVE, refuse
from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.gate.metrics import BENCHMARK


class _Metadata(msgspec.Struct):
    name: str | None = None
    unit: str = "second"


class _Run(msgspec.Struct):
    values: list[float] = []
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Benchmark(msgspec.Struct):
    runs: list[_Run]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Suite(msgspec.Struct):
    version: str
    benchmarks: list[_Benchmark]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def is_one(path: Path) -> bool:
    """True if a file seems to be one of pyperf's. Raises UsageError when it cannot be read."""
    try:
        found = msgspec.json.decode(documents.content(path), type=dict[str, msgspec.Raw])
    except documents.NOT_JSON:
        return False
    return "benchmarks" in found and "version" in found and "schema" not in found


def load(path: Path) -> dict[str, list[float]]:
    """Metric ("pyperf:NAME") -> seconds: the median of each process, or each value of a benchmark
    that one process has measured.

    Raises UsageError when the file is not one of pyperf's, is in another unit than seconds, is
    empty, or a time is not a number above 0.
    """
    try:
        suite = msgspec.json.decode(documents.content(path), type=_Suite)
    except documents.NOT_JSON as error:
        raise UsageError(
            f"{path} is not a pyperf file: {error}", remedy="pass a file written by pyperf"
        ) from None
    found: dict[str, list[float]] = {}
    for number, benchmark in enumerate(suite.benchmarks):
        told = [*(run.metadata for run in benchmark.runs), benchmark.metadata, suite.metadata]
        name = next((m.name for m in told if m.name), f"benchmark {number + 1}")
        units = {m.unit for m in told}
        if units != {"second"}:
            raise UsageError(
                f"{path}: {visible(name)} is in {visible(', '.join(units - {'second'}))}, not in "
                "seconds",
                remedy="remove that benchmark from the file",
            )
        runs = [run.values for run in benchmark.runs if run.values]
        times = [time for values in runs for time in values]
        refuse(str(path), POSITIVE.faults(visible(name), *times))
        rounds = [statistics.median(v) for v in runs] if len(runs) > 1 else times
        if rounds:
            found[BENCHMARK + name] = rounds
    if not found:
        raise UsageError(f"{path} contains no benchmark values", remedy="measure again with pyperf")
    return found

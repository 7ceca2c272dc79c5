"""Comparison of this measurement with an earlier measurement: baselines and pyperf files."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.gate import metrics, pyperf_file
from dltune.gate.config import Config, Limit
from dltune.gate.measure import Measurement
from dltune.gate.verdict import Sample, least_baseline
from dltune.schemas import gate as doc
from dltune.schemas.machine import Machine


@dataclass(frozen=True)
class Before:
    """A measurement in a file. `machine` is None where the file does not name it."""

    title: str
    commit: str | None
    kind: doc.Kind
    machine: Machine | None
    command: tuple[str, ...]
    values: Mapping[str, Sequence[float]]
    exact: frozenset[str]
    missing: Mapping[str, str]


def load(path: Path) -> Before:
    """A baseline, or a pyperf file. Raises UsageError when it is neither, or has faults."""
    if pyperf_file.is_one(path):
        values = pyperf_file.load(path)
        return Before(path.name, None, "whole", None, (), values, frozenset(), {})
    made = doc.load_baseline(path)
    return Before(
        title=path.name,
        commit=made.commit,
        kind=made.kind,
        machine=made.machine,
        command=made.command,
        values={one.metric: one.values for one in made.measured},
        exact=frozenset(one.metric for one in made.measured if one.exact),
        missing=made.missing,
    )


def require_machine(
    before: Before, here: Machine, *, other: bool, whose: str = "this one"
) -> str | None:
    """A note where the machines differ and that was asked for; `whose`: the source of the second.
    Raises UsageError where it was not: times of two machines do not compare the code."""
    if before.machine is None or before.machine.fingerprint == here.fingerprint:
        return None
    there = f"{before.machine.name}, {len(before.machine.cores)} cores"
    difference = f"{before.title} was measured on another machine ({visible(there)})"
    if not other:
        raise UsageError(
            f"{difference} than {whose} ({visible(here.name)}, {len(here.cores)} cores)",
            remedy="record a baseline here, use `dltune gate ab`, or pass --other-machine",
        )
    return difference


def require_enough(before: Before, metric: str, confidence: float) -> None:
    """Raises UsageError when a baseline lacks the values that decide a ratio of the metric."""
    values = before.values.get(metric)
    if values is None:
        why = before.missing.get(metric, "it was recorded without this metric")
        raise UsageError(
            f"{before.title} has no {metric}: {why}",
            remedy="record the baseline again with this configuration",
        )
    least = least_baseline(confidence)
    if metric not in before.exact and len(values) < least:
        raise UsageError(
            f"{before.title} has only {len(values)} rounds of {metric}: a ratio with confidence "
            f"{confidence:g} needs at least {least}",
            remedy=f"record the baseline again with --rounds {least} or more",
        )


def require_command(before: Before, command: Sequence[str]) -> None:
    """Raises UsageError when the baseline is of another command."""
    if before.command and tuple(command) != before.command:
        import shlex

        raise UsageError(
            f"{before.title} was recorded with another command: "
            f"{visible(shlex.join(before.command))}",
            remedy="use that command, or record a new baseline",
        )


def compare(before: Before, now: Before, config: Config) -> Measurement:
    """Judge two files without measuring. Raises UsageError when they share nothing to judge."""
    if before.kind != now.kind:
        raise UsageError(
            f"{before.title} was timed {metrics.TIMED[before.kind]}, but {now.title} "
            f"{metrics.TIMED[now.kind]}",
            remedy="record both with the same command and configuration",
        )
    limits = _limits(before, now, config)
    samples = {}
    for limit in limits:
        name = limit.metric
        known = metrics.metric(name)
        sample = samples[name] = Sample(name, known.unit if known else "", paired=False)
        sample.exact = name in before.exact and name in now.exact
        sample.base, sample.head = list(before.values.get(name, ())), list(now.values.get(name, ()))
        for side in (before, now):
            if name not in side.values:
                sample.missing = side.missing.get(name, f"{side.title} does not contain it")
    made = Measurement(now.kind, limits, samples)
    made.judge(config.confidence)
    return made


def _limits(before: Before, now: Before, config: Config) -> tuple[Limit, ...]:
    """The configured limits, patterns of benchmarks made one limit for each; without any, the
    default ratio for all that both have."""
    shared = [name for name in before.values if name in now.values]
    if not config.limits:
        found = [Limit(name, ratio=metrics.DEFAULT_RATIO) for name in shared]
    else:
        found = []
        for limit in config.limits:
            if limit.metric.startswith(metrics.BENCHMARK):
                names = [n for n in shared if fnmatch.fnmatchcase(n, limit.metric)]
                found += [Limit(n, limit.ratio, limit.at_most) for n in names]
            else:
                found.append(limit)
    if not found:
        raise UsageError(
            f"{before.title} and {now.title} have no metric in common for these limits",
            remedy=f"use the metrics of {before.title}: {', '.join(map(visible, before.values))}",
        )
    return tuple(found)

"""Comparison of two measurements of a project: revisions, baselines and pyperf files.

`ab` measures two revisions in turns on one machine. `load_baseline` and `compare` use an earlier
measurement from a file instead: a baseline, or a pyperf file. `result` and `baseline` put together
the documents from the measurements.
"""

from __future__ import annotations

import contextlib
import fnmatch
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dltune import __version__
from dltune.base import documents
from dltune.base.documents import POSITIVE, refuse
from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.gate import commands
from dltune.gate.checkouts import (
    changed,
    checkouts,
    commit_of,
    in_checkout,
    repository,
    require_clean,
    require_on_path,
    require_own_files,
    with_program,
)
from dltune.gate.limits import (
    BENCHMARK,
    DEFAULT_RATIO,
    PYPROJECT,
    TIMED,
    Config,
    Limit,
    load,
    metric,
)
from dltune.gate.measurement import (
    Measurement,
    asked,
    locate,
    measure,
)
from dltune.gate.verdicts import Sample, held, least_baseline, overall
from dltune.schemas import gate
from dltune.schemas.machine import Machine

# A pyperf file as a measurement: each benchmark a metric, each of its processes a round


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


def load_pyperf(path: Path) -> dict[str, list[float]]:
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


# Comparison with an earlier measurement: baselines and pyperf files


@dataclass(frozen=True)
class Before:
    """A measurement in a file. `machine` is None where the file does not name it."""

    title: str
    commit: str | None
    kind: gate.Kind
    machine: Machine | None
    command: tuple[str, ...]
    values: Mapping[str, Sequence[float]]
    exact: frozenset[str]
    missing: Mapping[str, str]


def load_baseline(path: Path) -> Before:
    """A baseline, or a pyperf file. Raises UsageError when it is neither, or has faults."""
    if is_one(path):
        values = load_pyperf(path)
        return Before(path.name, None, "whole", None, (), values, frozenset(), {})
    made = gate.load_baseline(path)
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
            f"{before.title} was timed {TIMED[before.kind]}, but {now.title} {TIMED[now.kind]}",
            remedy="record both with the same command and configuration",
        )
    limits = _limits(before, now, config)
    samples = {}
    for limit in limits:
        name = limit.metric
        known = metric(name)
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
        found = [Limit(name, ratio=DEFAULT_RATIO) for name in shared]
    else:
        found = []
        for limit in config.limits:
            if limit.metric.startswith(BENCHMARK):
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


# The result document and the baseline


def result(
    made: Measurement,
    *,
    machine: Machine,
    command: Sequence[str],
    base: gate.Revision,
    head: gate.Revision,
    config: Config,
    seconds: float,
    slower: tuple[gate.Slower, ...] = (),
) -> gate.Result:
    """The result of a gate. `seconds`: its duration; `slower`: where the time went."""
    verdicts = tuple(
        msgspec.structs.replace(verdict, passed=held(verdict, config)) for verdict in made.verdicts
    )
    return gate.Result(
        schema=gate.RESULT_SCHEMA,
        created=documents.now(),
        dltune=__version__,
        machine=machine,
        command=tuple(command),
        kind=made.kind,
        base=base,
        head=head,
        confidence=config.confidence,
        budget=config.budget,
        seconds=seconds,
        outcome=overall(made.verdicts),
        passed=all(verdict.passed for verdict in verdicts),
        verdicts=verdicts,
        measured={
            name: tuple(found)
            for name in ("base", "head")
            if (found := [_measured(s, name) for s in made.samples.values() if s.of(name)])
        },
        notes=tuple(made.notes),
        slower=slower,
    )


def baseline(
    made: Measurement, *, machine: Machine, command: Sequence[str], commit: str | None
) -> gate.Baseline:
    """The baseline of one side's measurement."""
    return gate.Baseline(
        schema=gate.BASELINE_SCHEMA,
        created=documents.now(),
        dltune=__version__,
        machine=machine,
        command=tuple(command),
        kind=made.kind,
        commit=commit,
        measured=tuple(_measured(s, "head") for s in made.samples.values() if s.head),
        missing={s.metric: s.missing for s in made.samples.values() if s.missing},
    )


def _measured(sample: Sample, side: str) -> gate.Measured:
    return gate.Measured(sample.metric, sample.unit, tuple(sample.of(side)), sample.exact)


# Two revisions of a project, measured in turns on one machine


def configuration(here: Path, path: Path | None) -> Config:
    """The configuration at `path`, of the folder `here`, or of the top of its repository."""
    if path is None and not (here / PYPROJECT).exists():
        with contextlib.suppress(UsageError):  # outside of a repository there is only this folder
            here = repository(here).top
    return load(here, path)


def ab(
    here: Path,
    base: str,
    command: Sequence[str],
    config: Config,
    machine: Machine,
    *,
    tell: Callable[[str], None],
) -> tuple[gate.Result, Measurement]:
    """Measure `command` at the revision `base` and at HEAD, each in a checkout of its own.

    The checkouts are removed afterwards whatever happens. Raises UsageError when the base does not
    exist, the work tree has changes, a build or the command fails.
    """
    began = time.monotonic()
    if not command:
        raise UsageError(
            "no command to measure",
            remedy="add it after --: dltune gate ab --base main -- python train.py",
        )
    require_on_path(command[0])
    repo = repository(here)
    revisions = {"base": base, "head": "HEAD"}
    commits = {name: commit_of(repo, at) for name, at in revisions.items()}
    require_clean(repo)
    require_own_files(repo, command)
    with checkouts(repo, commits) as folders:
        both = [
            in_checkout(name, revision, folders[name], command)
            for name, revision in revisions.items()
        ]
        if config.build is not None:
            for side in both:
                tell(f"building {side.title}")
                commands.build(side, config.build, config.timeout)
        both = [with_program(side, here) for side in both]
        made = measure(both, machine, config, tell=tell)
        slower: tuple[gate.Slower, ...] = ()
        if asked(made.verdicts):
            tops = {name: checkout.top for name, checkout in folders.items()}
            files = changed(repo, commits["base"], commits["head"])
            slower, notes = locate(tops, files, made, machine, config, tell=tell)
            made.notes += notes
    if commits["base"] == commits["head"]:
        made.notes.append("base and HEAD are the same commit: any difference is noise")
    found = result(
        made,
        machine=machine,
        command=command,
        base=gate.Revision(base, commits["base"]),
        head=gate.Revision("HEAD", commits["head"]),
        config=config,
        seconds=time.monotonic() - began,
        slower=slower,
    )
    return found, made

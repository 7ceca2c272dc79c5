"""A trace as a profile: what ran when under the job's own settings, and nothing at other ones."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Collection
from pathlib import Path

import msgspec

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.job.record import Record, step_graphs
from dltune.profile.climb import Climb
from dltune.profile.discovery import LEAST_SHARE
from dltune.profile.document import Own, assemble
from dltune.profile.traces import chrome, kineto, xprof
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Profile

# the first step of a trace pays for the profiler's own start
WARM_UP = 1
PARTIAL = "it comes from a trace: no op was measured at another thread count"


def imported(path: Path, machine: Machine) -> Profile:
    """The profile of a trace that PyTorch's profiler or JAX's has written. `machine`: this one, for
    a trace does not tell its own. Raises UsageError where no step of it repeats."""
    events = chrome.load(path)
    if any(event.cat == kineto.CATEGORY for event in events):
        told = kineto.told(events, str(path))
    elif any(map(xprof.is_of_jax, events)):
        told = xprof.told(events, str(path))
    else:
        raise UsageError(
            f"{path} contains no ops of PyTorch or JAX",
            remedy="record it with torch.profiler, ProfilerActivity.CPU, and export_chrome_trace, "
            "or with jax.profiler.trace",
        )
    record = Record(protocol.Plugin(0, "", "", "", framework=told.framework))
    for message in told.messages:
        record.add(message)
    targets = step_graphs(record, LEAST_SHARE)
    _number(record, targets)
    if not targets:
        steps = sum(record.runs.values())
        raise UsageError(
            f"{path} has {steps} steps that all differ in their ops",
            remedy="record more steps, without validation between them",
        )
    return assemble(
        record,
        Own.of(record, targets, WARM_UP),
        Climb([(1, "spread")]),
        None,
        None,
        machine=machine,
        command=("a trace:", shlex.quote(str(path))),
        interval=1,
        partial=PARTIAL,
        notes=(
            "the machine and thread counts shown are those of this machine: a trace does not "
            "contain its own",
            *told.notes,
        ),
    )


def _number(record: Record, targets: Collection[int]) -> None:
    """Executions of the steps, so that a number is missed where other ones lie between."""
    others = sorted(
        execution.start
        for graph, every in record.executions.items()
        if graph not in targets
        for execution in every
    )
    for graph in targets:
        record.executions[graph] = [
            msgspec.structs.replace(one, number=at + bisect_right(others, one.start))
            for at, one in enumerate(record.executions[graph])
        ]

"""All rules, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dltune.documents.finding import Finding
from dltune.findings.cores import (
    crowded_processes,
    narrow_affinity,
    neighbour,
    threads_over_quota,
)
from dltune.findings.data import python_input, sequential_map
from dltune.findings.memory import allocator_trim, growing_memory, memory_pressure
from dltune.findings.ops import float64, too_many_threads
from dltune.findings.python import (
    between_steps,
    checkpoints,
    eager,
    host_reads,
    retracing,
    tiny_steps,
    validation,
)
from dltune.findings.seen import Seen

Rule = Callable[[Seen], Iterator[Finding]]

# Of findings whose cost is not known those of earlier rules come first.
RULES: tuple[Rule, ...] = (
    # what ends the job, and what is short
    growing_memory.find,
    memory_pressure.find,
    allocator_trim.find,
    # the cores, and who wants them
    narrow_affinity.find,
    threads_over_quota.find,
    crowded_processes.find,
    neighbour.find,
    # Python beside the steps
    retracing.find,
    eager.find,
    checkpoints.find,
    validation.find,
    host_reads.find,
    tiny_steps.find,
    between_steps.find,
    # data
    python_input.find,
    sequential_map.find,
    # ops
    too_many_threads.find,
    float64.find,
)


def look(seen: Seen) -> tuple[Finding, ...]:
    """All findings, the most costly first."""
    return ordered(finding for rule in RULES for finding in rule(seen))


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: one.share or 0.0, reverse=True))

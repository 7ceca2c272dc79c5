"""All rules, and what they find."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from dltune.documents.finding import Finding
from dltune.findings.cores import (
    crowded_processes,
    narrow_affinity,
    neighbour,
    threads_over_quota,
)
from dltune.findings.data import (
    amplified_reading,
    block_size,
    busy_input,
    exact_offsets,
    input_wait,
    loader_wait,
    many_sleeps,
    mapped_reading,
    missing_read_ahead,
    more_readers,
    no_data_file,
    passed_records,
    python_input,
    queued_threads,
    reading_at_rest,
    sequential_map,
    shared_pages,
    shuffled_read_ahead,
    shuffled_reading,
    slow_store,
    small_reads,
    unhinted_shuffle,
)
from dltune.findings.memory import allocator_trim, growing_memory, memory_pressure
from dltune.findings.ops import (
    batch_norm_in_pieces,
    communication_wait,
    float64,
    loop_optimizer,
    onednn_off,
    op_calls,
    recompiling,
    reference_kernel,
    small_ops,
    time_in_ops,
    too_few_threads,
    too_many_threads,
)
from dltune.findings.python import (
    beside_steps,
    between_ops,
    between_steps,
    checkpoints,
    denormals,
    eager,
    host_reads,
    queue_wait,
    retracing,
    tiny_steps,
    validation,
)
from dltune.findings.ranks import (
    background_at_rest,
    crowded_ranks,
    differing_versions,
    empty_cycles,
    failed_rank,
    hanging_rank,
    late_rank,
    long_cycles,
    missing_ranks,
    oversleeping_thread,
    ranks_on_one_core,
    small_batches,
    spinning_thread,
    starved_background,
    timeline_recording,
    truncated_timeline,
    uneven_ranks,
    unseen_background,
)
from dltune.findings.rule import Rule
from dltune.findings.seen import Seen

log = logging.getLogger(__name__)

# Of findings whose cost is not known those of earlier rules come first.
RULES: tuple[Rule, ...] = (
    # ranks: what keeps the job from working or the report from telling all, what happens on the
    # cores, what a timeline shows
    failed_rank.find,
    hanging_rank.find,
    differing_versions.find,
    unseen_background.find,
    ranks_on_one_core.find,
    spinning_thread.find,
    starved_background.find,
    crowded_ranks.find,
    late_rank.find,
    oversleeping_thread.find,
    small_batches.find,
    uneven_ranks.find,
    empty_cycles.find,
    long_cycles.find,
    truncated_timeline.find,
    timeline_recording.find,
    missing_ranks.find,
    background_at_rest.find,
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
    recompiling.find,
    eager.find,
    checkpoints.find,
    validation.find,
    queue_wait.find,
    host_reads.find,
    tiny_steps.find,
    denormals.find,
    between_steps.find,
    between_ops.find,
    beside_steps.find,
    # data: how steps wait for it, how a job reads it, then a file that was read in every way
    slow_store.find,
    loader_wait.find,
    python_input.find,
    sequential_map.find,
    busy_input.find,
    input_wait.find,
    shared_pages.find,
    amplified_reading.find,
    missing_read_ahead.find,
    shuffled_reading.find,
    small_reads.find,
    many_sleeps.find,
    queued_threads.find,
    no_data_file.find,
    reading_at_rest.find,
    unhinted_shuffle.find,
    exact_offsets.find,
    mapped_reading.find,
    more_readers.find,
    shuffled_read_ahead.find,
    block_size.find,
    passed_records.find,
    # ops
    batch_norm_in_pieces.find,
    onednn_off.find,
    reference_kernel.find,
    too_many_threads.find,
    too_few_threads.find,
    float64.find,
    communication_wait.find,
    small_ops.find,
    loop_optimizer.find,
    op_calls.find,
    time_in_ops.find,
)


def look(seen: Seen) -> tuple[Finding, ...]:
    """All findings, the most costly first."""
    rules = (rule for rule in RULES if rule.is_for(seen.framework))
    findings = ordered(finding for rule in rules for finding in rule(seen))
    for finding in findings:
        log.debug(
            "%s, share %s: %s (%s)", finding.cause, finding.share, finding.title, finding.evidence
        )
    return findings


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By what they cost, or by what their cures can bring at most where that is less; what nothing
    is to be done about comes last. Shares are equal that differ by rounding."""

    def rank(one: Finding) -> tuple[float, bool]:
        share = one.share or 0.0
        return -round(min(share, one.gain.high) if one.gain else share, 6), one.fix is None

    return tuple(sorted(findings, key=rank))

"""All rules, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dltune.documents.finding import Finding
from dltune.findings.data import (
    amplified_reading,
    block_size,
    exact_offsets,
    many_sleeps,
    mapped_reading,
    missing_read_ahead,
    more_readers,
    no_data_file,
    passed_records,
    queued_threads,
    reading_at_rest,
    shared_pages,
    short_memory,
    shuffled_read_ahead,
    shuffled_reading,
    slow_store,
    small_reads,
    unhinted_shuffle,
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
from dltune.findings.seen import Seen

Rule = Callable[[Seen], Iterator[Finding]]

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
    # data: how a job reads, then a file that was read in every way
    slow_store.find,
    shared_pages.find,
    amplified_reading.find,
    missing_read_ahead.find,
    shuffled_reading.find,
    small_reads.find,
    many_sleeps.find,
    queued_threads.find,
    short_memory.find,
    no_data_file.find,
    reading_at_rest.find,
    unhinted_shuffle.find,
    exact_offsets.find,
    mapped_reading.find,
    more_readers.find,
    shuffled_read_ahead.find,
    block_size.find,
    passed_records.find,
)


def look(seen: Seen) -> tuple[Finding, ...]:
    """All findings, the most costly first."""
    return ordered(finding for rule in RULES for finding in rule(seen))


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What nothing is to be done about comes last. Shares are equal that differ by rounding."""
    return tuple(sorted(findings, key=lambda one: (-round(one.share or 0.0, 6), one.cure is None)))

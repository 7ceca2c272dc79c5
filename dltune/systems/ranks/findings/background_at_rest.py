"""Background threads that do not slow down the job."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import (
    crowded_ranks,
    failed_rank,
    hanging_rank,
    oversleeping_thread,
    ranks_on_one_core,
    spinning_thread,
    starved_background,
    unseen_background,
)
from dltune.systems.ranks.schemas.horovod import Horovod

# rules that report a slow background thread
_PROBLEMS = (
    failed_rank,
    hanging_rank,
    unseen_background,
    ranks_on_one_core,
    spinning_thread,
    starved_background,
    crowded_ranks,
    oversleeping_thread,
)


@rule(
    "background-at-rest",
    "ranks",
    summary="The communication threads do not slow down the job.",
    fix="Nothing has to be done.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    report = evidence.report(Horovod)
    if not report or not report.ranks or any(any(rule.find(evidence)) for rule in _PROBLEMS):
        return
    threads = [rank.thread for rank in report.ranks if rank.thread]
    cpu = max((thread.cpu for thread in threads), default=0.0)
    wait = max((thread.wait or 0.0 for thread in threads), default=0.0)
    yield Finding(
        title=f"{report.ranks[0].library}'s background threads do not slow down the job",
        evidence=f"the busiest uses {cpu:.1%} of a core, and waits for a core at most {wait:.1%} "
        "of the time; dltune profile measures the ops",
    )
